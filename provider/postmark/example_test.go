package postmark_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/postmark"
)

// Deliveries that name the provider "mail" go through a server of Postmark's.
func ExampleNew() {
	mail, err := postmark.New(postmark.Options{ServerToken: os.Getenv("POSTMARK_SERVER_TOKEN"), From: "Shop <shop@example.com>"})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: mail}}}
}
