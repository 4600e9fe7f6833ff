package postmark_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/postmark"
	"github.com/deedhq/deed/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const token = "server-token-6fZ1secret"

func provider(t *testing.T, opts postmark.Options) *postmark.Provider {
	t.Helper()
	p, err := postmark.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newHarness(t *testing.T) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.Postmark{Mailbox: box, Token: token}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: provider(t, postmark.Options{ServerToken: token, Endpoint: url}), Channel: delivery.Email, Recipient: "bob@example.org", Sandbox: "me@example.com",
		Payload: delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "hello", Text: "canary-7f3a"}.JSON(), Secrets: []string{token},
		Accepted: box.Raw, Recipients: box.Recipients, Calls: fake.Faults.Count,
		Fail: func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

// The bytes are those of Postmark's documentation; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/send_email.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source string          `json:"source"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	e := delivery.EmailPayload{
		ReplyTo: "reply@example.com", Subject: "Postmark test", Text: "Hello dear Postmark user.", HTML: "<html><body><strong>Hello</strong> dear Postmark user.</body></html>",
		Headers: map[string]string{"X-Entity-Ref-ID": "123"},
	}
	got, err := provider(t, postmark.Options{ServerToken: token, From: "sender@example.com", MessageStream: "outbound", HeadersAllowed: []string{"X-Entity-*"}}).
		Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "receiver@example.com", Payload: e.JSON()})
	if err != nil {
		t.Fatal(err)
	}
	var want, is any
	if json.Unmarshal(fixture.Body, &want) != nil || json.Unmarshal(got, &is) != nil {
		t.Fatalf("no JSON: %s", got)
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := postmark.New(postmark.Options{ServerToken: "with space", Endpoint: "ftp://u:p@x", From: "no", MessageStream: "a stream", EventUser: "u", EventPassword: "short"})
	for _, want := range []string{"Endpoint", "ServerToken", "From", "MessageStream", "EventPassword"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	for _, value := range []string{"with space", "u:p", "short"} {
		if strings.Contains(err.Error(), value) {
			t.Errorf("repeats a value: %v", err)
		}
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&catcher.Postmark{Mailbox: &catcher.Mailbox{}, Token: token})
	t.Cleanup(server.Close)
	for key, ok := range map[string]bool{token: true, "wrong": false} {
		checks := provider(t, postmark.Options{ServerToken: key, Endpoint: server.URL}).Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != ok || strings.Contains(checks[1].Info, key) {
			t.Errorf("%+v", checks)
		}
	}
}

const eventPassword = "a password of Postmark's"

func told(t *testing.T, p *postmark.Provider, user, password, body string) (delivery.Told, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/events/mail", bytes.NewBufferString(body))
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	return p.ReadEvents(r, []byte(body), time.Now())
}

// The fields are those of Postmark's documentation of its webhooks.
func TestReadEvents_WhatIsSaid(t *testing.T) {
	t.Parallel()
	p := provider(t, postmark.Options{ServerToken: token, EventUser: "postmark", EventPassword: eventPassword})
	at := time.Date(2026, 2, 22, 23, 41, 12, 0, time.UTC)
	body := func(kind, more string) string {
		return `{"RecordType":"` + kind + `","MessageID":"m-1","Metadata":{"deed_id":"d-1"},"A field of tomorrow":[]` + more + `}`
	}
	event := func(said delivery.Said, id, address, reason, code string) delivery.Told {
		return delivery.Told{Events: []delivery.StatusEvent{{Said: said, ID: id, Delivery: "d-1", MessageID: "m-1", Address: address, At: at, Reason: reason, Code: code}}}
	}
	bounce := func(kind string) string {
		return body("Bounce", `,"ID":42,"Type":"`+kind+`","Email":"a@example.com","Details":"no such user","BouncedAt":"2026-02-22T23:41:12.0000000Z"`)
	}
	for text, want := range map[string]delivery.Told{
		body("Delivery", `,"Recipient":"a@example.com","DeliveredAt":"2026-02-22T23:41:12Z"`): event(delivery.SaidDelivered, "Delivery:m-1", "a@example.com", "", ""),
		body("Open", `,"Recipient":"a@example.com","ReceivedAt":"2026-02-22T23:41:12Z"`):      event(delivery.SaidOpened, "Open:m-1", "a@example.com", "", ""),
		body("Click", `,"Recipient":"a@example.com","ReceivedAt":"2026-02-22T23:41:12Z"`):     event(delivery.SaidClicked, "Click:m-1", "a@example.com", "", ""),
		bounce("HardBounce"):       event(delivery.SaidBounced, "Bounce:42", "a@example.com", "no such user", "HardBounce"),
		bounce("BadEmailAddress"):  event(delivery.SaidBounced, "Bounce:42", "a@example.com", "no such user", "BadEmailAddress"),
		bounce("SoftBounce"):       event(delivery.SaidSoftBounced, "Bounce:42", "a@example.com", "no such user", "SoftBounce"),
		bounce("SpamNotification"): event(delivery.SaidDropped, "Bounce:42", "a@example.com", "no such user", "SpamNotification"),
		bounce("Blocked"):          event(delivery.SaidDropped, "Bounce:42", "a@example.com", "no such user", "Blocked"),
		bounce("Transient"):        {Other: 1},
		bounce("AutoResponder"):    {Other: 1},
		body("SpamComplaint", `,"ID":42,"Type":"SpamComplaint","Email":"a@example.com","Details":"x","BouncedAt":"2026-02-22T23:41:12Z"`):                                                 event(delivery.SaidComplained, "SpamComplaint:42", "a@example.com", "x", "SpamComplaint"),
		body("SubscriptionChange", `,"Recipient":"a@example.com","Origin":"Recipient","SuppressSending":true,"SuppressionReason":"ManualSuppression","ChangedAt":"2026-02-22T23:41:12Z"`): event(delivery.SaidUnsubscribed, "SubscriptionChange:m-1", "a@example.com", "", ""),
		body("SubscriptionChange", `,"Recipient":"a@example.com","Origin":"Admin","SuppressSending":true,"SuppressionReason":"ManualSuppression"`):                                        {Other: 1},
		body("SubscriptionChange", `,"Recipient":"a@example.com","Origin":"Recipient","SuppressSending":false`):                                                                           {Other: 1},
		body("SubscriptionChange", `,"Recipient":"a@example.com","Origin":"Recipient","SuppressSending":true,"SuppressionReason":"HardBounce","ChangedAt":"2026-02-22T23:41:12Z"`):        {Other: 1},
		body("Inbound", ""): {Other: 1},
	} {
		got, err := told(t, p, "postmark", eventPassword, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

// Without the webhook's user and password nothing is believed.
func TestReadEvents_WhatIsNotBelieved(t *testing.T) {
	t.Parallel()
	const body = `{"RecordType":"Bounce"}`
	p := provider(t, postmark.Options{ServerToken: token, EventUser: "postmark", EventPassword: eventPassword})
	for _, c := range [][2]string{{"", ""}, {"postmark", ""}, {"postmark", eventPassword + "x"}, {"postmark2", eventPassword}, {eventPassword, "postmark"}} {
		if got, err := told(t, p, c[0], c[1], body); !errors.Is(err, delivery.ErrUnverified) || len(got.Events) > 0 {
			t.Errorf("%q: %+v, %v", c, got, err)
		}
	}
	if _, err := told(t, provider(t, postmark.Options{ServerToken: token}), "", "", body); !errors.Is(err, delivery.ErrNoEvents) {
		t.Errorf("nothing to verify by: %v", err)
	}
	for _, bad := range []string{"", "x", "[]", "{}", `{"RecordType":7}`} {
		if _, err := told(t, p, "postmark", eventPassword, bad); err == nil || errors.Is(err, delivery.ErrUnverified) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Files, copies and several addresses to answer to stand where Postmark's documentation has them;
// testdata names the source.
func TestRender_AttachmentsFixture(t *testing.T) {
	t.Parallel()
	p, err := postmark.New(postmark.Options{ServerToken: token, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
	}
	providertest.RunAttachments(t, p, "testdata/send_attachments.json")
}
