package ses_test

import (
	"bytes"
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
	"github.com/deedhq/deed/provider/ses"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const (
	region       = "eu-central-1"
	accessKey    = "AKIDEXAMPLE"
	secretKey    = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	sessionToken = "AQoDYXdzEJr/session//"
)

var payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "hello", Text: "canary-7f3a"}.JSON()

func provider(t *testing.T, opts ses.Options) *ses.Provider {
	t.Helper()
	p, err := ses.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func keys() ses.Options {
	return ses.Options{Region: region, AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: sessionToken}
}

func newHarness(t *testing.T) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.SES{Mailbox: box, AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: sessionToken, Region: region}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	opts := keys()
	opts.Endpoint = url
	return providertest.Harness{
		Provider: provider(t, opts), Channel: delivery.Email, Recipient: "bob@example.org", Sandbox: "me@example.com", Payload: payload,
		Secrets:  []string{accessKey, secretKey, sessionToken},
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

// The bytes are those of Amazon's documentation; testdata names the source.
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
	opts := keys()
	opts.From, opts.ConfigurationSet = "Jörg <sender@example.com>", "events"
	e := delivery.EmailPayload{
		ReplyTo: "Shop <reply@example.com>", Subject: "Grüße", Text: "it works!", HTML: "<p>it works!</p>",
		Headers: map[string]string{"References": "<1@example.com>", "List-Unsubscribe": "<https://example.com/u/1>"},
	}
	got, err := provider(t, opts).Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "recipient@example.com", Payload: e.JSON()})
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := json.Compact(&want, fixture.Body); err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(got))
	if diff := cmp.Diff(want.String(), plain); diff != "" {
		t.Error(diff)
	}
}

// What SES takes no e-mail of is told beforehand, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	good := delivery.EmailPayload{From: "ann@example.com", Subject: "hello", Text: "canary"}
	for want, change := range map[string]func(e *delivery.EmailPayload, d *delivery.Draft){
		"recipient has more than ASCII":          func(_ *delivery.EmailPayload, d *delivery.Draft) { d.Recipient = "canary@exämple.org" },
		"from has an address of more than ASCII": func(e *delivery.EmailPayload, _ *delivery.Draft) { e.From = "Canary <canary@exämple.org>" },
		"reply_to has an address of more than":   func(e *delivery.EmailPayload, _ *delivery.Draft) { e.ReplyTo = "cänary@example.org" },
		`header "References" is not what SES`: func(e *delivery.EmailPayload, _ *delivery.Draft) {
			e.Headers = map[string]string{"References": "cänary"}
		},
		`header "Comments" is not what SES takes:`: func(e *delivery.EmailPayload, _ *delivery.Draft) {
			e.Headers = map[string]string{"Comments": strings.Repeat("canary", 146)}
		},
		`header "Keywords" is not what SES takes:`: func(e *delivery.EmailPayload, _ *delivery.Draft) { e.Headers = map[string]string{"Keywords": ""} },
		`header "X-SES-MESSAGE-TAGS" may command`: func(e *delivery.EmailPayload, _ *delivery.Draft) {
			e.Headers = map[string]string{"X-SES-MESSAGE-TAGS": "a=canary"}
		},
		"neither text nor html": func(e *delivery.EmailPayload, _ *delivery.Draft) { e.Text = "" },
	} {
		e, d := good, delivery.Draft{Recipient: "bob@example.org"}
		change(&e, &d)
		d.Payload = e.JSON()
		if _, err := provider(t, keys()).Render(d); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "anary") {
			t.Errorf("lacks %q: %v", want, err)
		}
	}
}

// A request that was stored under other rules, or by a version that had none, is
// refused for good, and says why; nobody is called.
func TestSend_StoredHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	opts := keys()
	opts.HeadersAllowed = []string{"*"}
	h.Provider = stored{Provider: h.Provider, render: provider(t, opts)}
	h.Payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "Hello", Text: "canary-7f3a", Headers: map[string]string{"X-SES-CONFIGURATION-SET": "other"}}.JSON()
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Failed || !strings.Contains(e.LastError, "X-SES") || !strings.Contains(e.LastError, "headers_allowed") || len(h.Accepted()) != 0 {
		t.Errorf("%s with %q", e.Status, e.LastError)
	}
}

