package webhook_test

import (
	"log"
	"os"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/webhook"
)

// Deliveries that name the provider "hooks" are posted to the URL that each has as
// its recipient. The receivers promise to drop repeats for a day, so that one
// whose answer was lost is sent again.
func ExampleNew() {
	hooks, err := webhook.New(webhook.Options{Secret: os.Getenv("HOOK_SECRET"), DropsRepeats: 24 * time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"hooks": {Provider: hooks, PerLane: 2}}}
}
