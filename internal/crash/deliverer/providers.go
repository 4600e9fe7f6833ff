package main

import (
	"fmt"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/postmark"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/sendgrid"
	"github.com/deedhq/deed/provider/ses"
	"github.com/deedhq/deed/provider/slack"
	"github.com/deedhq/deed/provider/smtp"
	"github.com/deedhq/deed/provider/telegram"
	"github.com/deedhq/deed/provider/twilio"
	"github.com/deedhq/deed/provider/webhook"
	"github.com/deedhq/deed/provider/whatsapp"
)

// settleDelay is when what is in doubt may be looked at, in place of the minute that a
// service may need.
const settleDelay = 200 * time.Millisecond

type soonMastodon struct{ *mastodon.Provider }

func (p soonMastodon) Capabilities() delivery.Capabilities { return soon(p.Provider) }

type soonSlack struct{ *slack.Provider }

func (p soonSlack) Capabilities() delivery.Capabilities { return soon(p.Provider) }

type soonTwilio struct{ *twilio.Provider }

func (p soonTwilio) Capabilities() delivery.Capabilities { return soon(p.Provider) }

func soon(p delivery.Provider) delivery.Capabilities {
	caps := p.Capabilities()
	caps.SettleDelay = settleDelay
	return caps
}

// provider is one of a kind whose service is at address, and whom it writes to: the same, or
// with a place for the delivery's number.
func provider(kind, address string) (p delivery.Provider, channel delivery.Channel, recipient string, err error) {
	endpoint := "http://" + address
	switch kind {
	case "smtp":
		p, err = smtp.New(smtp.Options{Address: address, Security: smtp.Plain})
		return p, delivery.Email, "bob@example.org", err
	case "resend":
		p, err = resend.New(resend.Options{APIKey: "re_x", Endpoint: endpoint})
		return p, delivery.Email, "bob@example.org", err
	case "resend-batch":
		p, err = resend.New(resend.Options{APIKey: "re_x", Endpoint: endpoint, Batch: 4})
		return p, delivery.Email, "bob@d%d.example", err // each is a lane of its own
	case "ses":
		p, err = ses.New(ses.Options{Region: "eu-central-1", AccessKeyID: "AKIA", SecretAccessKey: "secret", ConfigurationSet: "events", Endpoint: endpoint})
		return p, delivery.Email, "bob@example.org", err
	case "sendgrid":
		p, err = sendgrid.New(sendgrid.Options{APIKey: "SG.x", Endpoint: endpoint})
		return p, delivery.Email, "bob@example.org", err
	case "postmark":
		p, err = postmark.New(postmark.Options{ServerToken: "token", Endpoint: endpoint})
		return p, delivery.Email, "bob@example.org", err
	case "webhook":
		p, err = webhook.New(webhook.Options{Secret: "a secret of the tests", AllowHosts: []string{"127.0.0.1"}})
		return p, delivery.Webhook, endpoint + "/hook", err
	case "telegram":
		p, err = telegram.New(telegram.Options{Token: "1:token", Endpoint: endpoint})
		return p, delivery.Chat, "42", err
	case "whatsapp":
		p, err = whatsapp.New(whatsapp.Options{Token: "token", PhoneNumberID: "1", Endpoint: endpoint})
		return p, delivery.Chat, "+15005550006", err
	case "slack":
		one, err := slack.New(slack.Options{Token: "xoxb-x", Endpoint: endpoint})
		return soonSlack{one}, delivery.Chat, "C024BE91L", err
	case "twilio":
		one, err := twilio.New(twilio.Options{AccountSID: "AC00000000000000000000000000000000", AuthToken: "token", From: "+15005550006", Endpoint: endpoint})
		return soonTwilio{one}, delivery.SMS, "+150055510%02d", err
	case "mastodon":
		one, err := mastodon.New(mastodon.Options{Token: "token", Account: "@dev@localhost", Endpoint: endpoint})
		return soonMastodon{one}, delivery.Social, "@dev@localhost", err
	case "bluesky":
		p, err = bluesky.New(bluesky.Options{Account: "dev.test", Password: "password", Endpoint: endpoint})
		return p, delivery.Social, "dev.test", err
	}
	return nil, "", "", fmt.Errorf("VICTIM_PROVIDER %q is unknown", kind)
}

// payload says which delivery it is of.
func payload(channel delivery.Channel, n int) []byte {
	text := fmt.Sprintf("delivery-%d-", n)
	if channel == delivery.Email {
		return delivery.EmailPayload{From: "a@example.com", Subject: "n", Text: text}.JSON()
	}
	return fmt.Appendf(nil, `{"text": %q}`, text)
}
