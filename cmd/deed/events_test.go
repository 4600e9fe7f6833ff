package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
)

// A relay records what a provider's service says, at the address that everybody may reach:
// beside what was done (D13), once, and if it is the service that says so.
func TestContract_D13_ARelayRecordsWhatAServiceSays(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	db := pgtest.New(t)
	fake := &catcher.Resend{Mailbox: &catcher.Mailbox{}}
	service := httptest.NewServer(fake)
	t.Cleanup(service.Close)
	t.Cleanup(fake.Close)
	heard := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		heard <- string(text)
	}))
	t.Cleanup(hook.Close)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := `
sinks: {heard: {type: webhook, url: "` + hook.URL + `", secret: "env:EVENT_SECRET", allow_hosts: [127.0.0.1]}}
topics: {deed.feedback: {sink: heard}}
public: {listen: "127.0.0.1:0"}
channels: {outbox: {enabled: true}}
providers:
  api: {type: resend, api_key: "env:RESEND_KEY", endpoint: "` + service.URL + `", from: shop@example.com, event_secret: "env:EVENT_SECRET"}
  other: {type: resend, api_key: "env:RESEND_KEY", endpoint: "` + service.URL + `", from: shop@example.com}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, []string{"RESEND_KEY=re_1", "EVENT_SECRET=" + secret}, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening for platforms" address=(\S+)`)
	health := p.prints(&p.errOut, `listening address=(\S+)`)
	eventually(t, "/readyz", func() bool { return get("http://"+health+"/readyz") == 200 })
	eventually(t, "the provider to be registered", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.providers where name = 'api')`)
	})
	made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
		Channel: delivery.Email, Provider: "api", Recipient: "zoe@example.org", Key: delivery.NewKey("one"), Payload: []byte(`{"subject": "hello", "text": "canary"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made[0].ID
	show := func() (e struct {
		Delivery delivery.Entry
		Feedback delivery.Feedback
	},
	) {
		t.Helper()
		if err := json.Unmarshal([]byte(deedOK(t, db.URL(pgtest.Admin), "deliveries", "show", id, "--json")), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	eventually(t, "the delivery to be sent", func() bool { return show().Delivery.Status == delivery.Sent })
	tell := func(provider, secret, body string) int {
		t.Helper()
		seconds := strconv.FormatInt(time.Now().Unix(), 10)
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("msg_1." + seconds + "." + body))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/events/"+provider, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Svix-Id", "msg_1")
		req.Header.Set("Svix-Timestamp", seconds)
		req.Header.Set("Svix-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	bounced := `{"type":"email.bounced","created_at":"2026-02-22T23:41:12.126Z","data":{"email_id":"x","to":["zoe@example.org"],"tags":{"deed_id":"` + id + `"},"bounce":{"type":"Permanent","subType":"General","message":"no such user"}}}`
	for _, c := range []struct {
		provider, secret string
		want             int
	}{{"api", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 401}, {"other", secret, 404}, {"nobody", secret, 404}} {
		if code := tell(c.provider, c.secret, bounced); code != c.want {
			t.Errorf("%s: %d, want %d", c.provider, code, c.want)
		}
	}
	if e := show(); e.Feedback != (delivery.Feedback{}) {
		t.Errorf("%+v", e.Feedback)
	}
	for range 2 {
		if code := tell("api", secret, bounced); code != 200 {
			t.Errorf("status %d", code)
		}
	}
	if e := show(); e.Delivery.Status != delivery.Sent || e.Feedback.BouncedAt == nil || e.Feedback.Reason != "no such user" {
		t.Errorf("%+v", e)
	}
	if shown := deedOK(t, db.URL(pgtest.Admin), "deliveries", "show", id); !strings.Contains(shown, "bounced          hard since 2026-02-22 ") || !strings.Contains(shown, ": General no such user\n") {
		t.Errorf("shown:\n%s", shown)
	}
	select { // the application is told once
	case text := <-heard:
		if !strings.Contains(text, `"event": "bounced"`) || !strings.Contains(text, id) || strings.Contains(text, "zoe") || len(heard) > 0 {
			t.Error(text)
		}
	case <-time.After(pgtest.Patience):
		t.Error("the sink of deed.feedback was called by nobody")
	}
	if list := deedOK(t, db.URL(pgtest.Admin), "suppressions", "list", "--wide"); !strings.Contains(list, "zoe@example.org") || !strings.Contains(list, "bounced, says api: event msg_1") {
		t.Errorf("suppressed:\n%s", list)
	}
	if metrics := body(t, "http://"+health+"/metrics"); !strings.Contains(metrics, `deed_process_events_total{outcome="matched",provider="api"} 2`) || strings.Contains(metrics, "zoe") {
		t.Error("the metrics lack what was said, or name of whom")
	}
	if log := p.errOut.String(); strings.Contains(log, "zoe") || strings.Contains(log, "canary") {
		t.Errorf("the log names whom it was about:\n%s", log)
	}
}
