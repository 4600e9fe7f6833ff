package main

import (
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
)

// What makers say of their options is said of the file's keys, with the file's line.
func TestOfFile_NamesTheFilesKeys(t *testing.T) {
	t.Parallel()
	file := &config.Config{File: "deed.yaml"}
	secret := config.Known("a secret of sixteen")
	for _, c := range []struct {
		provider config.Provider
		want     string
	}{
		{
			config.Provider{Type: "ses", Region: "Frankfurt", AccessKeyID: secret, SecretAccessKey: config.Known("0123456789abcdef"), EventTopic: "arn:foo"},
			"deed.yaml:3: providers.a: region is not one of AWS, such as eu-central-1\n" +
				"deed.yaml:3: providers.a: access_key_id is empty or not visible ASCII\n" +
				"deed.yaml:3: providers.a: event_topic is not the ARN of an SNS topic, such as arn:aws:sns:eu-central-1:123456789012:events",
		},
		{
			config.Provider{Type: "twilio", AccountSID: "AC0123456789abcdef0123456789abcdef"},
			"deed.yaml:3: providers.a: from and messaging_service_sid are both empty\n" +
				"deed.yaml:3: providers.a: auth_token, and api_key_sid with api_key_secret: want one of them",
		},
		{
			config.Provider{Type: "telegram", Token: config.Known("x")},
			"deed.yaml:3: providers.a: token is not a bot's token, as @BotFather gives it: digits, a colon, letters",
		},
	} {
		_, err := provider(c.provider)
		if err == nil {
			t.Fatalf("%s: no error", c.provider.Type)
		}
		if got := ofFile(file, 3, "providers.a", err).Error(); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.provider.Type, got, c.want)
		}
	}
	_, err := newSource(config.Source{Type: "slack", Secret: config.Known("short")})
	if err == nil {
		t.Fatal("a secret of five bytes")
	}
	if got, want := ofFile(file, 7, "sources.s", err).Error(), "deed.yaml:7: sources.s: secret: secret 1 has 5 bytes; it must have at least 16"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = newSink(config.Sink{Type: "webhook", Webhook: &config.Webhook{
		URL: "https://h.example", Secret: secret, Breaker: config.Breaker{Failures: -1, Pause: -1},
	}}, nil, nil)
	if err == nil {
		t.Fatal("a breaker of less than no failures")
	}
	want := "deed.yaml:5: sinks.h: breaker.failures -1 is negative\n" +
		"deed.yaml:5: sinks.h: breaker.pause -1ns is not between 0 and max_pause 30s"
	if got := ofFile(file, 5, "sinks.h", err).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Who waited for a delivery is told whether it is being called, or nobody has taken it.
func TestUndelivered_SaysThatItIsBeingCalled(t *testing.T) {
	t.Parallel()
	called := undelivered(delivery.Entry{ID: "ID", Status: delivery.Sending, Provider: "mail"}, 2e9)
	if want := "not delivered within 2s: the provider mail is being called, and has not answered yet; deed deliveries show ID says what becomes of it"; called != want {
		t.Errorf("got %s, want %s", called, want)
	}
}
