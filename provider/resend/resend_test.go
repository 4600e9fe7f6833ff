package resend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/resend"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const apiKey = "re_test_6fZ1secret"

var payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "hello", Text: "canary-7f3a"}.JSON()

func newHarness(t *testing.T) providertest.Harness { return harness(t, 1) }

func harness(t *testing.T, batch int) providertest.Harness {
	const refused = "nobody@example.net"
	box := &catcher.Mailbox{}
	fake := &catcher.Resend{Mailbox: box, APIKey: apiKey, Refuses: refused}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	p, err := resend.New(resend.Options{APIKey: apiKey, Endpoint: url, Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return providertest.Harness{
		Provider: p, Channel: delivery.Email, Recipient: "bob@example.org", Sandbox: "me@example.com", Payload: payload, Secrets: []string{apiKey},
		Accepted:   box.Raw,
		Recipients: box.Recipients,
		Calls:      fake.Faults.Count,
		Fail:       func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized, providertest.ShortAccepted,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up, RefusedRecipient: refused,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

func TestConformance_Batches(t *testing.T) {
	t.Parallel()
	providertest.RunBatches(t, func(t *testing.T) providertest.Harness { return harness(t, resend.MostBatch) })
}

// What was sent under its key with other bytes, as a dump of a queue is restored that has been
// sent since, is in doubt: nothing says that it was not sent, and it is not sent again.
func TestContract_D5_AKeyThatAnotherRequestHas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.New(t)
	box := &catcher.Mailbox{}
	fake := &catcher.Resend{Mailbox: box, APIKey: apiKey}
	var calls atomic.Int64
	url, _ := providertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			before := r.Clone(ctx)
			body, _ := io.ReadAll(r.Body)
			before.Body = io.NopCloser(strings.NewReader(strings.Replace(string(body), "canary", "before", 1)))
			fake.ServeHTTP(httptest.NewRecorder(), before)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		fake.ServeHTTP(w, r)
	}))
	p, err := resend.New(resend.Options{APIKey: apiKey, Endpoint: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	l, err := delivery.New(ctx, db.Pool(pgtest.Worker), delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"p": {Provider: p}}, PollInterval: 20 * time.Millisecond, BaseRetry: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Register(ctx); err != nil {
		t.Fatal(err)
	}
	made, err := delivery.Reserve(ctx, db.Pool(pgtest.App), delivery.Delivery{Channel: delivery.Email, Provider: "p", Recipient: "bob@example.org", Payload: payload, Key: delivery.NewKey("mail")})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	repeated := pgtest.Wait(pgtest.Patience, func() bool { return calls.Load() > 1 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	e, _, err := l.Show(ctx, made[0].ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if e.Status != delivery.Sending || e.DoubtSince == nil || !repeated || len(box.Raw()) != 1 {
		t.Errorf("it is %s, in doubt since %v, for %q%s; repeated %t, %d e-mails", e.Status, e.DoubtSince, e.DoubtReason, e.LastError, repeated, len(box.Raw()))
	}
}

// A batch whose key is in use may have been taken: somebody on the way has sent the
// request twice. It is repeated under that key, and never made anew.
func TestSendBatch_TheKeyIsInUse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"concurrent_idempotent_requests", "invalid_idempotent_request"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			box := &catcher.Mailbox{}
			fake := &catcher.Resend{Mailbox: box, APIKey: apiKey}
			var batches atomic.Int64
			url, _ := providertest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/emails/batch" || batches.Add(1) > 1 {
					fake.ServeHTTP(w, r)
					return
				}
				fake.ServeHTTP(httptest.NewRecorder(), r)
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"statusCode": 409, "name": "`+name+`"}`)
			}))
			h := harness(t, resend.MostBatch)
			p, err := resend.New(resend.Options{APIKey: apiKey, Endpoint: url, Batch: resend.MostBatch})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			h.Provider = p
			providertest.DeliverMany(t, h, 8)
			if n := len(box.Raw()); n != 8 || batches.Load() < 2 {
				t.Errorf("%d e-mails were sent in %d batches, want 8 and a repeat", n, batches.Load())
			}
		})
	}
}

// The bytes are those of Resend's documentation; testdata names the source.
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
	p, err := resend.New(resend.Options{APIKey: apiKey, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
	}
	e := delivery.EmailPayload{
		ReplyTo: "onboarding@resend.dev", Subject: "hello world", Text: "it works!", HTML: "<p>it works!</p>",
		Headers: map[string]string{"X-Entity-Ref-ID": "123"},
	}
	got, err := p.Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "delivered@resend.dev", Payload: e.JSON()})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	enc := json.NewEncoder(&want)
	if err := enc.Encode(fixture.Body); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(want.String()), string(got)); diff != "" {
		t.Error(diff)
	}
}

// An account is known by its key without telling it, and may be named.
func TestCapabilities_Account(t *testing.T) {
	t.Parallel()
	account := func(opts resend.Options) string {
		p, err := resend.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		return p.Capabilities().Account
	}
	one, other := account(resend.Options{APIKey: apiKey}), account(resend.Options{APIKey: apiKey + "2"})
	if one == other || one != account(resend.Options{APIKey: apiKey}) || strings.Contains(apiKey, one) || account(resend.Options{APIKey: apiKey, Account: other}) != other {
		t.Errorf("%q and %q", one, other)
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := resend.New(resend.Options{APIKey: "with space", Endpoint: "ftp://u:p@x", From: "no"})
	for _, want := range []string{"Endpoint", "APIKey", "From"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "with space") || strings.Contains(err.Error(), "u:p") {
		t.Errorf("repeats a value: %v", err)
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	fake := &catcher.Resend{Mailbox: &catcher.Mailbox{}, APIKey: apiKey}
	server := httptest.NewServer(fake)
	defer server.Close()
	for key, ok := range map[string]bool{apiKey: true, "re_wrong": false} {
		p, err := resend.New(resend.Options{APIKey: key, Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		checks := p.Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != ok || strings.Contains(checks[1].Info, key) {
			t.Errorf("%+v", checks)
		}
		_ = p.Close()
	}
}

// A request that was stored under other rules, or by a version that had none, is
// refused for good, and says why; nobody is called.
func TestSend_StoredHeaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	lax, err := resend.New(resend.Options{APIKey: apiKey, HeadersAllowed: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	h.Provider = stored{Provider: h.Provider, render: lax}
	h.Payload = delivery.EmailPayload{From: "Ann <ann@example.com>", Subject: "Hello", Text: "canary-7f3a", Headers: map[string]string{"X-SMTPAPI": "{}", "References": "<1@example.com>"}}.JSON()
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Failed || !strings.Contains(e.LastError, "X-S") || !strings.Contains(e.LastError, "headers_allowed") || len(h.Accepted()) != 0 {
		t.Errorf("%s with %q", e.Status, e.LastError)
	}
}

// stored is a provider whose requests another one has made.
type stored struct {
	delivery.Provider
	render delivery.Provider
}

func (s stored) Render(d delivery.Draft) ([]byte, error) { return s.render.Render(d) }

// Files, copies and several addresses to answer to stand where Resend's documentation has them;
// testdata names the source.
func TestRender_AttachmentsFixture(t *testing.T) {
	t.Parallel()
	p, err := resend.New(resend.Options{APIKey: apiKey, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
	}
	providertest.RunAttachments(t, p, "testdata/send_attachments.json")
}
