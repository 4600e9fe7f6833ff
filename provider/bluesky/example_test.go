package bluesky_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/bluesky"
)

// Deliveries that name the provider "bluesky", and shop.example.com as their recipient, are
// posts of that account.
func ExampleNew() {
	shop, err := bluesky.New(bluesky.Options{Account: "shop.example.com", Password: os.Getenv("BLUESKY_APP_PASSWORD")})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"bluesky": {Provider: shop}}}
}
