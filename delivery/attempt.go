package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// Limit stops claims while the provider is somebody else's, and while there is
// enough in hand.
func (s *source) Limit(n int) (int, time.Duration) {
	if wait := s.replaced(); wait > 0 {
		return 0, wait
	}
	if s.hand.laden() {
		return 0, 50 * time.Millisecond
	}
	if n = s.hand.most(min(n, s.ledger.opts.ClaimBatch)); n == 0 {
		return 0, 50 * time.Millisecond
	}
	return n, 0
}

// Exchange settles outcomes and claims more, in one round trip and one
// transaction: pauses first, then what is kept of calls, the outcomes, and last
// the claim, which sees what all of those have made due. What is told of them in
// the log, and what is counted out of hand, waits for the commit. After an error
// work.Run gives the same outcomes again, which is harmless: deed.settle does
// nothing to a row whose claim is no longer the one named.
func (s *source) Exchange(ctx context.Context, done []work.Done[*item], n int) ([]*item, time.Duration, error) {
	if len(done) == 0 && n == 0 {
		return nil, 0, nil
	}
	// Before the claim, which is told what each lane may take: their calls have ended, or were never made.
	for _, d := range done {
		s.hand.drop(d.Item)
	}
	batch := &pgx.Batch{}
	st := s.queueSettle(batch, done)
	c := &claiming{}
	if n > 0 {
		c = s.queueClaim(batch, n)
	}
	if batch.Len() > 0 {
		if err := s.ledger.pool.SendBatch(ctx, batch).Close(); err != nil {
			return nil, 0, err
		}
	}
	s.account(st)
	s.hand.take(c)
	s.tellClaim(c)
	if n == 0 || len(c.items) > 0 {
		return c.items, 0, st.unrecorded()
	}
	return nil, s.hand.look(c, s.ledger.opts.PollInterval), st.unrecorded()
}

// Do attempts one delivery, or several that one call makes. What came of it is in the item, never in the
// error: also a call that was cut short has an outcome.
func (s *source) Do(ctx context.Context, items []*item) []error {
	s.hand.inTurn(ctx, items, lanesOf(items), func(ctx context.Context, items []*item) {
		if len(items) == 1 {
			s.attempt(ctx, items[0])
			s.fit(1, 1, false)
			return
		}
		s.attemptTogether(ctx, items)
	})
	return nil
}

// attempt writes that a call is about to be made, makes it, and leaves in it.kind
// what deed.settle is to do. Up to the call the word is "release", which counts
// nothing, so that whatever returns early gives the delivery back; from then on it is
// the call's. From the moment that "sending" is committed until an outcome is, a crash
// leaves a doubt.
func (s *source) attempt(ctx context.Context, it *item) {
	it.kind = "release"
	if s.holds(&it.row) {
		return
	}
	if !s.prepare(ctx, it) {
		return
	}
	if s.opts.Sandbox != "" {
		it.box = s.forSandbox(ctx, it)
	}
	begun := time.Now()
	verdicts, err := s.writeAttempt(ctx, "", it)
	v := verdicts[it.id]
	v.err = err
	if !s.mayCall(ctx, it, v, s.tooLate(begun)) {
		return
	}
	s.idle.Store(false) // the name is this ledger's
	crash.Point("calling")
	s.call(ctx, it, false)
	crash.Point("called")
}

// errNotMade is of a request whose making ended its goroutine.
var errNotMade = errors.New("making its request did not return, as of a call of runtime.Goexit")

// prepare makes the request, and reports whether there is one. What ends the goroutine meanwhile
// fails the delivery, as a panic of who composes or renders does: it would be given back for ever.
func (s *source) prepare(ctx context.Context, it *item) bool {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			panic(v) // the loop says with what
		} else if !returned {
			it.kind, it.out = "unusable", Refused(errNotMade)
		}
	}()
	made := s.makeRequest(ctx, it)
	returned = true
	return made
}

// makeRequest makes the request, once: it is stored with "sending", and a later
// attempt, by whatever version of the program, sends the same bytes. Where there is none
// it says in the item what becomes of the delivery.
func (s *source) makeRequest(ctx context.Context, it *item) bool {
	if it.at.IsZero() { // else its request has been made: it fell out of a batch
		it.at = time.Now().UTC().Truncate(time.Millisecond)
	}
	if it.request != nil && (it.run == "" || s.opts.Sandbox == "") {
		return true
	}
	link := unsubscribe(s.ledger.opts.Links, &it.row, it.at)
	if it.run != "" && !s.compose(ctx, it, link) {
		return false
	}
	if it.request != nil {
		return true
	}
	draft := it.draft()
	draft.Unsubscribe = link
	err := s.fill(ctx, it, &draft)
	if errors.Is(err, errNotRead) {
		s.log.Warn("files of a delivery not read; nobody was called", "error", err, "delivery", it.id)
		it.notMade(err)
		return false
	}
	var request []byte
	if err == nil {
		request, err = s.render(it.channel, draft)
	}
	if err != nil {
		it.kind, it.out = "unusable", Refused(err)
		return false
	}
	it.request = request
	return true
}

