package mastodon_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/mastodon"
)

// Deliveries that name the provider "fediverse", and @shop@mastodon.example as their
// recipient, are posts of that account.
func ExampleNew() {
	fediverse, err := mastodon.New(mastodon.Options{
		Endpoint: "https://mastodon.example", Account: "@shop@mastodon.example", Token: os.Getenv("MASTODON_TOKEN"),
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"fediverse": {Provider: fediverse}}}
}
