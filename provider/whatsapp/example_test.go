package whatsapp_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/whatsapp"
)

// Deliveries that name the provider "phone" are WhatsApp messages of one number, 80 calls a
// second.
func ExampleNew() {
	phone, err := whatsapp.New(whatsapp.Options{Token: os.Getenv("WHATSAPP_TOKEN"), PhoneNumberID: "106540352242922"})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"phone": {Provider: phone, Rate: 80}}}
}
