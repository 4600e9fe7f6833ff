package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// reconciler is one provider's deliveries in doubt as a source of work.
type reconciler struct {
	*source
	wake chan struct{}
	hand *hand
}

const reconcileAtOnce = 4

func (s *source) reconcile(ctx context.Context) error {
	usual := min(s.opts.Concurrency, reconcileAtOnce)
	r := &reconciler{source: s, wake: s.doubted, hand: newHand(&s.ledger.inHand, s.lanes, usual, s.opts.spare())}
	r.hand.stopping = ctx.Done()
	opts := s.workOptions(r.hand.places)
	opts.Wake = r.wake
	if s.batcher != nil {
		opts.Group = max(opts.Group, 2) // what was sent together is repeated together, whatever a call may take now
	}
	if err := work.Run(ctx, r, opts); err != nil {
		return fmt.Errorf("deed: doubts of %s: %w", s.name, err)
	}
	return nil
}

// told is a change that the database decided of a delivery without anybody
// being asked.
type told struct {
	row    *row
	Status Status `json:"status"`
	Held   bool   `json:"held"`
	Reason string `json:"reason"`
}

func readTold(w *row, found *string) (told, error) {
	if found == nil {
		return told{}, errors.New("claim_doubts: a delivery is told of, but not what became of it")
	}
	t := told{row: w}
	return t, json.Unmarshal([]byte(*found), &t)
}

// Limit lets doubts be looked at whatever is paused: what the provider is not
// needed for is settled all the same.
func (r *reconciler) Limit(n int) (int, time.Duration) {
	if r.hand.laden() {
		return 0, 50 * time.Millisecond
	}
	return min(n, 2*reconcileAtOnce), 0
}

// Extend renews the leases of held.
func (r *reconciler) Extend(ctx context.Context, held []*item) ([]*item, error) {
	return r.extend(ctx, held)
}

// Lost is as the source's.
func (r *reconciler) Lost(items []*item) { r.hand.drop(items...) }

