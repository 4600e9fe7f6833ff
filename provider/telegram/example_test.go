package telegram_test

import (
	"log"
	"os"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/telegram"
)

// Deliveries that name the provider "bot" are messages of a Telegram bot, 25 calls a
// second.
func ExampleNew() {
	bot, err := telegram.New(telegram.Options{Token: os.Getenv("TELEGRAM_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"bot": {Provider: bot, Rate: 25}}}
}
