package mastodon_test

import (
	"encoding/json"
	"fmt"
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
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const (
	account, sandbox = "@shop@mastodon.example", "@test@mastodon.example"
	token, testToken = "shopToken6fZ1secret", "testToken7gY2secret"
)

func options(endpoint string) mastodon.Options {
	return mastodon.Options{Endpoint: endpoint, Account: account, Token: token, Sandbox: sandbox, SandboxToken: testToken}
}

func provider(t *testing.T, opts mastodon.Options) *mastodon.Provider {
	t.Helper()
	p, err := mastodon.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newFake() *catcher.Mastodon {
	return &catcher.Mastodon{Mailbox: &catcher.Mailbox{}, Tokens: map[string]string{token: "shop", testToken: "test"}, Host: "mastodon.example"}
}

// impatient repeats sooner than an instance would be done.
type impatient struct{ *mastodon.Provider }

func (p impatient) Capabilities() delivery.Capabilities {
	c := p.Provider.Capabilities()
	c.SettleDelay = 50 * time.Millisecond
	return c
}

func newHarness(t *testing.T) providertest.Harness {
	h, _, _ := harness(t)
	return h
}

func harness(t *testing.T) (h providertest.Harness, fake *catcher.Mastodon, url string) {
	fake = newFake()
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: impatient{provider(t, options(url))}, Channel: delivery.Social, Recipient: account, Sandbox: sandbox,
		Payload: json.RawMessage(`{"text": "canary-7f3a"}`), Secrets: []string{token, testToken},
		Accepted: fake.Mailbox.Raw, Recipients: fake.Mailbox.Recipients, Calls: fake.Faults.Count,
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

// write posts as somebody else with the account's token would.
func write(t *testing.T, url, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/v1/statuses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	_ = answer.Body.Close()
}

// doubtful has the first call fail in this way, and its repeat be refused: what is left is to
// look.
func doubtful(fake *catcher.Mastodon, how catcher.Fault) {
	fake.Faults.Set(func(n int) catcher.Fault {
		switch n {
		case 1:
			return how
		case 2:
			return catcher.ForGood
		}
		return catcher.None
	})
}

// What the instance repeats no more is found among all that the account has posted, by what
// it says.
func TestFind_AmongOthers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"canary-7f3a", `"canary-7f3a" & <b>more</b>\r\n\r\n\r\n  with #tags, @test\nand https://example.com/a?b=c&d=e `} {
		h, fake, url := harness(t)
		h.Payload = json.RawMessage(fmt.Sprintf(`{"text": %q, "spoiler_text": "careful"}`, strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(text)))
		for i := range 3 {
			write(t, url, fmt.Sprintf(`{"status": "another %d"}`, i))
		}
		write(t, url, `{"status": "canary-7f3a"}`) // without the spoiler
		doubtful(fake, catcher.ResetAccepted)
		e := providertest.Deliver(t, h)
		list := fake.Mailbox.List()
		if e.SentAt == nil || e.Status != delivery.Posted || len(list) != 5 || e.ProviderMessageID != list[4].ID {
			t.Errorf("%q: %s, %d posted: %s %s", text, e.Status, len(list), e.LastError, e.DoubtReason)
		}
	}
}

// Two that say the same are none, and neither is one that says something else, or that HTML
// does not show as it was.
func TestFind_None(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how     catcher.Fault
		payload string
		before  []string
	}{
		"two alike":        {catcher.ResetAccepted, `{"text": "canary-7f3a"}`, []string{`{"status": "canary-7f3a"}`}},
		"never posted":     {catcher.ResetBefore, `{"text": "canary-7f3a"}`, []string{`{"status": "canary"}`}},
		"another spoiler":  {catcher.ResetBefore, `{"text": "canary-7f3a"}`, []string{`{"status": "canary-7f3a", "spoiler_text": "careful"}`}},
		"another audience": {catcher.ResetBefore, `{"text": "canary-7f3a", "visibility": "public"}`, []string{`{"status": "canary-7f3a", "visibility": "unlisted"}`}},
		"a reply":          {catcher.ResetBefore, `{"text": "canary-7f3a"}`, []string{`{"status": "canary-7f3a", "in_reply_to_id": "1"}`}},
		"a mention":        {catcher.ResetAccepted, `{"text": "canary-7f3a for @bob@example.org"}`, nil},
		"no text":          {catcher.ResetAccepted, `{"spoiler_text": "canary-7f3a", "media_ids": ["1"]}`, nil},
	} {
		h, fake, url := harness(t)
		h.Payload = json.RawMessage(c.payload)
		for _, body := range c.before {
			write(t, url, body)
		}
		doubtful(fake, c.how)
		if e := providertest.Deliver(t, h); e.HeldAt == nil || e.SentAt != nil {
			t.Errorf("%s: %s, %s", name, e.Status, e.ProviderMessageID)
		}
	}
}

