package slack_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/slack"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const token = "xoxb-17653672481-19874698323-pdFZKVeTuE8sk7oOcBrzbqgy"

func provider(t *testing.T, opts slack.Options) *slack.Provider {
	t.Helper()
	p, err := slack.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newHarness(t *testing.T) providertest.Harness {
	h, _, _ := harness(t)
	return h
}

func harness(t *testing.T) (h providertest.Harness, fake *catcher.Slack, url string) {
	box := &catcher.Mailbox{}
	fake = &catcher.Slack{Mailbox: box, Token: token}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: provider(t, slack.Options{Token: token, Endpoint: url}), Channel: delivery.Chat, Recipient: "C024BE91L/1503435956.000247", Sandbox: "C024SANDBOX",
		Payload: json.RawMessage(`{"text": "canary-7f3a"}`), Secrets: []string{token},
		Accepted: box.Raw, Recipients: box.Recipients, Calls: fake.Faults.Count,
		Fail: func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}, fake, url
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

// What is in doubt is found among much else that was posted since: over many pages, on one that is
// long, and in the channel that a person has.
func TestFind_AmongOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		recipient, channel string
		size, page         int
	}{
		"many pages":    {"C024BE91L/1503435956.000247", `"C024BE91L", "thread_ts": "1503435956.000247"`, 10, 0},
		"long messages": {"C024BE91L", `"C024BE91L"`, 30000, 50},
		"a person":      {"T024BE91L:U024BE7LH", `"U024BE7LH"`, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, fake, url := harness(t)
			h.Recipient, fake.Page = c.recipient, c.page
			h.Fail(providertest.ResetAccepted, 1)
			others := make(chan error, 1)
			go func() {
				pgtest.Wait(pgtest.Patience, func() bool { return len(fake.Mailbox.List()) > 0 })
				others <- postOthers(url, c.channel, c.size)
			}()
			e := providertest.Deliver(t, h)
			if err := <-others; err != nil {
				t.Fatal(err)
			}
			if list := fake.Mailbox.List(); e.SentAt == nil || len(list) != 6 || e.ProviderMessageID != list[0].ID {
				t.Errorf("%s, %d posted: %s %s", e.Status, len(list), e.LastError, e.DoubtReason)
			}
		})
	}
}

// postOthers posts five messages that are other deliveries'.
func postOthers(url, channel string, size int) error {
	for i := range 5 {
		body := fmt.Sprintf(`{"channel": %s, "text": "other %d%s", "metadata": {"event_type": "deed_delivery", "event_payload": {"deed_id": "other"}}}`, channel, i, strings.Repeat("x", size))
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/chat.postMessage", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_ = answer.Body.Close()
	}
	return nil
}