// tooLate reports whether the lease of an attempt that began to be written at begun
// may be over: somebody may have settled it as in doubt.
func (s *source) tooLate(begun time.Time) bool { return since(begun) >= s.ledger.opts.Lease }

// mayCall reports whether an attempt may call, and says of one that may not what
// became of it.
func (s *source) mayCall(ctx context.Context, it *item, v verdict, late bool) bool {
	switch {
	case v.err != nil:
		// It may have been written; then release takes it back.
	case v.claim > it.claim:
		// Its claim was lost while it waited, and a newer one of this process was written in the same statement: what is
		// said is said to that one, and in the database its batch is without it.
		it.kind = settled
	case v.status == "sending" && late:
	case v.status == "sending":
		it.attempts = v.attempts
		return true
	case v.status == "skipped":
		it.kind = settled
		s.logOf(&it.row).Info("delivery skipped", "from", Queued, "to", Skipped, "attempts", v.attempts, "reason", v.why)
	case v.why == "paused", v.why == "quiet", v.why == "":
		it.kind = settled // since it was claimed, and it has been let go
	default:
		it.kind = settled // it has been let go
		s.notOurs(ctx, it, v.why)
	}
	return false
}

// errNoOutcome is of a call that has ended its goroutine.
var errNoOutcome = errors.New("the call ended without an outcome")

// call makes the one call of an attempt, and judges it. A call that panics, is cut off
// or ends its goroutine has an unknown outcome: the provider may have taken it.
func (s *source) call(ctx context.Context, it *item, repeat bool) {
	defer s.judge(it)
	if !s.opts.serves(it.tenant) {
		it.uncalled(Refused(fmt.Errorf("the provider %s does not serve this tenant; see its tenants", s.name)))
		return
	}
	if it.box != nil {
		if it.box.err != nil {
			it.uncalled(marked(NotNow(it.box.err, 0)))
			return
		}
		defer func() { it.out = marked(it.out) }()
	}
	// The one place where the right to call is made. It ends with the call: an
	// adapter that keeps it finds no request in it.
	r := Reservation{&reservation{row: &it.row, sandbox: it.box, repeat: repeat}}
	ctx, cancel := context.WithTimeout(deed.WithTrace(ctx, deed.Trace{CorrelationID: it.correlationID}), s.opts.Timeout)
	defer cancel()
	defer r.of.over.Store(true)
	begun := time.Now()
	defer func() {
		it.made = &made{out: it.out, took: max(0, since(begun)), at: time.Now(), box: it.box != nil}
		if s.caps.Key == HasKey || it.box != nil {
			it.made.key = r.Key()
		}
	}()
	it.out = Unknown(errNoOutcome)
	ended := s.timed(it)
	defer func() { ended(it.out) }()
	defer func() {
		if v := recover(); v != nil {
			p := &work.Panic{Value: v, Stack: debug.Stack()}
			it.out, it.stack = Unknown(p), string(p.Stack)
		}
	}()
	it.out = s.provider.Send(ctx, r)
}

// uncalled leaves an outcome of an attempt that calls nobody. It counts, so that what is kept of calls has it as well.
func (it *item) uncalled(out Outcome) {
	it.out, it.made = out, &made{out: out, at: time.Now(), box: it.box != nil}
}

// timed is told that the call to the provider of these deliveries begins; what it
// returns is told what came of it.
func (s *source) timed(items ...*item) (ended func(Outcome)) {
	names := slices.DeleteFunc(lanesOf(items), func(name string) bool { return name == "" })
	if len(names) == 0 || items[0].place == nil {
		return func(Outcome) {}
	}
	begun, patience := time.Now(), s.lanes.patience()
	hangs := time.AfterFunc(patience, func() { s.lanes.hang(begun, names) })
	moves := time.AfterFunc(min(patience, longestUsual), items[0].place.move)
	return func(o Outcome) {
		moves.Stop()
		inTime := hangs.Stop()
		if !inTime {
			s.lanes.hangsNoMore()
		}
		for _, name := range names {
			s.lanes.ended(name, !o.unanswered(), inTime, time.Since(begun))
		}
	}
}
