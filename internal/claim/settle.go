package claim

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// Settlement is what the messages of one claim have come to. A claim's number is
// the fence under which its messages may be finished, so outcomes are recorded
// claim by claim: what another worker has claimed since carries another number,
// and the statements pass it over.
type Settlement struct {
	// Set by Settle.
	claim    int64
	finished []int64   // numbers of what was delivered
	failed   []*Item   // what was not, or was not attempted
	outcomes []Outcome // of failed, one each

	// Set by the answers of the statements; to be believed once the transaction has
	// committed.
	recorded int       // how many of finished the database still had under this claim
	verdicts []verdict // about those of failed that it still had; the others are another's
}

// verdict is what deed.fail made of an outcome.
type verdict struct {
	i, attempts int // the message is failed[i]
	dead        bool
	due         *time.Time // of the next attempt
}

// Settle groups outcomes by claim, in the order in which the claims first occur.
func Settle(done []work.Done[*Item]) []*Settlement {
	byClaim := map[int64]*Settlement{}
	var list []*Settlement
	for _, d := range done {
		st := byClaim[d.Item.Claim]
		if st == nil {
			st = &Settlement{claim: d.Item.Claim}
			byClaim[d.Item.Claim] = st
			list = append(list, st)
		}
		if d.Err == nil && !d.Released {
			st.finished = append(st.finished, d.Item.Seq)
			continue
		}
		st.failed = append(st.failed, d.Item)
		st.outcomes = append(st.outcomes, outcomeOf(d))
	}
	return list
}

func outcomeOf(d work.Done[*Item]) (o Outcome) {
	if d.Err != nil {
		o = OutcomeOf(d.Err)
	}
	if d.Released { // whatever an attempt says that a stop has cut short, if there was one
		o.Kind, o.After = Release, nil
	}
	return o
}

// Record adds to the batch what records the settlements. Recording one again
// changes nothing, as the rows are gone or no longer under this claim; of what was
// finished the database says then what it said before.
func (s *Subscription) Record(batch *pgx.Batch, settlements []*Settlement) {
	for _, st := range settlements {
		if len(st.finished) > 0 {
			s.queueFinish(batch, st)
		}
		if len(st.failed) > 0 {
			s.queueFail(batch, st)
		}
	}
}

// queueFinish has a receipt written for what was delivered, and its rows taken away.
// With how many have failed the receipt says how large the batch was.
func (s *Subscription) queueFinish(batch *pgx.Batch, st *Settlement) {
	batch.Queue(query.Finish, s.ID, st.claim, st.finished, len(st.failed)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&st.recorded)
	})
}

// queueFail has the database decide what an outcome means: it knows the attempts, how
// many there may be and the back-off. It answers for the rows that are still this
// claim's, and in an order of its own.
func (s *Subscription) queueFail(batch *pgx.Batch, st *Settlement) {
	ids := make([]int64, len(st.failed))
	texts, kinds := make([]string, len(ids)), make([]string, len(ids))
	after := make([]*float64, len(ids))
	byID := make(map[int64]int, len(ids))
	for i, it := range st.failed {
		ids[i], byID[it.Seq] = it.Seq, i
		texts[i], kinds[i], after[i] = st.outcomes[i].Text, string(st.outcomes[i].Kind), st.outcomes[i].After
	}
	batch.Queue(query.Fail, s.ID, st.claim, ids, texts, after, kinds).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var seq int64
			var v verdict
			if err := rows.Scan(&seq, &v.attempts, &v.dead, &v.due); err != nil {
				return err
			}
			v.i = byID[seq]
			st.verdicts = append(st.verdicts, v)
		}
		return rows.Err()
	})
}

// Account counts and logs what has been recorded, once it has committed: before,
// the same outcomes may be brought again. ctx bounds only what it asks about
// refusals.
func (s *Subscription) Account(ctx context.Context, settlements []*Settlement, done []work.Done[*Item]) {
	for _, st := range settlements {
		s.Counters.Delivered.Add(int64(st.recorded))
		if stale := len(st.finished) - st.recorded; stale > 0 {
			s.Counters.StaleFinishes.Add(int64(stale))
			// They were delivered here, and are again where the claim is now: a lease that
			// runs out under a delivery costs a repeat, never a message.
			why := "finish refused: the claim had gone to another worker"
			if s.findRemoved(ctx) {
				why = "finish refused: the subscription was removed meanwhile"
			}
			s.Log.Warn(why, "messages", stale, "claim", st.claim)
		}
		for _, v := range st.verdicts {
			s.accountFailure(st.failed[v.i], st.outcomes[v.i], v)
		}
	}
	if !s.Log.Enabled(context.Background(), slog.LevelDebug) {
		return // what a line would say costs more than the look
	}
	for _, d := range done {
		if d.Err == nil && !d.Released {
			s.LogOf(&d.Item.Message).Debug("delivered", "attempt", d.Item.Attempt)
		}
	}
}

