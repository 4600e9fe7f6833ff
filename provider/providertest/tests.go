package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// canary is in every payload, and in no error.
const canary = "canary-7f3a"

// Of these tests a call is bounded as it is elsewhere: a machine that is busy with other things may take long for one. A server
// that hangs costs a test of that so long, and the call after it has no more time: on such a machine it takes some seconds.
const (
	timeout = 30 * time.Second
	hangs   = 8 * time.Second
)

// fixture is a harness with a database and a ledger.
type fixture struct {
	Harness
	t      *testing.T
	db     *pgtest.DB
	ledger *delivery.Ledger
	keyed  bool
	finds  bool // what is in doubt can be looked up
	bound  time.Duration
}

func setup(t *testing.T, h Harness) *fixture {
	t.Helper()
	if !bytes.Contains(h.Payload, []byte(canary)) {
		t.Fatalf("the harness's payload has no %q in it", canary)
	}
	for _, must := range []Fault{ForGood, ForNow, HangBefore, HangAccepted, ResetBefore, ResetAccepted} {
		if !slices.Contains(h.Faults, must) {
			t.Errorf("the harness has no fault %s, which every provider has", must)
		}
	}
	f := &fixture{Harness: h, t: t, db: pgtest.New(t), keyed: h.Provider.Capabilities().Key == delivery.HasKey, bound: timeout}
	_, f.finds = h.Provider.(delivery.Finder)
	f.serve("")
	return f
}

