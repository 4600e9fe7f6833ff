package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/slack"
	"github.com/deedhq/deed/provider/telegram"
	"github.com/deedhq/deed/provider/twilio"
	"github.com/deedhq/deed/provider/webhook"
	"github.com/deedhq/deed/provider/whatsapp"
	"github.com/deedhq/deed/tenant"
)

// What a provider's service would refuse of itself is told when it is reserved through
// the ledger, with the field, in words that repeat nothing of it, and nothing is stored.
func TestReserve_WhatTheProviderRefusesIsTold(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	text := func(n int) string { return `{"text": "` + strings.Repeat("x", n) + `"}` }
	must := func(p delivery.Provider, err error) delivery.ProviderOptions {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return delivery.ProviderOptions{Provider: p}
	}
	l := ledger(t, db, delivery.Options{Providers: map[string]delivery.ProviderOptions{
		"bot":   must(telegram.New(telegram.Options{Token: "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"})),
		"team":  must(slack.New(slack.Options{Token: "xoxb-1"})),
		"texts": must(twilio.New(twilio.Options{AccountSID: "AC0123456789abcdef0123456789abcdef", AuthToken: "x", From: "+15017122661"})),
		"phone": must(whatsapp.New(whatsapp.Options{Token: "x", PhoneNumberID: "106540352242922"})),
		"fedi":  must(mastodon.New(mastodon.Options{Endpoint: "https://mastodon.example", Account: "@shop@mastodon.example", Token: "x"})),
		"sky":   must(bluesky.New(bluesky.Options{Account: "shop.example.com", Password: "x"})),
		"mail":  must(resend.New(resend.Options{APIKey: "re_x", From: "shop@example.com"})),
		"hooks": must(webhook.New(webhook.Options{Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Hosts: []string{"hooks.example.com"}})),
	}})
	if err := l.Register(ctx); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		channel           delivery.Channel
		provider, to      string
		fits, over, field string
	}{
		{delivery.Chat, "bot", "42", text(4096), text(4097), "text"},
		{delivery.Chat, "bot", "42", text(1), `{"text": "x", "parse_mode": "canary"}`, "parse_mode"},
		{delivery.Chat, "team", "C024BE91L", text(1), `{"blocks": {}}`, "blocks"},
		{delivery.SMS, "texts", "+16505551234", text(1600), text(1601), "text"},
		{delivery.Voice, "texts", "+16505551234", `{"twiml": "<Response/>"}`, `{"twiml": "<canary/>"}`, "twiml"},
		{delivery.Chat, "phone", "16505551234", text(4096), text(4097), "text"},
		{delivery.Chat, "phone", "16505551234", `{"template": {"name": "hello", "language": {"code": "en"}}}`, `{"template": {"language": {"code": "en"}}}`, "template"},
		{delivery.Chat, "phone", "16505551234", `{"template": {"name": "hello", "language": {"code": "en"}}}`, `{"template": {"name": "hello"}}`, "template"},
		{delivery.Social, "fedi", "@shop@mastodon.example", text(500), text(501), "text"},
		{delivery.Social, "sky", "shop.example.com", text(300), text(301), "text"},
		{delivery.Email, "mail", "a@example.org", `{"subject": "x", "text": "x"}`, `{"text": "x"}`, "subject"},
		{delivery.Webhook, "hooks", "https://hooks.example.com/x", `{}`, ``, ""},
	} {
		d := delivery.Delivery{Channel: c.channel, Provider: c.provider, Recipient: c.to, Payload: json.RawMessage(c.fits), Key: delivery.NewKey(fmt.Sprint(i))}
		if made, err := l.Reserve(ctx, db.Pool(pgtest.App), d); err != nil || made[0].Status != delivery.Queued {
			t.Errorf("%s: %v, %v", c.provider, made, err)
		}
		bad := d
		if bad.Payload, bad.Key = json.RawMessage(c.over), delivery.NewKey("bad", fmt.Sprint(i)); c.over == "" {
			bad.Payload, bad.Recipient = d.Payload, "https://canary.example.net/x"
		}
		before := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`)
		_, err := l.ReserveFor(ctx, db.Pool(pgtest.App), tenant.Default, d, bad)
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(fmt.Sprint(err), "delivery 2: provider "+c.provider) || !strings.Contains(fmt.Sprint(err), c.field) || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%s: %v", c.provider, err)
		}
		if after := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); after != before {
			t.Errorf("%s: %d rows were made of what was refused", c.provider, after-before)
		}
	}
	wrong := map[string]delivery.Delivery{
		"texts": {Channel: delivery.SMS, Recipient: "16505551234", Payload: json.RawMessage(text(1))}, // not E.164
		"bot":   {Channel: delivery.Email, Recipient: "a@example.org", Payload: json.RawMessage(text(1))},
		"fedi":  {Channel: delivery.Social, Recipient: "@other@mastodon.example", Payload: json.RawMessage(text(1))},
	}
	for name, d := range wrong {
		d.Provider, d.Key = name, delivery.NewKey(name)
		if err := l.Check(d); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What is nobody's here, or for nobody, is not judged.
	if err := l.Check(email("a@example.org"), delivery.Delivery{Channel: delivery.SMS, Provider: "texts", Payload: json.RawMessage(`{}`)}); err != nil {
		t.Error(err)
	}
}