// The bytes are those of Mastodon's documentation; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/post_status.json")
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
	got, err := provider(t, options("https://mastodon.example")).Render(delivery.Draft{Recipient: "@Shop@mastodon.example", Payload: json.RawMessage(
		`{"text": "test content", "visibility": "unlisted", "language": "en", "spoiler_text": "a test", "sensitive": true, "in_reply_to_id": "103254962155278888", "media_ids": ["22345792"]}`)})
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

// What goes to the sandbox is seen by its account alone, and calls nobody by name.
func TestRender_Sandbox(t *testing.T) {
	t.Parallel()
	p := provider(t, options("https://mastodon.example"))
	for payload, want := range map[string]string{
		`{"text": "@bob@example.org, hello", "visibility": "public", "spoiler_text": "for @bob", "in_reply_to_id": "1", "media_ids": ["2"]}`: `{"status":"＠bob＠example.org, hello","visibility":"direct","spoiler_text":"for ＠bob"}`,
		`{"media_ids": ["2"]}`: `{"status":"(media)","visibility":"direct"}`,
	} {
		got, err := p.Render(delivery.Draft{Recipient: sandbox, SandboxFor: account, Payload: json.RawMessage(payload)})
		if err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	// The account itself will do, too.
	own, err := mastodon.New(mastodon.Options{Endpoint: "https://mastodon.example", Account: account, Token: token, Sandbox: account})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := own.Render(delivery.Draft{Recipient: account, SandboxFor: account, Payload: json.RawMessage(`{"text": "hello"}`)}); err != nil || !strings.Contains(string(got), `"direct"`) {
		t.Errorf("%s, %v", got, err)
	}
}

// What no status can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	p := provider(t, options("https://mastodon.example"))
	for payload, want := range map[string]string{
		`{}`:              "neither text nor media_ids",
		`{"text": " \n"}`: "neither text nor media_ids",
		`{"text": 7}`:     "the payload's text is not what a status has",
		`["canary"]`:      "is not what a status has",
		`{"text": "canary", "scheduled_at": "2030-01-01T00:00:00Z"}`:         "the payload is no JSON object of text",
		`{"text": "canary", "status": "canary"}`:                             "the payload is no JSON object of text",
		`{"text": "hello", "visibility": "canary"}`:                          "the payload's visibility is none of",
		`{"text": "` + strings.Repeat("c", 499) + `", "spoiler_text": "ca"}`: "over 500 characters together",
	} {
		_, err := p.Render(delivery.Draft{Recipient: account, Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40s: %v", payload, err)
		}
	}
	for _, to := range []string{"", "shop", "@shop", "shop@mastodon.example", "@canary@mastodon.example", account + " ", "@shop@elsewhere.example"} {
		if _, err := p.Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q is taken for an account of the provider's: %v", to, err)
		}
	}
}