// serve makes the ledger, with a sandbox or without.
func (f *fixture) serve(sandbox string) {
	f.t.Helper()
	var err error
	f.ledger, err = delivery.New(context.Background(), f.db.Pool(pgtest.Worker), delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"p": {
			Provider: f.Provider, Timeout: f.bound, Concurrency: 4, Defer: 20 * time.Millisecond, Sandbox: sandbox,
			Rate: 1000, Lanes: map[string]float64{"*": 0, "-*": 0},
		}},
		PollInterval: 20 * time.Millisecond, BaseRetry: 20 * time.Millisecond, Deadline: 25 * time.Second,
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// expect has a ledger that begins wait no longer than it must, if the server is to hang.
func (f *fixture) expect(fault Fault) {
	f.t.Helper()
	if fault == HangBefore || fault == HangAccepted || fault == SlowAccepted {
		f.bound = hangs
		f.serve("")
	}
}

// start has the ledger run until it is stopped or the test ends.
func (f *fixture) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	l := f.ledger
	go func() { result <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-result; err != nil {
			f.t.Errorf("the ledger ended with %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) reserve(n int, change func(i int, d *delivery.Delivery)) []string {
	f.t.Helper()
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = delivery.Delivery{
			Channel: f.Channel, Provider: "p", Recipient: f.Recipient, Payload: f.Payload, Key: delivery.NewKey(f.t.Name(), fmt.Sprint(i)), CorrelationID: "corr",
		}
		if change != nil {
			change(i, &list[i])
		}
	}
	if err := f.ledger.Register(context.Background()); err != nil {
		f.t.Fatal(err)
	}
	made, err := delivery.Reserve(context.Background(), f.db.Pool(pgtest.App), list...)
	if err != nil {
		f.t.Fatal(err)
	}
	ids := make([]string, n)
	for i, m := range made {
		ids[i] = m.ID
	}
	return ids
}

// ended waits until a delivery is finished or held for a person.
func (f *fixture) ended(id string) delivery.Entry {
	f.t.Helper()
	e := f.await("its end", id, func(e delivery.Entry) bool { return e.FinishedAt != nil || e.HeldAt != nil })
	f.quiet(e)
	return e
}

func (f *fixture) entry(id string) delivery.Entry {
	f.t.Helper()
	e, _, err := f.ledger.Show(context.Background(), id, true)
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

// await waits for something of a delivery.
func (f *fixture) await(what, id string, is func(delivery.Entry) bool) delivery.Entry {
	f.t.Helper()
	var e delivery.Entry
	if !pgtest.Wait(pgtest.Patience, func() bool { e = f.entry(id); return is(e) }) {
		f.t.Fatalf("waited in vain for %s: %+v", what, e)
	}
	return e
}

// quiet checks that no error repeats a secret or the payload.
func (f *fixture) quiet(e delivery.Entry) {
	f.t.Helper()
	for _, secret := range append(slices.Clone(f.Secrets), canary) {
		if strings.Contains(e.LastError+e.DoubtReason, secret) {
			f.t.Errorf("an error repeats a secret or the payload: %q %q", e.LastError, e.DoubtReason)
		}
	}
}

func everyDeliveryOnce(t *testing.T, f *fixture) {
	ids := f.reserve(25, nil)
	f.start()
	for _, id := range ids {
		e := f.ended(id)
		if e.SentAt == nil || e.Attempts != 1 {
			t.Errorf("%s after %d attempts: %s", e.Status, e.Attempts, e.LastError)
		}
		f.sentAsStored(e)
	}
	if n := len(f.Accepted()); n != len(ids) {
		t.Errorf("the server accepted %d, want %d", n, len(ids))
	}
	if !f.keyed && f.Reused != nil && f.Reused() != 0 {
		t.Errorf("%d requests came over a connection that had been used; without a key none may: one that was closed while it was idle cannot be told from one that took the request", f.Reused())
	}
}

// sentAsStored checks that some acceptance was of the stored bytes.
func (f *fixture) sentAsStored(e delivery.Entry) {
	f.t.Helper()
	if !slices.ContainsFunc(f.Accepted(), func(sent []byte) bool { return len(sent) > 0 && bytes.Contains(e.Request, sent) }) {
		f.t.Errorf("the server accepted nothing of what is stored:\n%q", e.Request)
	}
}

// A zero reservation calls nobody.
func withoutAReservation(t *testing.T, f *fixture) {
	out := f.Provider.Send(context.Background(), delivery.Reservation{})
	if out.String() != "refused" || f.Calls() != 0 || len(f.Accepted()) != 0 {
		t.Errorf("without a reservation: %s, %d calls", out, f.Calls())
	}
}

// While the server cannot be connected to nothing is in doubt and nothing dies.
func outage(t *testing.T, f *fixture) {
	f.Down()
	ids := f.reserve(3, nil)
	f.start()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, f.db.Pool(pgtest.Owner), `select coalesce(max(failures), 0) >= 3 from deed.pauses`)
	}) {
		t.Fatal("waited in vain for three failures")
	}
	if n := pgtest.One[int](t, f.db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where doubt_since is not null or attempts > 1`); n != 0 {
		t.Errorf("%d deliveries are in doubt or have lost an attempt though nothing was connected to", n)
	}
	f.Up()
	for _, id := range ids {
		if e := f.ended(id); e.SentAt == nil {
			t.Errorf("%s: %s", e.Status, e.LastError)
		}
	}
	if n := len(f.Accepted()); n != len(ids) {
		t.Errorf("the server accepted %d, want %d", n, len(ids))
	}
}

// What no request can be made of has failed, and nobody is called.
func payloadThatIsNone(t *testing.T, f *fixture) {
	ids := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Payload = json.RawMessage(`{"no such field": 1}`) })
	// A reservation would refuse it.
	f.db.Exec(t, pgtest.Owner, `update deed.channel_outbox set recipient = 'nowhere at all'`)
	f.start()
	if e := f.ended(ids[0]); e.Status != delivery.Failed || e.LastError == "" || f.Calls() != 0 {
		t.Errorf("%s with %q after %d calls", e.Status, e.LastError, f.Calls())
	}
}

// A connection that breaks at its second use is where client libraries repeat
// by themselves: every call that the server sees is an attempt that the ledger
// has counted.
func noRetryOfTheLibrary(t *testing.T, f *fixture) {
	first := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Key = delivery.NewKey(t.Name(), "first") })
	f.start()
	if e := f.ended(first[0]); e.SentAt == nil {
		t.Fatalf("%s: %s", e.Status, e.LastError)
	}
	f.Fail(ResetAccepted, 1)
	second := f.reserve(1, nil)
	if e := f.ended(second[0]); e.Attempts != f.Calls() {
		t.Errorf("the server saw %d calls of %d attempts", f.Calls(), e.Attempts)
	}
	if n := len(f.Accepted()); n != 2 {
		t.Errorf("%d accepted, want 2", n)
	}
}

// once has the server fail once, and judges what comes of it.
func once(t *testing.T, f *fixture, fault Fault, want expectation, guarantee delivery.Guarantee) {
	f.expect(fault)
	f.Fail(fault, 1)
	ids := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Guarantee = guarantee })
	started := time.Now()
	f.start()
	e := f.ended(ids[0])
	accepted, calls := len(f.Accepted()), f.Calls()
	acceptedFirst := strings.HasSuffix(string(fault), "Accepted") || fault == Garbage || fault == ServerError
	switch want {
	case fails:
		if e.Status != delivery.Failed || accepted != 0 || calls != 1 {
			t.Errorf("%s, %d accepted, %d calls; want failed, none and one: %s", e.Status, accepted, calls, e.LastError)
		}
	case stopped:
		if e.Status != delivery.Failed || accepted != 0 || calls != 1 || !f.suppressed() {
			t.Errorf("%s, %d accepted, %d calls, suppressed %t; want failed, none and one, and that it is: %s", e.Status, accepted, calls, f.suppressed(), e.LastError)
		}
	case skipped:
		if e.Status != delivery.Skipped || e.SkipReason == "" || accepted != 0 || calls != 1 {
			t.Errorf("%s for %q, %d accepted, %d calls; want skipped, none and one: %s", e.Status, e.SkipReason, accepted, calls, e.LastError)
		}
	case delivered:
		if e.SentAt == nil || accepted != 1 || calls != 1 {
			t.Errorf("%s, %d accepted, %d calls; want it sent once: %s", e.Status, accepted, calls, e.LastError)
		}
	case retried:
		if e.SentAt == nil || accepted != 1 || calls != 2 {
			t.Errorf("%s, %d accepted, %d calls; want it sent by the second call: %s", e.Status, accepted, calls, e.LastError)
		}
		if fault == ForNowAfter && time.Since(started) < 900*time.Millisecond {
			t.Errorf("Retry-After: 1 was not obeyed: all was over in %s", time.Since(started))
		}
	case doubtful:
		f.judgeDoubt(e, guarantee, acceptedFirst, accepted, calls)
	}
	if accepted > 0 {
		f.sentAsStored(e)
	}
}

// suppressed reports whether the recipient is, for everything.
func (f *fixture) suppressed() bool {
	f.t.Helper()
	return pgtest.One[bool](f.t, f.db.Pool(pgtest.Owner), `select exists (select from deed.suppressions where purpose = '' and expires_at is null)`)
}

// judgeDoubt is the table of docs/guarantees.md.
func (f *fixture) judgeDoubt(e delivery.Entry, guarantee delivery.Guarantee, acceptedFirst bool, accepted, calls int) {
	f.t.Helper()
	switch {
	case f.keyed:
		if e.SentAt == nil || accepted != 1 || calls < 2 {
			f.t.Errorf("with a key: %s, %d accepted, %d calls; want it repeated and accepted once: %s %s", e.Status, accepted, calls, e.LastError, e.DoubtReason)
		}
	case f.finds && acceptedFirst:
		if e.SentAt == nil || accepted != 1 || calls != 1 {
			f.t.Errorf("found again: %s, %d accepted, %d calls; want it proved after one call: %s %s", e.Status, accepted, calls, e.LastError, e.DoubtReason)
		}
	case guarantee == delivery.AtMostOnce:
		want := 0
		if acceptedFirst {
			want = 1
		}
		if e.HeldAt == nil || accepted != want || calls != 1 {
			f.t.Errorf("at most once: %s, held since %v, %d accepted, %d calls; want it held after one call: %s", e.Status, e.HeldAt, accepted, calls, e.LastError)
		}
	default:
		if e.SentAt == nil || accepted < 1 || calls != 2 {
			f.t.Errorf("at least once: %s, %d accepted, %d calls: %s", e.Status, accepted, calls, e.LastError)
		}
	}
}

// Deliver reserves one delivery of the harness, has it attempted, and returns
// what has become of it when it is finished or held.
func Deliver(t *testing.T, h Harness) delivery.Entry {
	t.Helper()
	f := setup(t, h)
	ids := f.reserve(1, nil)
	f.start()
	return f.ended(ids[0])
}

// DeliverMany reserves n deliveries of the harness and returns when all are
// sent.
func DeliverMany(t *testing.T, h Harness, n int) {
	t.Helper()
	f := setup(t, h)
	ids := f.reserve(n, nil)
	f.start()
	for _, id := range ids {
		if e := f.ended(id); e.SentAt == nil {
			t.Errorf("%s: %s %s", e.Status, e.LastError, e.DoubtReason)
		}
	}
}
