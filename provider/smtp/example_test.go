package smtp_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/smtp"
)

// Deliveries that name the provider "mail" go through a server of one's own.
func ExampleNew() {
	mail, err := smtp.New(smtp.Options{
		Address: "mail.example.com:587", User: "shop", Password: os.Getenv("SMTP_PASSWORD"),
		From: "Shop <shop@example.com>", FromAllowed: []string{"@example.com"},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail, Concurrency: 4}}}
}
