package slack_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/slack"
)

// Deliveries that name the provider "team" are messages of a Slack app.
func ExampleNew() {
	team, err := slack.New(slack.Options{Token: os.Getenv("SLACK_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"team": {Provider: team}}}
}
