package bluesky_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const (
	account, sandbox   = "shop.example.com", "test.example.com"
	password, testPass = "abcd-6fZ1-secr-etxx", "efgh-7gY2-secr-etxx"
)

func options(endpoint string) bluesky.Options {
	return bluesky.Options{Account: account, Password: password, Sandbox: sandbox, SandboxPassword: testPass, Endpoint: endpoint}
}

func provider(t *testing.T, opts bluesky.Options) *bluesky.Provider {
	t.Helper()
	p, err := bluesky.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func newFake() *catcher.Bluesky {
	return &catcher.Bluesky{Mailbox: &catcher.Mailbox{}, Passwords: map[string]string{account: password, sandbox: testPass}}
}

func newHarness(t *testing.T) providertest.Harness {
	h, _ := harness(t)
	return h
}

func harness(t *testing.T) (h providertest.Harness, fake *catcher.Bluesky) {
	fake = newFake()
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: provider(t, options(url)), Channel: delivery.Social, Recipient: account, Sandbox: sandbox,
		Payload: json.RawMessage(`{"text": "canary-7f3a"}`), Secrets: []string{password, testPass},
		Accepted: fake.Mailbox.Raw, Recipients: fake.Mailbox.Recipients, Calls: fake.Faults.Count,
		Fail: func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}, fake
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

// What was posted though nobody heard of it is found by its key, where the repeat hears 500 and
// where it is refused.
func TestSend_ExistsAlready(t *testing.T) {
	t.Parallel()
	for _, second := range []catcher.Fault{catcher.None, catcher.ForGood} {
		h, fake := harness(t)
		fake.Faults.Set(func(n int) catcher.Fault {
			switch n {
			case 1:
				return catcher.ResetAccepted
			case 2:
				return second
			}
			return catcher.None
		})
		e := providertest.Deliver(t, h)
		list := fake.Mailbox.List()
		if e.Status != delivery.Posted || len(list) != 1 || e.ProviderMessageID != list[0].ID || e.Attempts != 2 {
			t.Errorf("%q: %s after %d attempts, %d posted: %s %s", second, e.Status, e.Attempts, len(list), e.LastError, e.DoubtReason)
		}
	}
}

// A delivery whose key was another's, which the ledger has forgotten, is posted: that post is not its own.
func TestSend_AKeyThatWasForgotten(t *testing.T) {
	t.Parallel()
	h, fake := harness(t)
	for n := 1; n <= 2; n++ { // each in a ledger of its own, under the same key
		if e := providertest.Deliver(t, h); e.Status != delivery.Posted || e.Attempts != 1 || len(fake.Mailbox.List()) != n {
			t.Errorf("%d: %s at attempt %d, %d posted: %s", n, e.Status, e.Attempts, len(fake.Mailbox.List()), e.LastError)
		}
	}
}

// A record under the delivery's key that says something else proves nothing.
func TestFind_AnotherText(t *testing.T) {
	t.Parallel()
	h, fake := harness(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".getRecord") {
			q := r.URL.Query()
			_, _ = fmt.Fprintf(w, `{"uri": "at://did:web:%s/%s/%s", "value": {"text": "something else"}}`, q.Get("repo"), q.Get("collection"), q.Get("rkey"))
			return
		}
		fake.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h.Provider = provider(t, options(server.URL))
	fake.Faults.Set(func(n int) catcher.Fault {
		if n == 1 {
			return catcher.ResetBefore
		}
		return catcher.ForGood
	})
	if e := providertest.Deliver(t, h); e.HeldAt == nil || e.SentAt != nil {
		t.Errorf("%s, %s", e.Status, e.ProviderMessageID)
	}
}

// Many posts are one session: it is kept while it is good, and refreshed when it is not.
func TestSessions(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"long": 0, "short": 10 * time.Second} {
		h, fake := harness(t)
		fake.Life = life
		providertest.DeliverMany(t, h, 12)
		n, refreshed := fake.Sessions()
		if n != 1 || (refreshed > 0) != (life > 0) || len(fake.Mailbox.List()) != 12 {
			t.Errorf("%s: signed in %d times, refreshed %d times, for %d posts", name, n, refreshed, len(fake.Mailbox.List()))
		}
		// The server ends it before its time.
		fake.Expire()
		if e := providertest.Deliver(t, h); e.Status != delivery.Posted {
			t.Errorf("%s: %s: %s", name, e.Status, e.LastError)
		}
		if n, again := fake.Sessions(); n != 1 || again == refreshed {
			t.Errorf("%s: signed in %d times, refreshed %d times", name, n, again)
		}
	}
}

