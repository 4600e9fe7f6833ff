//go:build brokers

package aws_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/ses"
)

// served is a ledger that serves one provider.
func served(t *testing.T, db *pgtest.DB, name string, p delivery.Provider) *delivery.Ledger {
	t.Helper()
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{
		Providers:    map[string]delivery.ProviderOptions{name: {Provider: p, Timeout: 20 * time.Second}},
		PollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Deadline: 25 * time.Second, // what is given up may have been done, and waits for its lease
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	running(t, l.Run)
	return l
}

func reserve(t *testing.T, db *pgtest.DB, provider, to string) string {
	t.Helper()
	made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
		Channel: delivery.Email, Provider: provider, Recipient: to, Key: delivery.NewKey(t.Name(), provider, to),
		Payload: delivery.EmailPayload{From: "Jörg <ann@example.com>", Subject: "Grüße – hello", Text: "It works & is 5 € “cheap”.\nBye."}.JSON(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made[0].ID
}

// until waits for something of a delivery.
func until(t *testing.T, l *delivery.Ledger, id, what string, is func(delivery.Entry, delivery.Feedback) bool) delivery.Entry {
	t.Helper()
	var e delivery.Entry
	var f delivery.Feedback
	if !pgtest.Wait(pgtest.Patience, func() bool {
		var err error
		if e, _, err = l.Show(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		if f, err = l.Feedback(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return is(e, f)
	}) {
		t.Fatalf("waited in vain for %s: %+v, %+v", what, e, f)
	}
	return e
}

// What moto stores is what was reserved, and moto, which checks the signature by botocore's
// rules, takes it with the right secret alone.
func TestSES_Moto(t *testing.T) {
	t.Parallel()
	m := startMoto(t)
	m.query("iam", url.Values{"Action": {"CreateUser"}, "UserName": {"deed"}, "Version": {"2010-05-08"}})
	m.query("iam", url.Values{
		"Action": {"PutUserPolicy"}, "UserName": {"deed"}, "PolicyName": {"ses"}, "Version": {"2010-05-08"},
		"PolicyDocument": {`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ses:*","Resource":"*"}]}`},
	})
	made := m.query("iam", url.Values{"Action": {"CreateAccessKey"}, "UserName": {"deed"}, "Version": {"2010-05-08"}})
	key, secret := m.inside(made, "AccessKeyId"), m.inside(made, "SecretAccessKey")
	m.ask("ses", "/v2/email/identities", "application/json", `{"EmailIdentity":"ann@example.com"}`)
	r, err := http.Post(m.url+"/moto-api/reset-auth", "text/plain", strings.NewReader("0")) // from here on it checks
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	_ = r.Body.Close()
	open := func(secret string) *ses.Provider {
		p, err := ses.New(ses.Options{Region: region, AccessKeyID: key, SecretAccessKey: secret, ConfigurationSet: "events", Endpoint: m.url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	db := pgtest.New(t)
	right := served(t, db, "right", open(secret))
	e := until(t, right, reserve(t, db, "right", "bob@example.org"), "it to be sent", func(e delivery.Entry, _ delivery.Feedback) bool { return e.FinishedAt != nil })
	if e.SentAt == nil || e.Attempts != 1 {
		t.Fatalf("%s after %d attempts: %s", e.Status, e.Attempts, e.LastError)
	}
	want := message{ID: e.ProviderMessageID, Source: "=?utf-8?q?J=C3=B6rg?= <ann@example.com>", Subject: "Grüße – hello", Body: "It works & is 5 € “cheap”.\nBye."}
	want.Destinations.ToAddresses = []string{"bob@example.org"}
	if diff := cmp.Diff([]message{want}, m.messages()); diff != "" {
		t.Error(diff)
	}
	wrong := served(t, db, "wrong", open(secret[1:]+"x"))
	id := reserve(t, db, "wrong", "bob@example.org")
	e = until(t, wrong, id, "the refusal", func(e delivery.Entry, _ delivery.Feedback) bool { return e.LastError != "" })
	if e.Status != delivery.Queued || !strings.Contains(e.LastError, "status 403") || len(m.messages()) != 1 {
		t.Errorf("with another secret: %s, %q, and moto has %d", e.Status, e.LastError, len(m.messages()))
	}
}

// A notification that moto's SNS signs reaches the ledger. moto does not ask whether one wants
// to be subscribed, signs by version 2 alone, and shows certificates on https at Amazon's own
// host: so a proxy stands between, which rewrites the certificate's URL (that nothing signs).
func TestSNS_Moto(t *testing.T) {
	t.Parallel()
	m := startMoto(t)
	topic := m.inside(m.query("sns", url.Values{"Action": {"CreateTopic"}, "Name": {"events"}, "Version": {"2010-03-31"}}), "TopicArn")
	target, err := url.Parse(m.url)
	if err != nil {
		t.Fatal(err)
	}
	amazon := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Authorization", unsigned("sns")) // by which moto knows which service is asked
	}})
	t.Cleanup(amazon.Close)

	db := pgtest.New(t)
	fake := &catcher.SES{Mailbox: &catcher.Mailbox{}, AccessKeyID: "AKIA", SecretAccessKey: "secret"}
	api := httptest.NewServer(fake)
	t.Cleanup(api.Close)
	t.Cleanup(fake.Close)
	p, err := ses.New(ses.Options{Region: region, AccessKeyID: "AKIA", SecretAccessKey: "secret", ConfigurationSet: "events", Endpoint: api.URL, EventTopic: topic, EventsEndpoint: amazon.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	l := served(t, db, "bulk", p)
	h := l.EventsHandler(map[string]delivery.EventReader{"bulk": p})
	var mu sync.Mutex
	var came []byte
	relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body = bytes.ReplaceAll(body, []byte("https://sns."+region+".amazonaws.com/SimpleNotificationService-"), []byte(amazon.URL+"/SimpleNotificationService-"))
		mu.Lock()
		came = body
		mu.Unlock()
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(relay.Close)
	m.query("sns", url.Values{"Action": {"Subscribe"}, "TopicArn": {topic}, "Protocol": {"http"}, "Endpoint": {relay.URL + "/events/bulk"}, "Version": {"2010-03-31"}})
	id := reserve(t, db, "bulk", "bob@example.org")
	e := until(t, l, id, "it to be sent", func(e delivery.Entry, _ delivery.Feedback) bool { return e.SentAt != nil })
	said, err := json.Marshal(map[string]any{
		"eventType": "Delivery", "delivery": map[string]string{"timestamp": "2026-02-22T23:41:12.126Z"},
		"mail": map[string]any{"messageId": e.ProviderMessageID, "tags": map[string][]string{"deed_id": {id}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.query("sns", url.Values{"Action": {"Publish"}, "TopicArn": {topic}, "Message": {string(said)}, "Version": {"2010-03-31"}})
	until(t, l, id, "the event", func(_ delivery.Entry, f delivery.Feedback) bool { return f.DeliveredAt != nil })

	// The same with another byte is not believed.
	mu.Lock()
	changed := bytes.Replace(came, []byte("23:41:12"), []byte("23:41:13"), 1)
	mu.Unlock()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/events/bulk", bytes.NewReader(changed)))
	if w.Code != http.StatusUnauthorized {
		t.Errorf("what was changed is answered by %d", w.Code)
	}
}

// What Python's cryptography signs is believed, by both versions, with a subject or without,
// and a question is answered; with another byte it is not.
func TestSNS_SignedByPython(t *testing.T) {
	t.Parallel()
	const topic = "arn:aws:sns:eu-central-1:123456789012:events"
	n := newNotary(t)
	var mu sync.Mutex
	confirmed := 0
	amazon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/certificate.pem" {
			_, _ = w.Write(n.Certificate)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		confirmed++
	}))
	t.Cleanup(amazon.Close)
	p, err := ses.New(ses.Options{Region: region, AccessKeyID: "AKIA", SecretAccessKey: "secret", EventTopic: topic, EventsEndpoint: amazon.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	read := func(body []byte) (delivery.Told, error) {
		return p.ReadEvents(httptest.NewRequest(http.MethodPost, "/events/bulk", nil), body, time.Now())
	}
	for _, version := range []string{"1", "2"} {
		for _, kind := range []string{"Notification", "with a subject", "SubscriptionConfirmation"} {
			fields := map[string]string{
				"Type": kind, "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "TopicArn": topic, "Timestamp": "2026-02-22T23:41:12.126Z",
				"Message": `{"eventType":"Send","mail":{"messageId":"m-1","tags":{"deed_id":["d-1"]}}}`, "SignatureVersion": version, "SigningCertURL": amazon.URL + "/certificate.pem",
			}
			switch kind {
			case "with a subject":
				fields["Type"], fields["Subject"] = "Notification", "Amazon SES Email Event Notification"
			case "SubscriptionConfirmation":
				fields["Token"], fields["SubscribeURL"], fields["Message"] = "t", amazon.URL+"/?Action=ConfirmSubscription&Token=t", "You have chosen …"
			}
			body := n.sign(fields)
			told, err := read(body)
			if err != nil || len(told.Events)+told.Other != 1 {
				t.Errorf("version %s, %s: %+v, %v", version, kind, told, err)
			}
			if told, err := read(bytes.Replace(body, []byte("2026-02-22"), []byte("2026-02-23"), 1)); err == nil {
				t.Errorf("version %s, %s, with another date: %+v", version, kind, told)
			}
		}
	}
	if confirmed != 2 {
		t.Errorf("confirmed %d times", confirmed)
	}
}

// What the fake of SES signs, Python's cryptography verifies: so deed dev shows what Amazon
// does.
func TestSNS_TheFakeVerifiedByPython(t *testing.T) {
	t.Parallel()
	n := newNotary(t)
	for _, version := range []string{"1", "2"} {
		var mu sync.Mutex
		var heard [][]byte
		relay := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			heard = append(heard, body)
			mu.Unlock()
			var asked struct{ SubscribeURL string }
			if json.Unmarshal(body, &asked) == nil && asked.SubscribeURL != "" {
				if answer, err := http.Get(asked.SubscribeURL); err == nil {
					_ = answer.Body.Close()
				}
			}
		}))
		t.Cleanup(relay.Close)
		teller := &catcher.Teller{Base: func() string { return relay.URL }, Delay: time.Millisecond}
		fake := &catcher.SES{Mailbox: &catcher.Mailbox{}, AccessKeyID: "AKIA", SecretAccessKey: "secret", Topic: "arn:aws:sns:eu-central-1:123456789012:events", SignatureVersion: version}
		fake.Events = catcher.Events{Teller: teller, Path: "/events/bulk"}
		api := httptest.NewServer(fake)
		t.Cleanup(api.Close)
		t.Cleanup(fake.Close)
		t.Cleanup(teller.Close)
		p, err := ses.New(ses.Options{Region: region, AccessKeyID: "AKIA", SecretAccessKey: "secret", ConfigurationSet: "events", Endpoint: api.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		db := pgtest.New(t)
		served(t, db, "bulk", p)
		reserve(t, db, "bulk", "complaint@example.org")
		all := func() [][]byte {
			mu.Lock()
			defer mu.Unlock()
			return heard
		}
		if !pgtest.Wait(pgtest.Patience, func() bool { return len(all()) >= 4 }) { // a question, and three events; more if an answer came late
			t.Fatalf("%d were said", len(all()))
		}
		answer, err := http.Get(api.URL + "/sns/certificate.pem")
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		file := filepath.Join(t.TempDir(), "certificate.pem")
		if err != nil || os.WriteFile(file, certificate, 0o600) != nil {
			t.Fatal("the certificate cannot be kept", err)
		}
		for _, body := range all() {
			n.run(body, "verify", file)
		}
	}
}
