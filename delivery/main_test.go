package delivery_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// fake is a provider that counts what it accepted, by key.
type fake struct {
	caps delivery.Capabilities
	// send judges a call before it is counted; nil accepts. accepted says that
	// the provider took it, whatever it answers.
	send func(ctx context.Context, n int, r delivery.Reservation) (out delivery.Outcome, accepted bool)
	// render replaces the request, which is the payload.
	render func(d delivery.Draft) ([]byte, error)

	mu       sync.Mutex
	calls    map[string]int // by delivery
	accepted map[string]int // by key; a repeat under a key that is honoured counts once
	requests map[string][]string
	order    []call
}

type call struct {
	id, recipient string
	at            time.Time
}

func newFake() *fake {
	return &fake{
		caps:  delivery.Capabilities{Kind: "fake", Channels: []delivery.Channel{delivery.Email, delivery.Voice, delivery.Social, delivery.Webhook, delivery.Chat, delivery.SMS}, Key: delivery.NoKey},
		calls: map[string]int{}, accepted: map[string]int{}, requests: map[string][]string{},
	}
}

func (f *fake) withKey(window time.Duration) *fake {
	f.caps.Key, f.caps.KeyWindow = delivery.HasKey, window
	return f
}

func (f *fake) Capabilities() delivery.Capabilities { return f.caps }

func (f *fake) Render(d delivery.Draft) ([]byte, error) {
	if f.render != nil {
		return f.render(d)
	}
	return d.Payload, nil
}

func (f *fake) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	request, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	f.mu.Lock()
	f.calls[r.ID()]++
	n := f.calls[r.ID()]
	f.requests[r.ID()] = append(f.requests[r.ID()], string(request))
	f.order = append(f.order, call{r.ID(), r.Recipient(), time.Now()})
	f.mu.Unlock()
	out, accepted := delivery.Accepted("m-"+r.ID()), true
	if f.send != nil {
		out, accepted = f.send(ctx, n, r)
	}
	if accepted {
		f.mu.Lock()
		if f.caps.Key == delivery.NoKey || f.accepted[r.Key()] == 0 {
			f.accepted[r.Key()]++
		}
		f.mu.Unlock()
	}
	return out
}

func (f *fake) called(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[id]
}

func (f *fake) all() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.order...)
}

// acceptances returns how many deliveries were accepted, and how many too often.
func (f *fake) acceptances() (deliveries, repeats int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.accepted {
		deliveries++
		repeats += n - 1
	}
	return deliveries, repeats
}

// email is a delivery to recipient whose key is of the parts.
func email(recipient string, parts ...string) delivery.Delivery {
	return delivery.Delivery{
		Channel: delivery.Email, Provider: "fake", Recipient: recipient, Payload: json.RawMessage(`{"subject":"hello"}`),
		Key: delivery.NewKey(append([]string{recipient}, parts...)...),
	}
}

func reserve(t testing.TB, db *pgtest.DB, ds ...delivery.Delivery) []delivery.Reserved {
	t.Helper()
	var names []string
	for _, d := range ds {
		names = append(names, d.Provider)
	}
	db.Providers(t, "fake", names...)
	out, err := delivery.Reserve(context.Background(), db.Pool(pgtest.App), ds...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fast are options that keep tests short. A statement may take long on a busy machine: what is given up may have been
// done, and then waits for its lease.
func fast(p delivery.Provider) delivery.Options {
	return delivery.Options{
		Providers:    map[string]delivery.ProviderOptions{"fake": {Provider: p}},
		Composer:     asItIs{},
		PollInterval: 10 * time.Millisecond, BaseRetry: time.Millisecond, Lease: 30 * time.Second, Deadline: 25 * time.Second,
	}
}

func ledger(t testing.TB, db *pgtest.DB, opts delivery.Options) *delivery.Ledger {
	t.Helper()
	return ledgerOn(t, db.Pool(pgtest.Worker), opts)
}

// ledgerOn is as ledger, over a pool of the test's.
func ledgerOn(t testing.TB, pool *pgxpool.Pool, opts delivery.Options) *delivery.Ledger {
	t.Helper()
	opts.Deadline = cmp.Or(opts.Deadline, pgtest.Patience) // New asks for each of its statements, one after the other
	l, err := delivery.New(context.Background(), pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run starts a ledger and returns what stops it; the test's end does too.
func run(t testing.TB, db *pgtest.DB, opts delivery.Options) (l *delivery.Ledger, stop func()) {
	t.Helper()
	return runOn(t, db.Pool(pgtest.Worker), opts)
}

// runOn is as run, over a pool of the test's.
func runOn(t testing.TB, pool *pgxpool.Pool, opts delivery.Options) (l *delivery.Ledger, stop func()) {
	t.Helper()
	l = ledgerOn(t, pool, opts)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return l, stop
}

func entry(t testing.TB, db *pgtest.DB, id string) delivery.Entry {
	t.Helper()
	e, _, err := ledger(t, db, delivery.Options{}).Show(context.Background(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// until waits for a delivery's status.
func until(t testing.TB, db *pgtest.DB, id string, want delivery.Status) delivery.Entry {
	t.Helper()
	var last string
	eventually(t, fmt.Sprintf("delivery %s to be %s", id, want), func() bool {
		last = pgtest.One[string](t, db.Pool(pgtest.Owner), `select status || coalesce(' ' || last_error, '') || coalesce(' doubt: ' || doubt_reason, '') from deed.channel_outbox where id = $1::text::uuid`, id)
		return last == string(want) || len(last) > len(want) && last[:len(want)+1] == string(want)+" "
	}, &last)
	return entry(t, db, id)
}

// eventually polls cond, for things that happen in another process.
func eventually(t testing.TB, what string, cond func() bool, last ...*string) {
	t.Helper()
	if pgtest.Wait(pgtest.Patience, cond) {
		return
	}
	for _, l := range last {
		t.Logf("last seen: %s", *l)
	}
	t.Fatalf("waited in vain for %s", what)
}

func drained(t testing.TB, l *delivery.Ledger) {
	t.Helper()
	eventually(t, "the providers to be drained", func() bool {
		ok, err := l.Drained(context.Background())
		return err == nil && ok
	})
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// logs collects what a ledger logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// channelMessage is a message that somebody wrote to us, which deliveries answer.
func channelMessage(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select id::text from deed.accept_messages('support', array['1'], array['telegram'], array['42'], array[''], array['hello'], array['{}'], '', 'link',
			'00000000-0000-0000-0000-000000000000', 'w')`)
}