// After the account was refused nobody tries to sign in again and again: it is an outage, in
// which nothing is lost.
func TestSessions_Refused(t *testing.T) {
	t.Parallel()
	fake := newFake()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	opts := options(server.URL)
	opts.Password = "wrong"
	p := provider(t, opts)
	for range 5 {
		if checks := p.Check(t.Context()); len(checks) != 3 || !checks[0].OK || checks[1].OK || !checks[2].OK {
			t.Errorf("%+v", checks)
		}
	}
	if n, _ := fake.Sessions(); n != 2 { // once for each account
		t.Errorf("tried to sign in %d times", n)
	}
}

// Another delivery has another rkey, whatever its key, all of them TIDs of the past.
func TestRender_RKey(t *testing.T) {
	t.Parallel()
	p := provider(t, options(""))
	tid, seen := regexp.MustCompile(`^2[234567abcdefghijklmnopqrstuvwxyz]{12}$`), map[string]bool{}
	for i := range 400 {
		var c struct{ RKey string }
		for range 2 {
			body, err := p.Render(delivery.Draft{ID: fmt.Sprint(i % 2), Key: fmt.Sprint("deed-", i/2), Recipient: account, Payload: json.RawMessage(`{"text": "hello"}`)})
			if err != nil || json.Unmarshal(body, &c) != nil || !tid.MatchString(c.RKey) {
				t.Fatalf("%s: %v", body, err)
			}
			seen[c.RKey] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d rkeys of 400 deliveries with 200 keys", len(seen))
	}
}

const full = `{"text": "héllo #world, see example.com and @bob", "langs": ["en", "pt-BR"], "link": {"uri": "https://example.com/", "title": "Example", "description": "A page"},
	"facets": [{"start": 7, "end": 13, "tag": "world"}, {"start": 19, "end": 30, "uri": "https://example.com/"}, {"start": 35, "end": 39, "did": "did:plc:bob"}]}`

// The bytes are those of the lexicons; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/create_record.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source string         `json:"source"`
		Body   map[string]any `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	const did = "did:plc:z72i7hdynmk6r22z27h6tvur"
	made := time.Date(2026, 3, 20, 9, 0, 0, 7e6, time.UTC)
	got, err := provider(t, bluesky.Options{Account: did, Password: password}).Render(delivery.Draft{At: made, ID: "d-1", Key: "deed-key", Recipient: did, Payload: json.RawMessage(full)})
	if err != nil {
		t.Fatal(err)
	}
	var is map[string]any
	if err := json.Unmarshal(got, &is); err != nil {
		t.Fatal(err)
	}
	record := is["record"].(map[string]any)
	if at := record["createdAt"]; at != "2026-03-20T09:00:00.007Z" {
		t.Errorf("created at %s", at)
	}
	record["createdAt"] = ""
	if diff := cmp.Diff(fixture.Body, is); diff != "" {
		t.Error(diff)
	}
}

// What goes to the sandbox mentions nobody; the provider's own account is none.
func TestRender_Sandbox(t *testing.T) {
	t.Parallel()
	p := provider(t, options(""))
	got, err := p.Render(delivery.Draft{Key: "deed-key", Recipient: sandbox, SandboxFor: account, Payload: json.RawMessage(full)})
	if err != nil || strings.Contains(string(got), "did:plc:bob") || !strings.Contains(string(got), "#link") || !strings.Contains(string(got), `"repo":"`+sandbox+`"`) {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := p.Render(delivery.Draft{Key: "deed-key", Recipient: account, SandboxFor: account, Payload: json.RawMessage(full)}); err == nil || !strings.Contains(err.Error(), "public") {
		t.Error(err)
	}
}

// What no post can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	p := provider(t, options(""))
	facet := func(of string) string { return `{"text": "canary", "facets": [{` + of + `}]}` }
	for payload, want := range map[string]string{
		`{}`:                                     "has no text",
		`{"text": " \n"}`:                        "has no text",
		`{"text": 7}`:                            "the payload's text is not what a post has",
		`["canary"]`:                             "is not what a post has",
		`{"text": "canary", "reply": {}}`:        "the payload is no JSON object of text",
		`{"text": "canary", "createdAt": "now"}`: "the payload is no JSON object of text",
		`{"text": "` + strings.Repeat("é", 301) + `"}`:                          "over 300 characters or 3000 bytes",
		`{"text": "` + strings.Repeat("👩‍👩‍👧", 167) + `"}`:                      "over 300 characters or 3000 bytes",
		`{"text": "canary", "langs": ["en", "de", "fr", "it"]}`:                 "over three langs",
		`{"text": "canary", "link": {"uri": "javascript:canary"}}`:              "link has no http or https uri",
		facet(`"start": 0, "end": 7, "tag": "canary"`):                          "facets[0] is not a part of the text",
		facet(`"start": 3, "end": 3, "tag": "canary"`):                          "facets[0] is not a part of the text",
		facet(`"start": 0, "end": 6`):                                           "facets[0] is not one of",
		facet(`"start": 0, "end": 6, "tag": "canary", "uri": "https://canary"`): "facets[0] is not one of",
		facet(`"start": 0, "end": 6, "uri": "canary"`):                          "facets[0] is not one of",
		facet(`"start": 0, "end": 6, "did": "canary.example.com"`):              "facets[0] is not one of",
	} {
		_, err := p.Render(delivery.Draft{Recipient: account, Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.60s: %v", payload, err)
		}
	}
	for _, good := range []string{strings.Repeat("é", 300), strings.Repeat("👩‍👩‍👧", 166)} {
		if _, err := p.Render(delivery.Draft{Recipient: account, Payload: json.RawMessage(`{"text": "` + good + `"}`)}); err != nil {
			t.Errorf("%d bytes: %v", len(good), err)
		}
	}
	for _, to := range []string{"", "shop", "@shop.example.com", "canary.example.com", account + " ", "did:plc:canary"} {
		if _, err := p.Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q is taken for an account of the provider's: %v", to, err)
		}
	}
}

// What a server answers, each for what it is.
func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for answer, c := range map[string]struct {
		code int
		want delivery.Status
		says string
	}{
		`{"error": "InvalidRequest", "message": "Canary"}`: {http.StatusBadRequest, delivery.Failed, "status 400, InvalidRequest"},
		`{"error": "Canary in words"}`:                     {http.StatusBadRequest, delivery.Failed, "status 400"},
		`Canary`:                                           {http.StatusRequestEntityTooLarge, delivery.Failed, "status 413"},
		`{"error": "ConcurrentWrites"}`:                    {http.StatusBadRequest, delivery.Dead, "status 400, ConcurrentWrites"},
	} {
		h, fake := harness(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, ".createRecord") {
				fake.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(answer))
		}))
		t.Cleanup(server.Close)
		h.Provider = provider(t, options(server.URL))
		e := providertest.Deliver(t, h)
		if e.Status != c.want || !strings.Contains(e.LastError, c.says) || strings.Contains(e.LastError, "Canary") {
			t.Errorf("%s: %s with %q", answer, e.Status, e.LastError)
		}
	}
}

// The account is known by its name alone: a new password is the same account.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	opts := options("")
	one := provider(t, opts).Capabilities()
	opts.Password, opts.Account = "another", strings.ToUpper(account)
	if other := provider(t, opts).Capabilities(); one.Account != account || other.Account != account || one.KeyWindow != bluesky.Window {
		t.Errorf("%+v and %+v", one, other)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := bluesky.New(bluesky.Options{Endpoint: "ftp://u:canary@x", Account: "@canary.example.com", Sandbox: "canary"})
	for _, want := range []string{"Endpoint", "Account", "Password", "Sandbox is", "go together"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	if _, err := bluesky.New(bluesky.Options{Account: account, Password: password, Sandbox: strings.ToUpper(account), SandboxPassword: password}); err == nil || !strings.Contains(err.Error(), "public") {
		t.Error(err)
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newFake())
	defer server.Close()
	for given, ok := range map[string]bool{password: true, "wrong-1234": false} {
		opts := options(server.URL)
		opts.Password = given
		checks := provider(t, opts).Check(t.Context())
		if len(checks) != 3 || !checks[0].OK || checks[1].OK != ok || !checks[2].OK || strings.Contains(checks[1].Info, given) {
			t.Errorf("%+v", checks)
		}
	}
}
