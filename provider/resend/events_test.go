package resend_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/resend"
)

const eventSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

var saidAt = time.Unix(1_700_000_000, 0)

// signed is a request as Resend makes it.
func signed(body string, at time.Time) *http.Request {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(eventSecret, "whsec_")) // a constant
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "msg_1.%d.%s", at.Unix(), body)
	r := httptest.NewRequest(http.MethodPost, "/events/api", nil)
	r.Header.Set("Svix-Id", "msg_1")
	r.Header.Set("Svix-Timestamp", fmt.Sprint(at.Unix()))
	r.Header.Set("Svix-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}

func reader(t *testing.T, secret string) *resend.Provider {
	t.Helper()
	p, err := resend.New(resend.Options{APIKey: "re_x", EventSecret: secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// The types are those of Resend's documentation.
func TestReadEvents_WhatIsSaid(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 22, 23, 41, 12, 126000000, time.UTC)
	body := func(kind, more string) string {
		return `{"type":"` + kind + `","created_at":"2026-02-22T23:41:12.126Z","data":{"email_id":"56761188","from":"a@example.com","to":["delivered@resend.dev"],"subject":"x","tags":{"deed_id":"d-1"}` + more + `}}`
	}
	event := func(said delivery.Said, reason, code string) []delivery.StatusEvent {
		return []delivery.StatusEvent{{Said: said, ID: "msg_1", Delivery: "d-1", MessageID: "56761188", At: at, Reason: reason, Code: code}}
	}
	for text, want := range map[string]delivery.Told{
		body("email.sent", ""):       {Events: event(delivery.SaidAccepted, "", "")},
		body("email.delivered", ""):  {Events: event(delivery.SaidDelivered, "", "")},
		body("email.complained", ""): {Events: event(delivery.SaidComplained, "", "")},
		body("email.opened", ""):     {Events: event(delivery.SaidOpened, "", "")},
		body("email.clicked", `,"click":{"link":"https://example.com"}`):                                                    {Events: event(delivery.SaidClicked, "", "")},
		body("email.bounced", `,"bounce":{"type":"Permanent","subType":"Suppressed","message":"no such user"}`):             {Events: event(delivery.SaidBounced, "no such user", "Suppressed")},
		body("email.bounced", `,"bounce":{"type":"Transient","subType":"MailboxFull","message":"full"}`):                    {Events: event(delivery.SaidSoftBounced, "full", "MailboxFull")},
		body("email.bounced", `,"bounce":{"type":"Undetermined","subType":"Undetermined","message":"?"}`):                   {Events: event(delivery.SaidSoftBounced, "?", "Undetermined")},
		body("email.suppressed", `,"suppressed":{"reason":"previous_bounce"}`):                                              {Events: event(delivery.SaidBounced, "previous_bounce", "")},
		body("email.suppressed", `,"suppressed":{"reason":"previous_complaint"}`):                                           {Events: event(delivery.SaidComplained, "previous_complaint", "")},
		body("email.failed", `,"failed":{"reason":"reached_daily_quota"}`):                                                  {Events: event(delivery.SaidDropped, "reached_daily_quota", "")},
		body("email.delivery_delayed", ""):                                                                                  {Other: 1},
		body("email.received", ""):                                                                                          {Other: 1},
		body("domain.created", ""):                                                                                          {Other: 1},
		`{"type":"email.delivered","created_at":"2026-02-22 23:41:11+00","data":{"email_id":"9","to":["a","b"],"tags":[]}}`: {Events: []delivery.StatusEvent{{Said: delivery.SaidDelivered, ID: "msg_1", MessageID: "9"}}},
	} {
		got, err := reader(t, eventSecret).ReadEvents(signed(text, saidAt), []byte(text), saidAt)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// A wrong byte, an old request, another's secret, a header that is missing or there twice,
// and nothing to verify by: nothing is believed.
func TestReadEvents_WhatIsNotBelieved(t *testing.T) {
	t.Parallel()
	const body = `{"type":"email.bounced","data":{}}`
	p := reader(t, eventSecret)
	refused := func(what string, p *resend.Provider, r *http.Request, body string, now time.Time, want error) {
		t.Helper()
		if told, err := p.ReadEvents(r, []byte(body), now); !errors.Is(err, want) || len(told.Events) > 0 {
			t.Errorf("%s: %+v, %v", what, told, err)
		}
	}
	refused("another byte", p, signed(body, saidAt), body+" ", saidAt, delivery.ErrUnverified)
	refused("an old one", p, signed(body, saidAt), body, saidAt.Add(6*time.Minute), delivery.ErrUnverified)
	refused("another secret", reader(t, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), signed(body, saidAt), body, saidAt, delivery.ErrUnverified)
	refused("no secret", reader(t, ""), signed(body, saidAt), body, saidAt, delivery.ErrNoEvents)
	for _, name := range []string{"Svix-Id", "Svix-Timestamp", "Svix-Signature"} {
		r := signed(body, saidAt)
		r.Header.Add(name, r.Header.Get(name))
		refused(name+" twice", p, r, body, saidAt, delivery.ErrUnverified)
		r.Header.Del(name)
		refused("no "+name, p, r, body, saidAt, delivery.ErrUnverified)
	}
	for _, bad := range []string{"", "x", "[]", "{}", `{"type":7}`} {
		if _, err := p.ReadEvents(signed(bad, saidAt), []byte(bad), saidAt); err == nil || errors.Is(err, delivery.ErrUnverified) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
