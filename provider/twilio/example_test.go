package twilio_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/twilio"
)

// Deliveries that name the provider "phone" are text messages and calls from a number.
func ExampleNew() {
	phone, err := twilio.New(twilio.Options{
		AccountSID: os.Getenv("TWILIO_ACCOUNT_SID"), AuthToken: os.Getenv("TWILIO_AUTH_TOKEN"), From: "+15017122661",
		StatusCallback: "https://hooks.example.com/events/twilio",
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"phone": {Provider: phone, Rate: 1}}}
}
