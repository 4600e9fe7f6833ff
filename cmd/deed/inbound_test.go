package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// A relay takes what a platform sends, asks the executor of its configuration, and answers
// through a provider: once, under ids by which the whole way is told (D9).
func TestContract_D8_ARelayAnswers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	asked, answered := make(chan string, 9), make(chan string, 9)
	broken := make(chan struct{}, 9)
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/answer":
			asked <- r.Header.Get("Webhook-Id") + " " + string(body)
			select {
			case <-broken:
				w.WriteHeader(http.StatusInternalServerError)
			default:
				_, _ = io.WriteString(w, `{"replies": [{"text": "hello yourself"}]}`)
			}
		case "/outbox":
			answered <- r.Header.Get("Correlation-Id") + " " + r.Header.Get("Channel-Message-Id") + " " + string(body)
		}
	}))
	t.Cleanup(inner.Close)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := `
public: {listen: "127.0.0.1:0"}
providers:
  hooks: {type: webhook, secret: "env:HOOK_SECRET", allow_hosts: [127.0.0.1]}
sources:
  shop:
    type: webhook
    secret: env:SHOP_SECRET
    scheme: hmac
    header: X-Sum
    id: $.id
    sender: $.from
    text: $.text
    executor: {webhook: "` + inner.URL + `/answer", secret: "env:HOOK_SECRET", allow_hosts: [127.0.0.1]}
    reply: {provider: hooks, to: "` + inner.URL + `/outbox"}
  mail: {type: smtp, listen: "127.0.0.1:0", addresses: ["help@example.com"], trusted: [127.0.0.1], names: [mx.example.com], executor: {topic: mail.in}}
  topic:
    type: webhook
    secret: env:SHOP_SECRET
    scheme: hmac
    header: X-Sum
    id: $.id
    sender: $.from
    executor: {topic: support.in}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startWith(t, []string{"SHOP_SECRET=a secret of sixteen"}, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening for platforms" address=(\S+)`)
	health := p.prints(&p.errOut, `listening address=(\S+)`)
	eventually(t, "/readyz", func() bool { return get("http://"+health+"/readyz") == 200 })
	send := func(source, secret, body string, header ...string) int {
		t.Helper()
		sum := hmac.New(sha256.New, []byte(secret))
		sum.Write([]byte(body))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/in/"+source, bytes.NewBufferString(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Sum", hex.EncodeToString(sum.Sum(nil)))
		if len(header) > 0 {
			req.Header.Set("X-Correlation-Id", header[0])
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	const secret, hello = "a secret of sixteen", `{"id": "m1", "from": "zoe", "text": "canary hello"}`
	if code := send("shop", "another one of sixteen", hello); code != 401 {
		t.Errorf("a wrong signature: %d", code)
	}
	broken <- struct{}{}
	if code := send("shop", secret, hello, "corr-1"); code != 500 {
		t.Errorf("while the executor is broken: %d", code)
	}
	for range 2 {
		if code := send("shop", secret, hello); code != 200 {
			t.Errorf("sent: %d", code)
		}
	}
	first, second := <-asked, <-asked
	id := strings.Fields(first)[0]
	if got := <-answered; got != `corr-1 `+id+` {"text": "hello yourself"}` {
		t.Errorf("answered: %s", got)
	}
	if first[:36] != second[:36] || !strings.Contains(first, `"text":"canary hello"`) || !strings.Contains(first, `"sender":"zoe"`) {
		t.Errorf("asked:\n%s\n%s", first, second)
	}
	if code := send("topic", secret, `{"id": "t1", "from": "bob"}`); code != 200 {
		t.Errorf("to a topic: %d", code)
	}
	published := pgtest.One[string](t, db.Pool(pgtest.Owner), `select topic || ' ' || type || ' ' || convert_from(payload, 'UTF8') from deed.log`)
	if !strings.HasPrefix(published, `support.in inbound.message {"id":"`) || strings.Contains(published, "bob") {
		t.Errorf("published: %s", published)
	}
	mailAt := p.prints(&p.errOut, `listening for mail" source=mail address=(\S+)`)
	mail := "Authentication-Results: mx.example.com; dmarc=pass header.from=example.org\r\nFrom: zoe@example.org\r\nMessage-ID: <1@example.org>\r\n\r\ncanary\r\n"
	if err := smtp.SendMail(mailAt, nil, "zoe@example.org", []string{"help@example.com"}, []byte(mail)); err != nil {
		t.Errorf("by mail: %v", err)
	}
	dev := func(want string, args ...string) {
		t.Helper()
		said := startWith(t, []string{"SHOP_SECRET=a secret of sixteen"}, db.URL(pgtest.Worker), append([]string{"dev", "say", "--config", file, "--source", "mail"}, args...)...)
		said.wait()
		if got := said.out.String() + said.errOut.String(); !strings.Contains(got, want) {
			t.Errorf("deed dev say %q: %s", args, got)
		}
	}
	dev("250 taken for help@example.com", "--to", mailAt, "canary")
	dev("is no address of e-mail", "--to", mailAt, "--from", "42", "x")
	dev("Give --to", "x")
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'mail.in'`); n != 2 {
		t.Errorf("%d messages of the mail", n)
	}
	if code := send("mail", secret, "{}"); code != 404 {
		t.Errorf("a request to the source of mail: %d", code)
	}
	var shown struct {
		Message struct{ Status, Text string }
		History []struct{ Action string }
		Replies []struct{ Status string }
	}
	eventually(t, "the reply to be sent", func() bool {
		if err := json.Unmarshal([]byte(deedOK(t, db.URL(pgtest.Admin), "inbound", "show", id, "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		return len(shown.Replies) == 1 && shown.Replies[0].Status == "sent"
	})
	if shown.Message.Status != "executed" || shown.Message.Text != "canary hello" || len(shown.History) < 3 {
		t.Errorf("shown: %+v", shown)
	}
	if metrics := body(t, "http://"+health+"/metrics"); !strings.Contains(metrics, `deed_process_inbound_total{outcome="executed",source="shop"} 1`) || strings.Contains(metrics, "zoe") {
		t.Error("the metrics lack what came of the messages, or name who wrote")
	}
	if code := get("http://" + address + "/metrics"); code != 404 {
		t.Errorf("metrics for everybody: %d", code)
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if log := p.errOut.String(); strings.Contains(log, "canary") || strings.Contains(log, "zoe") || !strings.Contains(log, "correlation_id=corr-1") || !strings.Contains(log, "channel_message_id="+id) {
		t.Errorf("the log names what was written or by whom, or lacks the ids:\n%s", log)
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The way of a message is told to its end: how the provider calls the reply, however long that is.
func TestInbound_ShowNamesTheReply(t *testing.T) {
	t.Parallel()
	long := "wamid." + strings.Repeat("HBgLMTU1NTU1", 8)
	one := inbound.Answered{ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Status: "sent", Channel: "chat", Provider: "whatsapp", ProviderMessageID: long}
	two := one
	two.ID, two.ProviderMessageID = "01a1fe76-1a02-70aa-8d1f-0c5a1b2c3d4e", "m2"
	for _, c := range []struct {
		replies []inbound.Answered
		want    []string
	}{
		{[]inbound.Answered{one}, []string{"message id       " + long + "\n"}},
		{[]inbound.Answered{one, two}, []string{"message id       " + long + " of " + one.ID + "\n", "message id       m2 of " + two.ID + "\n"}},
	} {
		var out strings.Builder
		if err := showInbound(&out, inbound.Entry{}, nil, c.replies); err != nil {
			t.Fatal(err)
		}
		for _, line := range c.want {
			if !strings.Contains(out.String(), line) {
				t.Errorf("lacks %q:\n%s", line, out.String())
			}
		}
	}
}
