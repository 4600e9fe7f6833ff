package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
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
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/webhook"
	sink "github.com/deedhq/deed/sink/webhook"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"

var payload = json.RawMessage(`{"type":"greeting","data":{"text":"canary-7f3a"}}`)

func harness(t *testing.T, drops time.Duration) providertest.Harness {
	box := &catcher.Mailbox{}
	receiver := &catcher.Receiver{
		Mailbox: box, DropRepeats: drops > 0,
		Verify: func(h http.Header, body []byte) error {
			return sink.Verify([]string{secret}, h, body, 0, time.Now())
		},
	}
	url, gate := providertest.Serve(t, receiver)
	t.Cleanup(receiver.Close)
	p, err := webhook.New(webhook.Options{Secret: secret, AllowHosts: []string{"127.0.0.1"}, DropsRepeats: drops})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return providertest.Harness{
		Provider: p, Channel: delivery.Webhook, Recipient: url + "/hook", Sandbox: url + "/sandbox", Payload: payload, Secrets: []string{secret},
		Accepted: box.Raw,
		Recipients: func() (list []string) {
			for _, m := range box.List() {
				list = append(list, url+m.To[0])
			}
			return list
		},
		Calls: receiver.Faults.Count,
		Fail:  func(how providertest.Fault, times int) { receiver.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}
}

// The body of an answer means nothing to a webhook: any 2xx is a yes.
var tell = map[providertest.Fault]providertest.Meaning{providertest.Garbage: providertest.Accepts}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness { return harness(t, 0) }, tell)
}

// Receivers that promise to drop repeats are a provider with a key.
func TestConformance_ReceiverDropsRepeats(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness { return harness(t, time.Hour) }, tell)
}

// Without permission no private address is connected to, and the delivery has
// failed with a reason that says what to do.
func TestGuard(t *testing.T) {
	t.Parallel()
	h := harness(t, 0)
	p, err := webhook.New(webhook.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	h.Provider = p
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Failed || !strings.HasPrefix(e.LastError, "webhook: host 127.0.0.1 is refused, since its address 127.0.0.1 is ") ||
		!strings.Contains(e.LastError, "(loopback)") || !strings.Contains(e.LastError, "allow_hosts") || h.Calls() != 0 {
		t.Errorf("%s with %q after %d calls", e.Status, e.LastError, h.Calls())
	}
}

// The body is the payload, the id the delivery's, the signature of the
// attempt's time; and there is no Idempotency-Key.
func TestRequest(t *testing.T) {
	t.Parallel()
	var got http.Header
	h := harness(t, 0)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone() }))
	defer server.Close()
	h.Recipient = server.URL
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Sent || got.Get("Webhook-Id") != e.ID || got.Get("Content-Type") != "application/json" || got.Get("Idempotency-Key") != "" ||
		got.Get("Correlation-Id") != e.CorrelationID {
		t.Errorf("%+v\n%v", e, got)
	}
}

// What is posted is what Standard Webhooks has; testdata names the source.
func TestRequest_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source  string            `json:"source"`
		Headers map[string]string `json:"headers"`
		Body    json.RawMessage   `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	var got http.Header
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body) // what is cut is not the fixture's
	}))
	defer server.Close()
	h := harness(t, 0)
	h.Recipient, h.Payload = server.URL, json.RawMessage(strings.Replace(string(fixture.Body), `"data":{`, `"data":{"canary-7f3a":1,`, 1))
	e := providertest.Deliver(t, h)
	if e.Status != delivery.Sent {
		t.Fatalf("%s: %s", e.Status, e.LastError)
	}
	var is, want any
	if json.Unmarshal(body, &is) != nil || json.Unmarshal(h.Payload, &want) != nil {
		t.Fatalf("the body is no JSON: %s", body)
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(e.ID + "." + got.Get("Webhook-Timestamp") + "." + string(body)))
	values := strings.NewReplacer(
		"{signature of {id}.{time}.{body}}", base64.StdEncoding.EncodeToString(mac.Sum(nil)), "{id}", e.ID, "{time}", got.Get("Webhook-Timestamp"),
	)
	for name, value := range fixture.Headers {
		if got.Get(name) != values.Replace(value) {
			t.Errorf("%s: %q, want %q", name, got.Get(name), values.Replace(value))
		}
		got.Del(name)
	}
	for _, name := range []string{"Accept-Encoding", "Connection", "Content-Length"} { // HTTP's own
		got.Del(name)
	}
	if len(got) > 0 {
		t.Errorf("there are headers that the fixture lacks: %v", got)
	}
}

func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := webhook.New(webhook.Options{DropsRepeats: time.Second, AllowHosts: []string{"a b"}, Hosts: []string{"a/b"}, Headers: map[string]string{"Idempotency-Key": "1"}})
	for _, want := range []string{"Secret", "DropsRepeats", "AllowHosts", "option Hosts", "option Headers: "} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	p, err := webhook.New(webhook.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "mailto:x@y", "https://", "https://user:pw@example.com/"} {
		if _, err := p.Render(delivery.Draft{Recipient: bad, Payload: payload}); err == nil || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if checks := p.Check(context.Background()); len(checks) != 1 || !checks[0].OK {
		t.Errorf("%+v", checks)
	}
}