// stored is a provider whose requests another one has made.
type stored struct {
	delivery.Provider
	render delivery.Provider
}

func (s stored) Render(d delivery.Draft) ([]byte, error) { return s.render.Render(d) }

// An account is known by its key and region without telling the key, and may be named.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	account := func(change func(*ses.Options)) string {
		opts := keys()
		change(&opts)
		return provider(t, opts).Capabilities().Account
	}
	one := account(func(*ses.Options) {})
	other, elsewhere := account(func(o *ses.Options) { o.AccessKeyID += "2" }), account(func(o *ses.Options) { o.Region = "eu-west-1" })
	rotated := account(func(o *ses.Options) { o.SecretAccessKey, o.SessionToken = "new", "" })
	if one == other || one == elsewhere || one != rotated || strings.Contains(one, accessKey) || account(func(o *ses.Options) { o.Account = other }) != other {
		t.Errorf("%q, %q, %q, %q", one, other, elsewhere, rotated)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := ses.New(ses.Options{
		Region: "canary", SecretAccessKey: "canary x", SessionToken: "canary\n", ConfigurationSet: "canary x", Endpoint: "ftp://u:canary@x", From: "canary", HeadersAllowed: []string{"From"},
	})
	for _, want := range []string{"Region", "AccessKeyID", "SecretAccessKey", "SessionToken", "ConfigurationSet", "Endpoint", "From", "HeadersAllowed"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "option "+want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
}

// A dry run says what it looked at, and what is wrong: a secret that is not the key's, a
// region of others, an account that is paused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*ses.Options, *catcher.SES)
		ok     []bool
		info   string
	}{
		"well":               {func(*ses.Options, *catcher.SES) {}, []bool{true, true, true}, "it may send 200 a day and 1 a second, and being in SES's sandbox"},
		"another secret":     {func(o *ses.Options, _ *catcher.SES) { o.SecretAccessKey = "canary" }, []bool{true, false}, "status 403 InvalidSignatureException; look at the access key"},
		"another key":        {func(o *ses.Options, _ *catcher.SES) { o.AccessKeyID = "canary" }, []bool{true, false}, "status 403 UnrecognizedClientException; look"},
		"without its token":  {func(o *ses.Options, _ *catcher.SES) { o.SessionToken = "" }, []bool{true, false}, "status 403 UnrecognizedClientException; look"},
		"another region":     {func(o *ses.Options, _ *catcher.SES) { o.Region = "us-east-1" }, []bool{true, false}, "status 403 InvalidSignatureException; look"},
		"paused":             {func(_ *ses.Options, s *catcher.SES) { s.Paused = true }, []bool{true, true, false}, "its sending is paused"},
		"who may not see it": {func(_ *ses.Options, s *catcher.SES) { s.MayOnlySend = true }, []bool{true, true}, "they may not ses:GetAccount"},
	} {
		fake := &catcher.SES{Mailbox: &catcher.Mailbox{}, AccessKeyID: accessKey, SecretAccessKey: secretKey, SessionToken: sessionToken, Region: region}
		server := httptest.NewServer(fake)
		opts := keys()
		opts.Endpoint = server.URL
		c.change(&opts, fake)
		checks := provider(t, opts).Check(t.Context())
		server.Close()
		var ok []bool
		for _, one := range checks {
			ok = append(ok, one.OK)
		}
		if diff := cmp.Diff(c.ok, ok); diff != "" || !strings.HasPrefix(checks[len(checks)-1].Info, c.info) {
			t.Errorf("%s: %+v", name, checks)
		}
	}
}

// Files, copies and several addresses to answer to stand where Amazon's documentation has them;
// testdata names the source.
func TestRender_AttachmentsFixture(t *testing.T) {
	t.Parallel()
	p, err := ses.New(ses.Options{Region: region, AccessKeyID: accessKey, SecretAccessKey: secretKey, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
	}
	providertest.RunAttachments(t, p, "testdata/send_attachments.json")
}