// accountFailure counts what counts as an attempt. An outage is logged once, by the
// destination; of each message it is only for who looks closely.
func (s *Subscription) accountFailure(it *Item, o Outcome, v verdict) {
	switch {
	case o.Kind == Release:
	case v.dead:
		s.AccountDeath(&it.Message, o, v.attempts)
	case o.Kind == Outage:
		s.LogOf(&it.Message).Debug("message goes back: the sink is unavailable", "error", o.Text)
	default:
		s.AccountRetry(&it.Message, o, "attempts", v.attempts, "due", v.due)
	}
}

// AccountDeath counts and logs that a message is dead: the one outcome that somebody
// has to look at.
func (s *Subscription) AccountDeath(m *Message, o Outcome, attempts int) {
	s.Counters.Dead.Add(1)
	s.LogOf(m).Error("message is dead", "error", o.Text, "attempts", attempts)
}

// AccountRetry counts and logs that an attempt has failed and another follows.
func (s *Subscription) AccountRetry(m *Message, o Outcome, about ...any) {
	s.Counters.Failed.Add(1)
	log := s.LogOf(m)
	if o.Stack != "" {
		log = log.With("stack", o.Stack)
	}
	log.Warn("attempt failed; the message is retried", append([]any{"error", o.Text}, about...)...)
}

// AccountClaim counts messages that were claimed, and logs those whose last claim
// had run out.
func (s *Subscription) AccountClaim(items []*Item) {
	s.Counters.Claimed.Add(int64(len(items)))
	for _, it := range items {
		if it.Lost > 0 {
			s.Counters.TakenOver.Add(1)
			s.LogOf(&it.Message).Warn("took over a claim that had run out", "lost_claims", it.Lost)
		}
	}
}

// Extend renews the claims of held, in one round trip, and returns those that are
// lost. It waits for nobody's lock, and so takes its own in any order.
func (s *Subscription) Extend(ctx context.Context, held []*Item) ([]*Item, error) {
	batch := &pgx.Batch{}
	byClaim := map[int64][]int64{}
	for _, it := range held {
		byClaim[it.Claim] = append(byClaim[it.Claim], it.Seq)
	}
	// By both, as a message may be in hand twice: under a claim that was lost, and
	// whose attempt has not returned, and under a newer one of this process.
	type fence struct{ claim, seq int64 }
	still, passed := make(map[fence]bool, len(held)), map[fence]bool{}
	for claim, seqs := range byClaim {
		batch.Queue(query.Extend, s.ID, claim, seqs, s.Lease.Seconds()).QueryRow(func(row pgx.Row) error {
			var kept []int64
			if err := row.Scan(&kept); err != nil {
				return err
			}
			for _, id := range kept {
				still[fence{claim, id}] = true
			}
			return nil
		})
		batch.Queue(query.Unrenewed, s.ID, claim, seqs, s.Lease.Seconds()).QueryRow(func(row pgx.Row) error {
			var ids []int64
			if err := row.Scan(&ids); err != nil {
				return err
			}
			for _, id := range ids {
				passed[fence{claim, id}] = true
			}
			return nil
		})
	}
	// Why some are lost is asked with it: until this returns they are taken for held.
	var removed []int
	batch.Queue(query.Removed, []int{s.ID}).QueryRow(func(row pgx.Row) error { return row.Scan(&removed) })
	if err := s.DB.SendBatch(ctx, batch).Close(); err != nil {
		return nil, sqlstate.WithHint(err)
	}
	if len(removed) > 0 {
		s.becomeRemoved()
	}
	var lost, unrenewed []*Item
	for _, it := range held {
		switch at := (fence{it.Claim, it.Seq}); {
		case !still[at]:
			lost = append(lost, it)
		case passed[at]:
			unrenewed = append(unrenewed, it)
		}
	}
	if len(unrenewed) > 0 {
		return lost, &work.Unrenewed[*Item]{Items: unrenewed}
	}
	return lost, nil
}

// Lost counts claims that are lost, and says so.
func (s *Subscription) Lost(items []*Item) {
	s.Counters.LostClaims.Add(int64(len(items)))
	why := "claims lost to another worker"
	if s.IsRemoved() {
		why = "claims lost: the subscription was removed meanwhile"
	}
	s.Log.Warn(why, "messages", len(items))
}

// NextDue is in how long the next of what is pending is due or its lease ends, by the
// database's clock and at most an hour, and zero or less if there is something to claim
// now; false: nothing is pending, or the database did not say.
func (s *Subscription) NextDue(ctx context.Context) (in time.Duration, ok bool, err error) {
	var seconds *float64
	if err := s.DB.QueryRow(ctx, query.NextDue, s.ID).Scan(&seconds); err != nil || seconds == nil {
		return 0, false, err
	}
	// A message may be scheduled for the year 9999, which is more than a Duration holds.
	return time.Duration(min(*seconds, 3600) * float64(time.Second)), true, nil
}
