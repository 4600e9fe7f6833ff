package sinktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

const (
	topic        = "sinktest"
	subscription = "sink"

	// patience bounds every wait; it only matters to a test that fails.
	patience = pgtest.Patience
)

type fixture struct {
	Harness
	t         *testing.T
	db        *pgtest.DB
	spy       *spy
	published int // messages, so far
}

func setup(t *testing.T, h Harness) *fixture {
	t.Helper()
	f := h.Features
	_, isBatch := h.Sink.(deed.BatchSink)
	var errs []error
	for _, p := range []struct {
		bad  bool
		what string
	}{
		{h.Sink == nil || h.Arrived == nil, "the harness needs Sink and Arrived"},
		{f.Batch != isBatch, fmt.Sprintf("Features.Batch is %v but the sink says %v", f.Batch, isBatch)},
		{f.Down && (h.Down == nil || h.Up == nil), "Features.Down needs Down and Up"},
		{f.Slow && h.Slow == nil, "Features.Slow needs Slow"},
		{f.Refuse && h.Refuse == nil, "Features.Refuse needs Refuse"},
	} {
		if p.bad {
			errs = append(errs, errors.New(p.what))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return &fixture{Harness: h, t: t, db: pgtest.New(t), spy: &spy{sink: h.Sink, seen: map[deed.ID]int{}}}
}

// subscription is the one under test, with the sink watched by f.spy.
func (f *fixture) subscription(change ...func(*deed.Subscription)) deed.Subscription {
	s := deed.Subscription{Topic: topic, Name: subscription, Sink: f.spy}
	if b, ok := f.Sink.(deed.BatchSink); ok {
		s.Sink = batchSpy{f.spy, b.BatchSize()}
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

// batchSize is the most messages that the sink takes in one call.
func (f *fixture) batchSize() int {
	if b, ok := f.Sink.(deed.BatchSink); ok {
		return b.BatchSize()
	}
	return 1
}

// relay is a running client.
type relay struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// start runs a client until the test's end, if nobody stops it before.
func (f *fixture) start(subs ...deed.Subscription) *relay {
	f.t.Helper()
	client, err := deed.New(f.t.Context(), f.db.Pool(pgtest.Worker), deed.Options{
		Subscriptions: subs,
		Grace:         patience,         // a stop in the middle lets go when the test does
		Deadline:      25 * time.Second, // what is given up may have been done, and waits for its lease
		Logger:        slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{cancel: cancel, done: make(chan struct{})}
	go func() { // ended by stop
		defer close(r.done)
		r.err = client.Run(ctx)
	}()
	f.t.Cleanup(func() { f.stop(r) })
	return r
}

// stop ends a client in two phases.
func (f *fixture) stop(r *relay) {
	f.t.Helper()
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(patience):
		f.t.Fatal("the relay does not stop")
	}
	if r.err != nil {
		f.t.Errorf("the relay ended with: %v", r.err)
	}
}

// publish commits n messages; change may alter the i-th.
func (f *fixture) publish(n int, change func(i int, m *deed.Message)) map[string]deed.Message {
	f.t.Helper()
	ms := make([]deed.Message, n)
	for i := range ms {
		ms[i] = deed.Message{Topic: topic, Key: fmt.Sprintf("key-%d", i%17), Payload: fmt.Appendf(nil, `{"n": %d}`, i)}
		if change != nil {
			change(i, &ms[i])
		}
	}
	var published []deed.Published
	err := pgx.BeginFunc(f.t.Context(), f.db.Pool(pgtest.App), func(tx pgx.Tx) error {
		var err error
		published, err = deed.Publish(f.t.Context(), tx, ms...)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.published += n
	byID := make(map[string]deed.Message, n)
	for i, p := range published {
		ms[i].ID, ms[i].Seq = p.ID, p.Seq
		byID[p.ID.String()] = ms[i]
	}
	return byID
}

// wait polls until ok holds.
func (f *fixture) wait(what string, ok func() bool) {
	f.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			rows := f.pending()
			f.t.Fatalf("waited for %s in vain: of %d published %d arrived and %d are pending, such as %+v",
				what, f.published, len(f.arrivedByID()), len(rows), rows[:min(len(rows), 5)])
		}
	}
}

// pendingRow is a message that the subscription has not finished.
type pendingRow struct {
	ID        int64
	Attempts  int
	Dead      bool
	Claimed   bool
	LastError string
}

func (f *fixture) pending() []pendingRow {
	f.t.Helper()
	rows, err := f.db.Pool(pgtest.Admin).Query(context.Background(), `
		select p.id, p.attempts, p.dead_at is not null as dead, p.claim is not null as claimed,
			coalesce(p.last_error, '') as last_error
		from deed.pending p
		join deed.subscriptions s on s.id = p.subscription
		where s.topic = $1 and s.name = $2
		order by p.id`, topic, subscription)
	if err != nil {
		f.t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[pendingRow])
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

// count returns how many unfinished messages fit.
func (f *fixture) count(fits func(pendingRow) bool) int {
	f.t.Helper()
	n := 0
	for _, p := range f.pending() {
		if fits(p) {
			n++
		}
	}
	return n
}

// waitDrained waits until every message that was published has either arrived
// and is finished, or is dead.
func (f *fixture) waitDrained() {
	f.t.Helper()
	f.wait("everything to be finished", func() bool {
		rows := f.pending()
		dead := 0
		for _, p := range rows {
			if p.Dead {
				dead++
			}
		}
		return dead == len(rows) && dead+len(f.arrivedByID()) >= f.published
	})
}

// arrivedByID returns how often each message has arrived.
func (f *fixture) arrivedByID() map[string]int {
	counts := map[string]int{}
	for _, a := range f.Arrived() {
		counts[a.ID]++
	}
	return counts
}

// compare checks what arrived against what should have: every message with its
// content, at least once, and at most that often.
func (f *fixture) compare(want map[string]deed.Message, most int) {
	f.t.Helper()
	counts := map[string]int{}
	for _, a := range f.Arrived() {
		m, ok := want[a.ID]
		if !ok {
			f.t.Errorf("message %s arrived, which should not have", a.ID)
			continue
		}
		counts[a.ID]++
		if string(a.Payload) != string(m.Payload) {
			f.t.Errorf("message %s: payload %q, want %q", a.ID, a.Payload, m.Payload)
		}
		if a.Topic != m.Topic || a.Key != "" && a.Key != m.Key || a.Type != "" && a.Type != m.Type {
			f.t.Errorf("message %s: topic, key, type %q, %q, %q, want %q, %q, %q", a.ID, a.Topic, a.Key, a.Type, m.Topic, m.Key, m.Type)
		}
	}
	missing, repeated := 0, 0
	for id := range want {
		switch n := counts[id]; {
		case n == 0:
			missing++
		case n > most:
			repeated++
		}
	}
	if missing > 0 || repeated > 0 {
		f.t.Errorf("of %d messages %d are missing and %d came more than %d time(s)", len(want), missing, repeated, most)
	}
}

// spy stands between the relay and the sink.
type spy struct {
	sink deed.Sink

	mu          sync.Mutex      // guards the fields below
	seen        map[deed.ID]int // the highest attempt that was asked for
	largest     int             // messages in one call
	unavailable int             // outcomes
	passed      int             // messages let through
	limit       int             // how many to let through; 0 means all
	gate        chan struct{}   // holds the calls beyond limit
	held        int             // messages in calls that wait at the gate
}

// holdAfter makes calls wait once n messages have been let through.
func (s *spy) holdAfter(n int) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.gate = n, make(chan struct{})
	return sync.OnceFunc(func() { close(s.gate) })
}

func (s *spy) Deliver(ctx context.Context, ms []deed.Message) []error {
	s.enter(ctx, ms)
	outcomes := s.sink.Deliver(ctx, ms)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range outcomes {
		if deed.IsUnavailable(err) {
			s.unavailable++
		}
	}
	return outcomes
}

func (s *spy) enter(ctx context.Context, ms []deed.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.largest = max(s.largest, len(ms))
	for _, m := range ms {
		s.seen[m.ID] = max(s.seen[m.ID], m.Attempt)
	}
	if s.limit > 0 && s.passed >= s.limit {
		s.held += len(ms)
		s.mu.Unlock()
		select {
		case <-s.gate:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.held -= len(ms)
	}
	s.passed += len(ms)
}

// attempts returns how many messages were tried, and the highest attempt.
func (s *spy) attempts() (messages, highest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.seen {
		highest = max(highest, n)
	}
	return len(s.seen), highest
}

func (s *spy) read(field *int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *field
}

type batchSpy struct {
	*spy
	size int
}

func (b batchSpy) BatchSize() int { return b.size }

// fate is what the tests of refusals put into a payload.
func fate(payload []byte) string {
	_, rest, _ := strings.Cut(string(payload), `"fate":"`)
	word, _, _ := strings.Cut(rest, `"`)
	return word
}