// Exchange settles what was reconciled and takes over more.
func (r *reconciler) Exchange(ctx context.Context, done []work.Done[*item], n int) ([]*item, time.Duration, error) {
	for _, d := range done { // before the claim, as those of calls
		r.hand.drop(d.Item)
	}
	batch := &pgx.Batch{}
	st := r.queueSettle(batch, done)
	c := &claiming{}
	var decided []told
	if n > 0 {
		o := r.ledger.opts
		names, rooms, bytes, places := r.hand.ask()
		batch.Queue(query.ClaimDoubts, r.name, o.Worker, n, o.Lease.Seconds(), r.caps.Key == HasKey, r.finder != nil, r.caps.SettleDelay.Seconds(), o.MaxAttempts,
			r.caps.Kind, r.caps.Account, r.opts.Sandbox != "", names, rooms, bytes, places, r.batcher != nil,
			o.BaseRetry.Seconds(), []float64{o.JitterMin, o.JitterMax}).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				it := &item{}
				w := &it.row
				var id, found *string
				if err := rows.Scan(&id, &w.claim, &w.tenant, &w.workspace, &w.key, &w.channel, &w.lane, &w.recipient, &w.recipientID,
					(*[]byte)(&w.payload), &w.request, &w.guarantee, &w.attempts, &w.correlationID, &w.channelMsgID, &w.action, &w.calledAt, &found, &w.batch, &w.batchPlace, &w.batchSize); err != nil {
					return err
				}
				if id != nil && w.action == "told" {
					w.id = *id
					t, err := readTold(w, found)
					if err != nil {
						return err
					}
					decided = append(decided, t)
					continue
				}
				if err := c.add(it, id, found); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	begun := time.Now()
	if batch.Len() > 0 {
		if err := r.ledger.pool.SendBatch(ctx, batch).Close(); err != nil {
			return nil, 0, err
		}
	}
	took := time.Since(begun)
	r.account(st)
	r.tellDecisions(decided)
	r.hand.take(c)
	return c.items, r.hand.look(c, r.rest(took)), st.unrecorded()
}

// rest is how often doubts are looked for where there are none: beside an old snapshot a look steps over all that was
// called since, so it has a twentieth of the time, and comes once in a lease at least.
func (r *reconciler) rest(took time.Duration) time.Duration {
	return max(r.ledger.opts.PollInterval, min(20*took, r.ledger.opts.Lease))
}

// Do asks the provider about one delivery in doubt, or the members of a batch. Those
// have their turn when the first one's lane has: they are repeated whole or not at all,
// and one lane of a hundred would put all of them off until the key is forgotten.
func (r *reconciler) Do(ctx context.Context, items []*item) []error {
	slices.SortFunc(items, func(a, b *item) int { return a.batchPlace - b.batchPlace })
	r.hand.inTurn(ctx, items, []string{items[0].lane}, func(ctx context.Context, items []*item) {
		if items[0].batch == "" {
			r.ask(ctx, items[0])
			return
		}
		r.askTogether(ctx, items)
	})
	return nil
}

func (r *reconciler) ask(ctx context.Context, it *item) {
	it.kind = "release"
	if it.action == "look_up" {
		r.find(ctx, it)
		return
	}
	if r.holds(&it.row) {
		return
	}
	begun := time.Now()
	if !r.mayRepeat(ctx, it) || since(begun) >= r.repeatable() {
		return
	}
	crash.Point("repeating")
	r.call(ctx, it, true)
	crash.Point("repeated")
	r.afterRepeat(ctx, it)
}

// repeatable is how long after it was asked for a repeat may begin: later its lease
// is over, or half of what the stored deadline has to spare.
func (r *reconciler) repeatable() time.Duration { return min(r.ledger.opts.Lease, r.caps.KeyWindow/20) }

func (r *reconciler) afterRepeat(ctx context.Context, it *item) {
	if it.out.kind == kindOutage {
		it.kind = unrepeated
	}
	if r.finder != nil && slices.Contains([]string{"refused", "bad_address", "opted_out"}, it.kind) {
		// The repeat was refused, which says nothing about the first call.
		r.find(ctx, it)
	}
}

// mayRepeat asks the database right before the call: since the claim the
// recipient may have been suppressed, the delivery expired, the provider paused or
// served otherwise.
func (r *reconciler) mayRepeat(ctx context.Context, it *item) (may bool) {
	ctx, cancel := r.ledger.deadline(ctx)
	defer cancel()
	err := r.ledger.pool.QueryRow(ctx, query.MayRepeat, it.id, it.claim, r.caps.Kind, r.caps.Account, r.opts.Sandbox != "").Scan(&may)
	if err != nil {
		r.log.Warn("not asked whether a call may be repeated; nobody was called", "error", err, "delivery", it.id)
	}
	return may
}

// find looks a delivery up. What is not found may still be there: the
// guarantee decides then.
func (r *reconciler) find(ctx context.Context, it *item) {
	res := Reservation{&reservation{row: &it.row, repeat: true}} // never of the sandbox: doubts wait while it is on
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	defer res.of.over.Store(true)
	it.kind, it.out = "unknown", Unknown(errors.New("the look-up ended without an answer"))
	defer func() {
		if v := recover(); v != nil {
			it.out = Unknown(&work.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	found, err := r.finder.Find(ctx, res)
	ours := true
	if err == nil && found.Found && found.Alike {
		err = r.ledger.pool.QueryRow(ctx, query.IsOurs, it.id, found.MessageID).Scan(&ours)
	}
	switch {
	case err != nil:
		it.out = Unknown(fmt.Errorf("look-up: %w", err))
	case found.Found && !ours:
		it.kind, it.out = "undecided", Unknown(errors.New("what the provider shows may be another delivery's"))
	case found.Found:
		it.kind, it.out = "accepted", Accepted(found.MessageID)
	default:
		it.kind, it.out = "undecided", Unknown(errors.New("the provider does not show it, which proves nothing"))
	}
}

// tellDecisions logs what a claim of doubts decided.
func (r *reconciler) tellDecisions(list []told) {
	for _, t := range list {
		log := r.logOf(t.row).With("from", Sending, "to", t.Status, "attempts", t.row.attempts, "reason", t.row.withoutRecipient(t.Reason))
		switch {
		case t.Held:
			log.Error("delivery is held for a person: deed deliveries doubt lists it")
		case t.Status == Dead:
			log.Error("delivery is dead: its outcome is unknown, and its attempts are spent")
		case t.Status == Queued:
			log.Info("delivery is queued again, by its guarantee or from the sandbox")
		default:
			log.Warn("delivery is in doubt: the lease ran out during the call")
		}
	}
}
