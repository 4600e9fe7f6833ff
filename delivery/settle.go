package delivery

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/work"
)

// settlement is a batch of outcomes, and what the database made of them.
type settlement struct {
	items   []*item
	results map[string]result // by delivery; filled when the batch is answered
	late    map[string]late   // what came when the delivery was another's or finished
	busy    []*item           // of which nothing is recorded: somebody has their address in a transaction that is open
}

// unrecorded is the error that says which are to be brought again by themselves, if any.
func (st *settlement) unrecorded() error {
	if len(st.busy) == 0 {
		return nil
	}
	return &work.Unrecorded[*item]{Items: st.busy}
}

// result is what the database made of one: the status that it has now, not the
// outcome that was given.
type result struct {
	status  Status
	tries   int
	due     *time.Time
	inDoubt bool
	held    bool
	resumed []string // whose pauses are over; "" is the provider
	was     Status   // "": it has not changed, and stands in no audit row
}

// late is what a delivery has become of which an outcome came late, and what it was if that was
// proof of something.
type late struct{ was, is Status }

// queueSettle adds to a batch what became of deliveries. The order counts: pauses
// first, since a probe that failed must not end its pause; what is kept of calls
// that did not succeed, before they are acted upon; the outcomes; and of what
// succeeded only what came late, which is known afterwards. What an attempt has
// settled already is left out. The settlement is filled when the batch is
// answered; a delivery without a result was no longer this claim's.
func (s *source) queueSettle(batch *pgx.Batch, done []work.Done[*item]) *settlement {
	st := &settlement{results: map[string]result{}, late: map[string]late{}}
	var ids, kinds []string
	var messages, errs []*string
	var after []*float64
	var claims []int64
	for _, d := range done {
		it := d.Item
		if it.kind == settled {
			continue
		}
		if it.kind == "" {
			it.kind = "release" // it was never begun
		}
		// What was claimed to be repeated and was not is in doubt as before, and does
		// not go back among those that are due.
		if it.kind == "release" && it.action == "repeat" {
			it.kind = unrepeated
		}
		st.items = append(st.items, it)
		ids, claims, kinds = append(ids, it.id), append(claims, it.claim), append(kinds, it.kind)
		var message, text *string
		if it.out.messageID != "" {
			m := clip(it.out.messageID)
			message = &m
		}
		// Stored texts are bounded, and name no addresses of the network.
		if err := it.out.err; err != nil {
			t := errortext.Stored(err.Error(), maxError, it.lane)
			text = &t
		}
		// The provider's wish for a time, up to a day; for a look-up, the time that its
		// own records take to be complete.
		var seconds *float64
		if wait := it.out.after; wait > 0 {
			v := min(wait, 24*time.Hour).Seconds()
			seconds = &v
		} else if (it.kind == "unknown" || it.kind == "in_use") && s.caps.SettleDelay > 0 {
			v := s.caps.SettleDelay.Seconds()
			seconds = &v
		}
		messages, errs, after = append(messages, message), append(errs, text), append(after, seconds)
	}
	if len(ids) == 0 {
		return st
	}
	s.queuePauses(batch, st.items)
	s.queueNotes(batch, st.items, st.late, false)
	o := s.ledger.opts
	busy := map[string]bool{}
	// One row of each that was still this claim's; who has none gets no result.
	batch.Queue(query.Settle, ids, claims, kinds, messages, errs, after, o.Worker, o.BaseRetry.Seconds(), []float64{o.JitterMin, o.JitterMax}, o.MaxAttempts,
		s.opts.Defer.Seconds(), s.opts.GiveUpAfter.Seconds()).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			var r result
			var isBusy bool
			if err := rows.Scan(&id, &r.status, &r.tries, &r.due, &r.inDoubt, &r.held, &r.resumed, &r.was, &isBusy); err != nil {
				return err
			}
			if isBusy {
				busy[id] = true
				continue
			}
			st.results[id] = r
		}
		for _, it := range st.items {
			if busy[it.id] {
				st.busy = append(st.busy, it)
			}
		}
		return rows.Err()
	})
	s.queueNotes(batch, st.items, st.late, true)
	return st
}
