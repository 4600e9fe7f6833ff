package delivery_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/telegram"
)

// chats is a bot's service, of which one chat's answers are lost every other time and
// those hang whose numbers begin with 2.
type chats struct {
	fake *catcher.Telegram
	hold chan struct{}

	mu    sync.Mutex
	calls []call
	lost  int
}

func (c *chats) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var said struct {
		To json.Number `json:"chat_id"`
	}
	_ = json.Unmarshal(body, &said)
	c.mu.Lock()
	c.calls = append(c.calls, call{recipient: said.To.String(), at: time.Now()})
	loses := said.To == "1" && len(c.calls)%2 == 0
	if loses {
		c.lost++
	}
	c.mu.Unlock()
	switch {
	case strings.HasPrefix(said.To.String(), "2"):
		<-c.hold
	case loses:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.fake.ServeHTTP(w, r)
}

func (c *chats) all() ([]call, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]call(nil), c.calls...), c.lost
}

// Beside a chat at its limit whose answers are lost half the time, a chat that hangs and an
// account whose quota ends, all others are called, over two processes and the services' own
// adapters; and the limit holds for what is called again. How soon the others are is
// TestNeighbours_OthersWithinTwoSeconds.
func TestNeighbours_ALimitAHangAndAQuotaHoldUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	service := &chats{fake: &catcher.Telegram{Mailbox: &catcher.Mailbox{}}, hold: make(chan struct{})}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	mails := &catcher.Resend{Mailbox: &catcher.Mailbox{}}
	var mu sync.Mutex
	var above []time.Time // guarded by mu: calls above the quota
	mails.Faults.Set(func(n int) catcher.Fault {
		if n > 10 {
			mu.Lock()
			defer mu.Unlock()
			above = append(above, time.Now())
			return catcher.OverQuota
		}
		return catcher.None
	})
	post := httptest.NewServer(mails)
	t.Cleanup(post.Close)
	for range 2 {
		bot, err := telegram.New(telegram.Options{Token: "1:token", Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		mail, err := resend.New(resend.Options{APIKey: "re_x", Endpoint: post.URL})
		if err != nil {
			t.Fatal(err)
		}
		opts := patient(mail)
		opts.Providers = map[string]delivery.ProviderOptions{
			"bot": {Provider: bot, Rate: 500, Timeout: 10 * time.Minute}, "mail": {Provider: mail, Concurrency: 4, Hanging: -1}, // four at once, however slow the machine is
		}
		registered(t, db, opts)
		run(t, db, opts)
	}
	t.Cleanup(func() { close(service.hold) }) // before those stop
	var list []delivery.Delivery
	say := func(to string, n int) {
		list = append(list, delivery.Delivery{
			Channel: delivery.Chat, Provider: "bot", Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`),
			Guarantee: delivery.AtLeastOnce, Key: delivery.NewKey(to, fmt.Sprint(n)),
		})
	}
	for i := range 40 {
		say("1", i)
		say("2", i)
		list = append(list, delivery.Delivery{
			Channel: delivery.Email, Provider: "mail", Recipient: "a@example.org", Payload: delivery.EmailPayload{From: "a@example.com", Subject: "x", Text: "x"}.JSON(),
			Key: delivery.NewKey("mail", fmt.Sprint(i)),
		})
	}
	for i := range 100 {
		say(fmt.Sprint(1000+i), 0)
	}
	begun := time.Now()
	reserve(t, db, list...)
	owner := db.Pool(pgtest.Owner)
	eventually(t, "the account to rest", func() bool {
		return pgtest.One[bool](t, owner, `select exists (select from deed.pauses where provider = 'mail' and destination = '')`)
	})
	known := mails.Faults.Count()
	eventually(t, "the others", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where provider = 'bot' and length(recipient) = 4 and status = 'sent'`) == 100
	})
	to := func(chat string) func(call) bool { return func(c call) bool { return c.recipient == chat } }
	eventually(t, "eight seconds of calls, some to the chat at its limit, and answers that are lost", func() bool {
		calls, lost := service.all()
		return time.Since(begun) > 8*time.Second && mostWithin(calls, time.Hour, to("1")) >= 4 && lost > 0
	})
	eventually(t, "the quota to have ended, and thirty e-mails to wait without an attempt", func() bool {
		return mails.Faults.Count() > 10 && pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where provider = 'mail' and status = 'queued' and attempts = 0`) == 30
	})
	calls, _ := service.all()
	if over := overLimit(calls, begun, 1, 1, to("1")); over != "" {
		t.Errorf("a chat: %s", over)
	}
	if n := mostWithin(calls, time.Hour, to("2")); n > 2 {
		t.Errorf("%d calls of the chat that hangs at once", n)
	}
	if n := mails.Faults.Count(); n > known+8 { // those under way
		t.Errorf("%d calls of an account whose quota is 10, %d of them before its rest was known", n, known)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, at := range above { // before it is known each process spares the account for a quarter of a second
		if after := at.Sub(above[0]); i >= 8*(1+int(after/(250*time.Millisecond))) {
			t.Errorf("%d calls above the quota within %s", i+1, after)
		}
	}
}
