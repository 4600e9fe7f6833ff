package telegram_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/telegram"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const token = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"

func provider(t *testing.T, opts telegram.Options) *telegram.Provider {
	t.Helper()
	p, err := telegram.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newHarness(t *testing.T) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.Telegram{Mailbox: box, Token: token}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: provider(t, telegram.Options{Token: token, Endpoint: url}), Channel: delivery.Chat, Recipient: "42", Sandbox: "-1001/7", Payload: json.RawMessage(`{"text": "canary-7f3a"}`),
		Secrets:  []string{token},
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

// The bytes are those of Telegram's documentation; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/send_message.json")
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
	got, err := provider(t, telegram.Options{Token: token}).Render(delivery.Draft{
		Recipient: "-1001234567890/42",
		Payload:   json.RawMessage(`{"text": "<b>hello</b>", "parse_mode": "HTML", "disable_notification": true, "link_preview_options": {"is_disabled": true}, "reply_parameters": {"message_id": 7}}`),
	})
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

// What somebody wrote is answered where they wrote it, by what the source says.
func TestRender_AnswersWhatWasWritten(t *testing.T) {
	t.Parallel()
	source, err := inbound.Telegram(inbound.TelegramOptions{Secrets: []string{"a-secret-of-16-letters"}})
	if err != nil {
		t.Fatal(err)
	}
	for update, want := range map[string]string{
		`{"update_id":1,"message":{"message_id":5,"from":{"id":42,"is_bot":false},"chat":{"id":42,"type":"private"},"text":"hello"}}`:                                                     `{"chat_id":42,"text":"yes"}`,
		`{"update_id":2,"message":{"message_id":6,"message_thread_id":7,"is_topic_message":true,"from":{"id":42,"is_bot":false},"chat":{"id":-1001,"type":"supergroup"},"text":"hello"}}`: `{"chat_id":-1001,"message_thread_id":7,"text":"yes"}`,
	} {
		r := httptest.NewRequest(http.MethodPost, "/in/bot", strings.NewReader(update))
		r.Header.Set("X-Telegram-Bot-Api-Secret-Token", "a-secret-of-16-letters")
		got, err := source.Read(r, []byte(update), time.Now())
		if err != nil || len(got.Events) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		body, err := provider(t, telegram.Options{Token: token}).Render(delivery.Draft{Recipient: got.Events[0].ReplyTo, Payload: json.RawMessage(`{"text": "yes"}`)})
		if err != nil || string(body) != want {
			t.Errorf("%s, %v; want %s", body, err, want)
		}
	}
}

// What no message can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	p := provider(t, telegram.Options{Token: token})
	for payload, want := range map[string]string{
		`{}`:                                   "the payload has no text",
		`{"text": " \n"}`:                      "the payload has no text",
		`{"text": 7}`:                          "the payload's text is not what sendMessage takes",
		`{"text": "canary", "chat_id": 1}`:     "the payload is no JSON object of text",
		`["canary"]`:                           "is not what sendMessage takes",
		`{"text": "canary", "parse_mode":"x"}`: "parse_mode is neither HTML nor MarkdownV2",
		`{"text": "canary` + strings.Repeat("🙂", 2046) + `"}`: "the text has over 4096 characters",
	} {
		_, err := p.Render(delivery.Draft{Recipient: "42", Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40s: %v", payload, err)
		}
	}
	if _, err := p.Render(delivery.Draft{Recipient: "42", Payload: json.RawMessage(`{"text": "` + strings.Repeat("🙂", 2048) + `"}`)}); err != nil {
		t.Errorf("a text of 4096: %v", err)
	}
	for _, to := range []string{"", "ann", "@ab", "+4930123456", "42/", "42/x", "0", "-0", "1.5", "42 ", "99999999999999999999", "@name with"} {
		if _, err := p.Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil {
			t.Errorf("%q is taken for a chat", to)
		}
	}
}

// Telegram's answers, each for what it is; of what it says nothing is repeated that may
// quote the message.
func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for answer, c := range map[string]struct {
		status int
		want   delivery.Status
		says   string
	}{
		`{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`:                       {400, delivery.Failed, "chat not found"},
		`{"ok":false,"error_code":400,"description":"Bad Request: can't parse entities: canary-7f3a"}`:    {400, delivery.Failed, "parse_mode"},
		`{"ok":false,"error_code":400,"description":"group","parameters":{"migrate_to_chat_id":-100777}}`: {400, delivery.Failed, "has another number"},
		`{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}`:            {403, delivery.Failed, "blocked"},
		`{"ok":true,"result":{"message_id":7}}`:                                                           {200, delivery.Sent, ""},
	} {
		box := &catcher.Mailbox{}
		h := newHarness(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(answer))
		}))
		t.Cleanup(server.Close)
		h.Provider, h.Accepted, h.Recipients = provider(t, telegram.Options{Token: token, Endpoint: server.URL}), box.Raw, box.Recipients
		e := providertest.Deliver(t, h)
		if e.Status != c.want || !strings.Contains(e.LastError, c.says) || strings.Contains(e.LastError, "canary") || strings.Contains(e.LastError, "777") {
			t.Errorf("%s: %s with %q", answer, e.Status, e.LastError)
		}
		if c.want == delivery.Sent && e.ProviderMessageID != "7" {
			t.Errorf("message id %q", e.ProviderMessageID)
		}
	}
}

// A bot keeps its account whatever its token is.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	one, renewed, other := provider(t, telegram.Options{Token: token}), provider(t, telegram.Options{Token: "110201543:BBBBBBBB"}), provider(t, telegram.Options{Token: "7:BBBBBBBB"})
	if a := one.Capabilities().Account; a != renewed.Capabilities().Account || a == other.Capabilities().Account {
		t.Errorf("%q, %q and %q", a, renewed.Capabilities().Account, other.Capabilities().Account)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "canary", "110201543", "110201543:", "110201543:a/../b", "x:canary"} {
		_, err := telegram.New(telegram.Options{Token: bad, Endpoint: "ftp://u:canary@x"})
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "Token") || !strings.Contains(err.Error(), "Endpoint") || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	fake := &catcher.Telegram{Mailbox: &catcher.Mailbox{}, Token: token}
	server := httptest.NewServer(fake)
	defer server.Close()
	for given, ok := range map[string]bool{token: true, "110201543:wrong": false} {
		checks := provider(t, telegram.Options{Token: given, Endpoint: server.URL}).Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != ok || strings.Contains(checks[1].Info, given) {
			t.Errorf("%+v", checks)
		}
		if ok && checks[1].Info != "it is @dev_bot" {
			t.Errorf("%+v", checks[1])
		}
	}
}
