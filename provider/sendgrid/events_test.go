package sendgrid

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
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
	"github.com/deedhq/deed/internal/httpcall"
)

func eventReader(t *testing.T, key string) *Provider {
	t.Helper()
	p, err := New(Options{APIKey: "SG.x", EventKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func request(timestamp, signature string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/events/mail", nil)
	r.Header.Set(timestampHeader, timestamp)
	r.Header.Set(signatureHeader, signature)
	return r
}

// The vector is that of SendGrid's own libraries: the CR LF at the end is signed as well.
func TestReadEvents_Vector(t *testing.T) {
	t.Parallel()
	const (
		key       = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
		timestamp = "1600112502"
		signature = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
		body      = `[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]` + "\r\n"
	)
	now := time.Unix(1600112502, 0)
	p := eventReader(t, key)
	got, err := p.ReadEvents(request(timestamp, signature), []byte(body), now)
	if err != nil {
		t.Fatal(err)
	}
	want := delivery.Told{Events: []delivery.StatusEvent{{
		Said: delivery.SaidBounced, ID: "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA", MessageID: "LRzXl_NHStOGhQ4kofSm_A", Address: "hello@world.com",
		At: time.Unix(1600112492, 0).UTC(), Reason: "Bounced Address",
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	refused := func(what string, p *Provider, r *http.Request, body string, now time.Time, want error) {
		t.Helper()
		if told, err := p.ReadEvents(r, []byte(body), now); !errors.Is(err, want) || len(told.Events) > 0 {
			t.Errorf("%s: %+v, %v", what, told, err)
		}
	}
	refused("without the end of its line", p, request(timestamp, signature), strings.TrimSpace(body), now, delivery.ErrUnverified)
	refused("another byte", p, request(timestamp, signature), strings.Replace(body, "hello", "jello", 1), now, delivery.ErrUnverified)
	refused("another time", p, request("1600112503", signature), body, now, delivery.ErrUnverified)
	refused("no time", p, request("x", signature), body, now, delivery.ErrUnverified)
	refused("no signature", p, request(timestamp, ""), body, now, delivery.ErrUnverified)
	refused("two days later", p, request(timestamp, signature), body, now.Add(48*time.Hour), delivery.ErrUnverified)
	refused("nothing to verify by", eventReader(t, ""), request(timestamp, signature), body, now, delivery.ErrNoEvents)
	for _, name := range []string{timestampHeader, signatureHeader} {
		r := request(timestamp, signature)
		r.Header.Add(name, r.Header.Get(name))
		refused(name+" twice", p, r, body, now, delivery.ErrUnverified)
		r.Header.Del(name)
		refused("no "+name, p, r, body, now, delivery.ErrUnverified)
	}
	if _, err := p.ReadEvents(request(timestamp, signature), []byte(body), now.Add(23*time.Hour)); err != nil {
		t.Errorf("a repeat of the same day: %v", err)
	}
}

func TestReadEvents_WhatIsSaid(t *testing.T) {
	t.Parallel()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	p := eventReader(t, base64.StdEncoding.EncodeToString(public))
	now := time.Unix(1_700_000_000, 0)
	read := func(body string) (delivery.Told, error) {
		t.Helper()
		timestamp := fmt.Sprint(now.Unix())
		sum := sha256.Sum256([]byte(timestamp + body))
		signature, err := ecdsa.SignASN1(rand.Reader, private, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return p.ReadEvents(request(timestamp, base64.StdEncoding.EncodeToString(signature)), []byte(body), now)
	}
	said := func(said delivery.Said, reason, code string) delivery.Told {
		return delivery.Told{Events: []delivery.StatusEvent{{Said: said, ID: "e-1", Delivery: "d-1", MessageID: "m-1", Address: "a@example.com", At: now.UTC(), Reason: reason, Code: code}}}
	}
	for more, want := range map[string]delivery.Told{
		`"event":"processed"`:                     said(delivery.SaidAccepted, "", ""),
		`"event":"delivered","response":"250 OK"`: said(delivery.SaidDelivered, "", ""),
		`"event":"bounce","type":"bounce","reason":"no such user","status":"5.1.1"`: said(delivery.SaidBounced, "no such user", "5.1.1"),
		`"event":"bounce","type":"blocked","reason":"not now","status":"4.7.0"`:     said(delivery.SaidSoftBounced, "not now", "4.7.0"),
		`"event":"bounce","type":"blocked","reason":"policy","status":"5.7.1"`:      said(delivery.SaidDropped, "policy", "5.7.1"),
		`"event":"dropped","reason":"Bounced Address"`:                              said(delivery.SaidBounced, "Bounced Address", ""),
		`"event":"dropped","reason":"Spam Reporting Address"`:                       said(delivery.SaidComplained, "Spam Reporting Address", ""),
		`"event":"dropped","reason":"Unsubscribed Address"`:                         said(delivery.SaidUnsubscribed, "Unsubscribed Address", ""),
		`"event":"dropped","reason":"Invalid SMTPAPI header"`:                       said(delivery.SaidDropped, "Invalid SMTPAPI header", ""),
		`"event":"open"`:              said(delivery.SaidOpened, "", ""),
		`"event":"click","url":"x"`:   said(delivery.SaidClicked, "", ""),
		`"event":"spamreport"`:        said(delivery.SaidComplained, "", ""),
		`"event":"unsubscribe"`:       said(delivery.SaidUnsubscribed, "", ""),
		`"event":"group_unsubscribe"`: said(delivery.SaidUnsubscribed, "", ""),
		`"event":"group_resubscribe"`: {Other: 1},
		`"event":"deferred"`:          {Other: 1},
		`"event":7`:                   {Unreadable: 1},
	} {
		got, err := read(`[{"email":"a@example.com","timestamp":1700000000,"sg_event_id":"e-1","sg_message_id":"m-1.filter0001.1","deed_id":"d-1","category":["x"],` + more + `}]`)
		if err != nil {
			t.Errorf("%s: %v", more, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", more, diff)
		}
	}
	// One that cannot be read holds up no others.
	got, err := read(`[{"event":"delivered"},null,7,{"event":"open","sg_event_id":"e-2"}]`)
	if err != nil || got.Unreadable != 3 || len(got.Events) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "x", "{}", `"x"`} {
		if _, err := read(bad); err == nil || errors.Is(err, delivery.ErrUnverified) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// SendGrid's answers, each for what it is; of what it says nothing but a field is repeated,
// since it may name the recipient.
func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		status           int
		body, want, says string
	}{
		{202, ``, "accepted", ""},
		{200, `canary`, "unknown", "status 200"},
		{400, `{"errors":[{"message":"canary","field":"personalizations.0.to.0.email","help":null}]}`, "refused", "status 400, of the field personalizations.0.to.0.email"},
		{400, `{"errors":[{"message":"x","field":"canary@example.com"}]}`, "refused", "status 400"},
		{413, `canary`, "refused", "status 413"},
		{307, ``, "refused", "status 307"},
		{401, `{"errors":[{"message":"canary","field":null}]}`, "outage", "status 401"},
		{403, `canary`, "outage", "status 403"},
		{403, `{"errors":[{"message":"canary","field":null,"help":null}]}`, "outage", "status 403"},
		// Of an e-mail whose sender is not verified: nothing about the key, and nobody else's outage.
		{403, `{"errors":[{"message":"canary","field":"from","help":null}]}`, "refused", "status 403, of the field from"},
		{403, `{"errors":[{"message":"canary","field":"from.email","help":null}]}`, "refused", "status 403, of the field from.email"},
		{429, `{"errors":[{"message":"canary","field":null}]}`, "outage", "status 429"},
		{408, `canary`, "unknown", "status 408"},
		{500, `canary`, "unknown", "status 500"},
	} {
		h := http.Header{"X-Message-Id": {"m-1"}, "X-Ratelimit-Reset": {"1700000007"}}
		out := judge(httpcall.Answer{Status: c.status, Header: h, Body: []byte(c.body)}, now)
		if out.String() != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.body, out, c.want)
		}
		if c.want == "accepted" {
			if out.MessageID() != "m-1" {
				t.Errorf("message id %q", out.MessageID())
			}
			continue
		}
		if text := out.Err().Error(); !strings.Contains(text, c.says) || strings.Contains(text, "canary") {
			t.Errorf("%d %s: %q", c.status, c.body, text)
		}
		if waits := c.status == 429; waits != (out.RetryAfter() == 7*time.Second) {
			t.Errorf("%d %s: after %s", c.status, c.body, out.RetryAfter())
		}
	}
	if out := judge(httpcall.Answer{Err: errors.New("cut"), Connected: true}, now); out.String() != "unknown" {
		t.Error(out)
	}
	if out := judge(httpcall.Answer{Err: errors.New("cut")}, now); out.String() != "outage" {
		t.Error(out)
	}
}
