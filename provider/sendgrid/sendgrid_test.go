package sendgrid_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/sendgrid"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const token = "server-token-6fZ1secret"

func provider(t *testing.T, opts sendgrid.Options) *sendgrid.Provider {
	t.Helper()
	p, err := sendgrid.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newHarness(t *testing.T) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.SendGrid{Mailbox: box, APIKey: token}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: impatient{provider(t, sendgrid.Options{APIKey: token, Endpoint: url, Activity: true})}, Channel: delivery.Email, Recipient: "bob@example.org", Sandbox: "me@example.com",
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

// The bytes are those of SendGrid's specification; testdata names the source.
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
		ReplyTo: "Example Customer Service Team <customer_service@example.com>", Subject: "Your Example Order Confirmation", Text: "Hello from Twilio SendGrid!", HTML: "<p>Hello from Twilio SendGrid!</p>",
		Headers: map[string]string{"X-Entity-Ref-ID": "123"},
	}
	got, err := provider(t, sendgrid.Options{APIKey: token, From: "Example Order Confirmation <orders@example.com>", HeadersAllowed: []string{"X-Entity-*"}}).
		Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "john_doe@example.com", Payload: e.JSON()})
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
	_, err := sendgrid.New(sendgrid.Options{APIKey: "with space", Endpoint: "ftp://u:p@x", From: "no", EventKey: "bm8ga2V5"})
	for _, want := range []string{"Endpoint", "APIKey", "From", "EventKey"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	for _, value := range []string{"with space", "u:p", "bm8ga2V5"} {
		if strings.Contains(err.Error(), value) {
			t.Errorf("repeats a value: %v", err)
		}
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	for scope, says := range map[string]string{"mail.send": "it may send", "stats.read": "it may not send"} {
		server := httptest.NewServer(&catcher.SendGrid{Mailbox: &catcher.Mailbox{}, APIKey: token, Scopes: []string{"user.read", scope}})
		t.Cleanup(server.Close)
		for key, ok := range map[string]bool{token: scope == "mail.send", "wrong": false} {
			checks := provider(t, sendgrid.Options{APIKey: key, Endpoint: server.URL}).Check(t.Context())
			if len(checks) != 2 || !checks[0].OK || checks[1].OK != ok || strings.Contains(checks[1].Info, key) || key == token && !strings.HasPrefix(checks[1].Info, says) {
				t.Errorf("%+v", checks)
			}
		}
	}
}

// Files, copies and several addresses to answer to stand where SendGrid's documentation has them;
// testdata names the source.
func TestRender_AttachmentsFixture(t *testing.T) {
	t.Parallel()
	p, err := sendgrid.New(sendgrid.Options{APIKey: token, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
	}
	providertest.RunAttachments(t, p, "testdata/send_attachments.json")
}
