package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgtest"
)

// service is a service whose fake says what becomes of what it took.
type service struct {
	provider string
	channel  delivery.Channel
	payload  string
	to       string // with %s for the end
	// ends are what the delivery's feedback is, by the end; what is missing is "delivered".
	ends map[catcher.End]string
}

var (
	mailEnds = map[catcher.End]string{
		catcher.Bounced: "bounced", catcher.SoftBounced: "bounced", catcher.Complained: "delivered complained", catcher.Silent: "",
	}
	mailEndsAll = map[catcher.End]string{
		catcher.Bounced: "bounced", catcher.SoftBounced: "bounced", catcher.Complained: "delivered complained", catcher.Unsubscribed: "delivered unsubscribed", catcher.Silent: "",
	}
	services = []service{
		{"resend", delivery.Email, `{"subject": "s", "text": "canary"}`, "%s@example.com", mailEnds},
		{"postmark", delivery.Email, `{"subject": "s", "text": "canary"}`, "%s@example.com", mailEndsAll},
		{"sendgrid", delivery.Email, `{"subject": "s", "text": "canary"}`, "%s@example.com", mailEndsAll},
		{"ses", delivery.Email, `{"subject": "s", "text": "canary"}`, "%s@example.com", mailEnds},
		{"twilio", delivery.SMS, `{"text": "canary"}`, "+1500555%s", map[catcher.End]string{
			catcher.Bounced: "bounced", catcher.SoftBounced: "bounced", catcher.Complained: "bounced", catcher.Unsubscribed: "bounced", catcher.Silent: "",
		}},
		{"twilio", delivery.Voice, `{"twiml": "<Response><Say>canary</Say></Response>"}`, "+1500556%s", map[catcher.End]string{
			catcher.Delivered: "answered", catcher.Bounced: "answered", catcher.SoftBounced: "answered", catcher.Complained: "answered", catcher.Unsubscribed: "answered", catcher.Silent: "",
		}},
		{"whatsapp", delivery.Chat, `{"text": "canary"}`, "1500557%s", map[catcher.End]string{
			catcher.Bounced: "bounced", catcher.SoftBounced: "bounced", catcher.Unsubscribed: "unsubscribed", catcher.Silent: "",
		}},
	}
	ends = []catcher.End{catcher.Delivered, catcher.Bounced, catcher.SoftBounced, catcher.Complained, catcher.Unsubscribed, catcher.Silent}
)

// recipient is who has that end.
func (s service) recipient(end catcher.End) string {
	if s.channel == delivery.Email {
		return fmt.Sprintf(s.to, end)
	}
	return fmt.Sprintf(s.to, fmt.Sprintf("%04d", 100+slices.Index(ends, end)))
}

func (s service) delivery(t *testing.T, end catcher.End, key string) delivery.Delivery {
	return delivery.Delivery{
		Channel: s.channel, Provider: s.provider, Recipient: s.recipient(end), Payload: []byte(s.payload), Guarantee: delivery.AtMostOnce,
		Key: delivery.NewKey(t.Name(), s.provider, string(s.channel), string(end), key),
	}
}

// relayed is a database, the fakes of deed dev, its providers and its public address, all in
// this process.
type relayed struct {
	t         *testing.T
	db        *pgtest.DB
	fakes     *fakes
	box       *catcher.Mailbox
	providers map[string]delivery.Provider
	readers   map[string]delivery.EventReader
	ledger    *delivery.Ledger
	receiving *receiving
	between   *between
}