// The bytes are those of Slack's documentation; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/post_message.json")
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
	got, err := provider(t, slack.Options{Token: token}).Render(delivery.Draft{
		ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "C024BE91L/1503435956.000247",
		Payload: json.RawMessage(`{"text": "hello", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "*hello*"}}], "unfurl_links": false}`),
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
	const secret = "a secret of 16 letters"
	source, err := inbound.Slack(inbound.SlackOptions{Secrets: []string{secret}})
	if err != nil {
		t.Fatal(err)
	}
	for event, want := range map[string]string{
		`"user":"U1234","channel":"C024BE91L"`:                                 `{"channel":"C024BE91L","text":"yes",`,
		`"user":"U1234","channel":"D024BE91L","thread_ts":"1503435956.000247"`: `{"channel":"D024BE91L","thread_ts":"1503435956.000247","text":"yes",`,
	} {
		body := `{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"message","text":"hello","ts":"1.2",` + event + `}}`
		now := time.Now()
		seconds := strconv.FormatInt(now.Unix(), 10)
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("v0:" + seconds + ":" + body))
		r := httptest.NewRequest(http.MethodPost, "/in/team", strings.NewReader(body))
		r.Header.Set("X-Slack-Request-Timestamp", seconds)
		r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		got, err := source.Read(r, []byte(body), now)
		if err != nil || len(got.Events) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		text, err := provider(t, slack.Options{Token: token}).Render(delivery.Draft{Recipient: got.Events[0].ReplyTo, Payload: json.RawMessage(`{"text": "yes"}`)})
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}

// What no message can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	p := provider(t, slack.Options{Token: token})
	for payload, want := range map[string]string{
		`{}`:                                   "neither text nor blocks",
		`{"text": " \n"}`:                      "neither text nor blocks",
		`{"text": 7}`:                          "the payload's text is not what chat.postMessage takes",
		`{"text": "canary", "channel": "C12"}`: "the payload is no JSON object of text",
		`{"text": "canary", "metadata": {}}`:   "the payload is no JSON object of text",
		`["canary"]`:                           "is not what chat.postMessage takes",
		`{"blocks": {"type": "canary"}}`:       "blocks are no array",
		`{"blocks": []}`:                       "blocks are no array",
		`{"blocks": [` + strings.Repeat(`{},`, 50) + `{}]}`: "over 50 blocks",
		`{"text": "` + strings.Repeat("ü", 40001) + `"}`:    "the text has over 40000 characters",
	} {
		_, err := p.Render(delivery.Draft{Recipient: "C024BE91L", Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40s: %v", payload, err)
		}
	}
	if _, err := p.Render(delivery.Draft{Recipient: "C024BE91L", Payload: json.RawMessage(`{"text": "` + strings.Repeat("ü", 40000) + `"}`)}); err != nil {
		t.Errorf("40000 characters: %v", err)
	}
	for _, to := range []string{"", "#general", "general", "C1", "c024be91l", "C024BE91L/", "C024BE91L/x", "C024BE91L/1.2/3", "X024BE91L", "C024BE91L ", "T1:U024BE7LH", "T024BE91L:C024BE91L", "T024BE91L:U024BE7LH/1.2", "t024be91l:u024be7lh"} {
		if _, err := p.Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil {
			t.Errorf("%q is taken for a channel", to)
		}
	}
}

// A person is written to as they are known, by team and user: a user alone may be another
// team's.
func TestRender_APersonHasATeam(t *testing.T) {
	t.Parallel()
	p := provider(t, slack.Options{Token: token})
	text := json.RawMessage(`{"text": "hello"}`)
	if got, err := p.Render(delivery.Draft{Recipient: "T024BE91L:U024BE7LH", Payload: text}); err != nil || !strings.HasPrefix(string(got), `{"channel":"U024BE7LH","text"`) {
		t.Errorf("%s, %v", got, err)
	}
	for _, to := range []string{"U024BE7LH", "W024BE7LH", "U024BE7LH/1503435956.000247"} {
		if _, err := p.Render(delivery.Draft{Recipient: to, Payload: text}); err == nil || !strings.Contains(err.Error(), "TEAM:USER") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// Slack's errors, each for what it is.
func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for answer, c := range map[string]struct {
		want delivery.Status
		says string
	}{
		`{"ok":false,"error":"is_archived"}`:                  {delivery.Failed, "is_archived"},
		`{"ok":false,"error":"msg_too_long"}`:                 {delivery.Failed, "msg_too_long"},
		`{"ok":false,"error":"Canary in words"}`:              {delivery.Failed, "an error without a name"},
		`{"ok":true,"channel":"C1","ts":"1503435956.000247"}`: {delivery.Sent, ""},
	} {
		h := newHarness(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		t.Cleanup(server.Close)
		h.Provider = provider(t, slack.Options{Token: token, Endpoint: server.URL})
		e := providertest.Deliver(t, h)
		if e.Status != c.want || !strings.Contains(e.LastError, c.says) || strings.Contains(e.LastError, "Canary") {
			t.Errorf("%s: %s with %q", answer, e.Status, e.LastError)
		}
		if c.want == delivery.Sent && e.ProviderMessageID != "1503435956.000247" {
			t.Errorf("message id %q", e.ProviderMessageID)
		}
	}
}

// An account is known by its token without telling it, and may be named.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	account := func(opts slack.Options) string { return provider(t, opts).Capabilities().Account }
	one, other := account(slack.Options{Token: token}), account(slack.Options{Token: token + "2"})
	if one == other || one != account(slack.Options{Token: token}) || strings.Contains(token, one) || account(slack.Options{Token: token, Account: other}) != other {
		t.Errorf("%q and %q", one, other)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "canary", "xoxb canary"} {
		_, err := slack.New(slack.Options{Token: bad, Endpoint: "ftp://u:canary@x"})
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "Token") || !strings.Contains(err.Error(), "Endpoint") || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&catcher.Slack{Mailbox: &catcher.Mailbox{}, Token: token})
	defer server.Close()
	for given, ok := range map[string]bool{token: true, "xoxb-wrong": false} {
		checks := provider(t, slack.Options{Token: given, Endpoint: server.URL}).Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != ok || strings.Contains(checks[1].Info, given) {
			t.Errorf("%+v", checks)
		}
		if ok && checks[1].Info != "it is of dev in Dev" {
			t.Errorf("%+v", checks[1])
		}
	}
}
