package resend_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/resend"
)

// Deliveries that name the provider "mail" go through Resend, two calls a second.
func ExampleNew() {
	mail, err := resend.New(resend.Options{APIKey: os.Getenv("RESEND_API_KEY"), From: "Shop <shop@example.com>"})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail, Rate: 2}}}
}
