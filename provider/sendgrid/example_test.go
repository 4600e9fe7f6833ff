package sendgrid_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/sendgrid"
)

// Deliveries that name the provider "mail" go through SendGrid.
func ExampleNew() {
	mail, err := sendgrid.New(sendgrid.Options{APIKey: os.Getenv("SENDGRID_API_KEY"), From: "Shop <shop@example.com>"})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail}}}
}
