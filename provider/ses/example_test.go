package ses_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/ses"
)

// Deliveries that name the provider "mail" go through Amazon SES, fourteen calls a second.
func ExampleNew() {
	mail, err := ses.New(ses.Options{
		Region: "eu-central-1", AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		ConfigurationSet: "events", From: "Shop <shop@example.com>",
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail, Rate: 14}}}
}