// A link counts as 23 characters, and of a mention its name, as an instance counts them.
func TestRender_Length(t *testing.T) {
	t.Parallel()
	p := provider(t, options("https://mastodon.example"))
	for text, ok := range map[string]bool{
		strings.Repeat("é", 500): true,
		strings.Repeat("é", 501): false,
		strings.Repeat("x", 476) + " https://example.com/" + strings.Repeat("x", 300): true,
		strings.Repeat("x", 477) + " https://example.com/" + strings.Repeat("x", 300): false,
		strings.Repeat("x", 496) + " @bob@a-very-long-name.example.org":               false,
		strings.Repeat("x", 495) + " @bob@a-very-long-name.example.org":               true,
	} {
		payload, err := json.Marshal(mastodon.Payload{Text: text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Render(delivery.Draft{Recipient: account, Payload: payload}); (err == nil) != ok {
			t.Errorf("%.10s… of %d bytes: %v", text, len(text), err)
		}
	}
}

// What an instance answers, each for what it is.
func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for code, c := range map[int]struct {
		want delivery.Status
		says string
	}{
		http.StatusUnprocessableEntity: {delivery.Failed, "the instance takes no such status"},
		http.StatusNotFound:            {delivery.Failed, "no such status to reply to"},
		http.StatusBadRequest:          {delivery.Failed, "status 400"},
		http.StatusMovedPermanently:    {delivery.Failed, "the instance is elsewhere"},
		http.StatusOK:                  {delivery.Posted, ""},
	} {
		h := newHarness(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			if code == http.StatusOK {
				_, _ = w.Write([]byte(`{"id": "103254962155278888", "content": "<p>canary-7f3a</p>"}`))
				return
			}
			_, _ = w.Write([]byte(`{"error": "Canary in words"}`))
		}))
		t.Cleanup(server.Close)
		h.Provider = provider(t, options(server.URL))
		e := providertest.Deliver(t, h)
		if e.Status != c.want || !strings.Contains(e.LastError, c.says) || strings.Contains(e.LastError, "Canary") {
			t.Errorf("%d: %s with %q", code, e.Status, e.LastError)
		}
		if c.want == delivery.Posted && e.ProviderMessageID != "103254962155278888" {
			t.Errorf("message id %q", e.ProviderMessageID)
		}
	}
}

// The account is known by its name alone: a new token is the same account.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	opts := options("https://mastodon.example")
	one := provider(t, opts).Capabilities()
	opts.Token, opts.Account = "another", strings.ToUpper(account)
	if other := provider(t, opts).Capabilities(); one.Account != account || other.Account != account {
		t.Errorf("%q and %q", one.Account, other.Account)
	}
	if one.KeyWindow != mastodon.Window || mastodon.Window >= time.Hour {
		t.Errorf("a window of %s", one.KeyWindow)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := mastodon.New(mastodon.Options{Endpoint: "ftp://u:canary@x", Account: "canary@x", Token: "canary canary", Sandbox: "canary", SandboxToken: "canary\n", MaxCharacters: -1})
	for _, want := range []string{"Endpoint", "Account", "Token", "Sandbox is", "SandboxToken", "MaxCharacters"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	if _, err := mastodon.New(mastodon.Options{Endpoint: "https://x", Account: account, Token: token, Sandbox: sandbox}); err == nil || !strings.Contains(err.Error(), "go together") {
		t.Error(err)
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newFake())
	defer server.Close()
	for given, ok := range map[string]bool{token: true, "wrong": false, testToken: false} {
		opts := options(server.URL)
		opts.Token, opts.MaxCharacters = given, 400
		checks := provider(t, opts).Check(t.Context())
		if len(checks) != 4 || !checks[0].OK || checks[1].OK != ok || !checks[2].OK || !checks[3].OK || !strings.Contains(checks[3].Info, "set max_characters to 500") {
			t.Errorf("%+v", checks)
		}
		for _, one := range checks {
			if strings.Contains(one.Info, given) {
				t.Errorf("%+v", one)
			}
		}
	}
}