// newRelayed has the fakes say things as when says.
func newRelayed(t *testing.T, when catcher.When) *relayed {
	t.Helper()
	r := &relayed{t: t, db: pgtest.New(t), box: &catcher.Mailbox{}, readers: map[string]delivery.EventReader{}}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.between = &between{target: "http://" + public.Addr().String()}
	told := httptest.NewServer(r.between)
	t.Cleanup(told.Close)
	teller := &catcher.Teller{Base: func() string { return told.URL }, When: when, Delay: 5 * time.Millisecond}
	r.fakes = newFakes(r.box, teller)
	mux := http.NewServeMux()
	r.fakes.handle(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(r.fakes.close)
	r.providers, err = builtIn("127.0.0.1:1", strings.TrimPrefix(server.URL, "http://"), r.fakes.events(strings.TrimPrefix(told.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	d := &dispatcher{opts: delivery.Options{
		Providers: map[string]delivery.ProviderOptions{}, PollInterval: 20 * time.Millisecond, BaseRetry: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		Deadline: 25 * time.Second, // what is given up may have been done, and waits for its lease
	}}
	for name, p := range r.providers {
		if reader, ok := p.(delivery.EventReader); ok {
			r.readers[name] = reader
		}
		if name != "smtp" {
			d.opts.Providers[name] = delivery.ProviderOptions{Provider: p, Timeout: 30 * time.Second}
		}
	}
	t.Cleanup(func() { closeProviders(d.opts.Providers) })
	var release func()
	if r.ledger, release, err = d.open(t.Context(), r.db.URL(pgtest.Worker)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	if err := r.ledger.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.receiving, err = (&app{}).devReceiving(t.Context(), &config.Config{}, public, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.receiving.events.Store(r.ledger.EventsHandler(r.readers))
	receiver, done, err := r.receiving.open(t.Context(), r.db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	r.until(func(ctx context.Context) error { return r.receiving.run(ctx, receiver) })
	r.until(r.ledger.Run)
	return r
}

// until runs something until the test ends.
func (r *relayed) until(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			r.t.Errorf("it ended with %v", err)
		}
	})
}

func (r *relayed) reserve(list ...delivery.Delivery) (ids []string) {
	r.t.Helper()
	made, err := delivery.Reserve(r.t.Context(), r.db.Pool(pgtest.App), list...)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range made {
		ids = append(ids, m.ID)
	}
	return ids
}

// life is what the ledger says was done, and what the service said since.
func (r *relayed) life(id string) (e delivery.Entry, feedback string) {
	r.t.Helper()
	e, _, err := r.ledger.Show(r.t.Context(), id, false)
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.ledger.Feedback(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	var words []string
	for _, one := range []struct {
		name string
		at   *time.Time
	}{{"delivered", f.DeliveredAt}, {"bounced", f.BouncedAt}, {"complained", f.ComplainedAt}, {"unsubscribed", f.UnsubscribedAt}, {"opened", f.OpenedAt}, {"clicked", f.ClickedAt}, {"answered", f.AnsweredAt}} {
		if one.at != nil {
			words = append(words, one.name)
		}
	}
	return e, strings.Join(words, " ")
}

// between hands on what is said to target, and remembers it.
type between struct {
	target string

	mu    sync.Mutex
	keep  bool       // guarded by mu: hand on nothing but questions, and answer 200
	heard []*heardOf // guarded by mu
}

// heardOf is what was said.
type heardOf struct {
	path   string // with its query
	header http.Header
	body   []byte
}

func (h *heardOf) request() *http.Request {
	r := httptest.NewRequest(http.MethodPost, h.path, bytes.NewReader(h.body))
	r.Header = h.header.Clone()
	return r
}

// provider is whose it is.
func (h *heardOf) provider() string {
	path, _, _ := strings.Cut(h.path, "?")
	return path[strings.LastIndex(path, "/")+1:]
}

func (b *between) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h := &heardOf{r.URL.RequestURI(), r.Header.Clone(), body}
	question := bytes.Contains(body, []byte(`"SubscriptionConfirmation"`))
	b.mu.Lock()
	keep := b.keep && !question
	if !question {
		b.heard = append(b.heard, h)
	}
	b.mu.Unlock()
	if keep {
		return
	}
	w.WriteHeader(b.hand(r.Context(), h))
}

// hand hands something on.
func (b *between) hand(ctx context.Context, h *heardOf) (status int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.target+h.path, bytes.NewReader(h.body))
	if err != nil {
		return http.StatusBadGateway
	}
	r.Header = h.header.Clone()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return http.StatusBadGateway
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// all is what was said so far.
func (b *between) all() []*heardOf {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.heard)
}

// Whenever a service says it, and in whatever order, signed as it signs: the ledger comes to
// one end, and what was done stays as it was.
func TestContract_D13_FakesTellTheWholeLife(t *testing.T) {
	t.Parallel()
	for _, when := range []catcher.When{catcher.Late, catcher.Early, catcher.Twice, catcher.Reverse} {
		t.Run(string(when), func(t *testing.T) { // one after the other: each may take fifty of the connections that all tests share
			r := newRelayed(t, when)
			var list []delivery.Delivery
			var names []string
			want := map[string]string{}
			for _, s := range services {
				for _, end := range ends {
					d := s.delivery(t, end, "")
					d.Recipient = strings.Replace(d.Recipient, "@", "+"+s.provider+"@", 1) // its own: a bounce suppresses it
					list, names = append(list, d), append(names, fmt.Sprintf("%s %s %s", s.provider, s.channel, end))
					feedback, ok := s.ends[end]
					if !ok {
						feedback = "delivered"
					}
					want[names[len(names)-1]] = feedback
				}
			}
			ids := r.reserve(list...)
			var got map[string]string
			if !pgtest.Wait(pgtest.Patience, func() bool {
				got = map[string]string{}
				for i, id := range ids {
					var e delivery.Entry
					if e, got[names[i]] = r.life(id); e.SentAt == nil {
						got[names[i]] += " and is " + string(e.Status)
					}
				}
				return cmp.Equal(want, got)
			}) {
				t.Error(cmp.Diff(want, got))
			}
			for _, id := range ids {
				if e, _ := r.life(id); e.SentAt == nil || e.Attempts != 1 || e.DoubtSince != nil {
					t.Errorf("%s after %d attempts", e.Status, e.Attempts)
				}
			}
			if counted := r.receiving.events.Load().Counts(); !slices.ContainsFunc(counted, func(c delivery.EventCount) bool { return c.Provider == "whatsapp" && c.Outcome == "matched" && c.N > 0 }) {
				t.Errorf("what WhatsApp says is not counted: %v", counted)
			}
			suppressed := pgtest.One[[]string](t, r.db.Pool(pgtest.Owner), `select array_agg(address || ' ' || purpose || case when expires_at is not null then ' for now' else '' end order by address collate "C") from deed.suppressions`)
			wanted := []string{
				"15005570104 *", "bounce+postmark@example.com ", "bounce+resend@example.com ", "bounce+sendgrid@example.com ", "bounce+ses@example.com ",
				"complaint+postmark@example.com *", "complaint+resend@example.com *", "complaint+sendgrid@example.com *", "complaint+ses@example.com *",
				"unsubscribe+postmark@example.com *", "unsubscribe+sendgrid@example.com *",
			}
			if diff := cmp.Diff(wanted, suppressed); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A call whose answer is lost is settled by what the service says of it, by each that says
// something, and nobody is called again.
func TestContract_D13_WhatIsSaidSettlesWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, catcher.Late)
	if err := r.fakes.fail("reset"); err != nil {
		t.Fatal(err)
	}
	var list []delivery.Delivery
	for _, s := range services {
		if s.provider != "resend" { // which is called again, under its key
			list = append(list, s.delivery(t, catcher.Delivered, ""))
		}
	}
	ids := r.reserve(list...)
	for i, id := range ids {
		eventually(t, list[i].Provider+"'s event", func() bool {
			e, feedback := r.life(id)
			return e.SentAt != nil && feedback != ""
		})
		if e, _ := r.life(id); e.DoubtSince != nil || e.Attempts != 1 || e.ProviderMessageID == "" {
			t.Errorf("%s: %+v", list[i].Provider, e)
		}
	}
	if n := len(r.box.List()); n != len(ids) {
		t.Errorf("%d were accepted, want %d", n, len(ids))
	}
}
