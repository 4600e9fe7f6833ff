package deed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
)

// outcome is what an attempt came to, in deed.fail's words.
type outcome struct {
	kind  string // retry, discard, outage or release
	text  string
	after *float64 // seconds
	stack string   // of a panic
}

// describe reads an error once, inside the attempt: the methods of a handler's
// error are the handler's code, and may panic.
func describe(err error) (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			o = outcome{kind: "retry", text: fmt.Sprintf("the handler's error cannot be read: panic: %v", v)}
		}
	}()
	o = outcome{kind: "retry", text: clipError(err)}
	if p, ok := errors.AsType[*work.Panic](err); ok {
		o.stack = string(p.Stack)
	}
	st, ok := errors.AsType[*steer](err)
	if !ok {
		return o
	}
	seconds := st.after.Seconds()
	switch st.kind {
	case steerPermanent:
		o.kind = "discard"
	case steerUnavailable:
		// The subscription pauses as a whole; the message keeps its place.
		o.kind = "outage"
	default:
		o.after = &seconds
	}
	return o
}

// settlement is what one claim's messages have come to: outcomes are recorded claim
// by claim, since a claim is the fence under which its messages may be finished.
// settle makes it, the answers of the statements complete it.
type settlement struct {
	claim    int64
	finished []int64
	failed   []*item
	outcomes []outcome // of failed

	recorded int       // of finished, as the database says
	failures []failure // as the database says
}

// failure is what deed.fail made of an outcome.
type failure struct {
	i, attempts int // the message is failed[i]
	dead        bool
	due         *time.Time
}

// settle groups outcomes by claim, since each statement is fenced by one.
func settle(done []work.Done[*item]) []*settlement {
	byClaim := map[int64]*settlement{}
	var list []*settlement
	for _, d := range done {
		st := byClaim[d.Item.claim]
		if st == nil {
			st = &settlement{claim: d.Item.claim}
			byClaim[d.Item.claim] = st
			list = append(list, st)
		}
		if d.Err == nil && !d.Released {
			st.finished = append(st.finished, d.Item.msg.Seq)
			continue
		}
		st.failed = append(st.failed, d.Item)
		st.outcomes = append(st.outcomes, outcomeOf(d))
	}
	return list
}

func outcomeOf(d work.Done[*item]) outcome {
	o := outcome{}
	switch known, ok := d.Err.(*described); {
	case ok:
		o = known.outcome
	case d.Err != nil:
		o = describe(d.Err) // the loop's own
	}
	if d.Released {
		o.kind, o.after = "release", nil
	}
	return o
}

// described is an error that has been read.
type described struct {
	error
	outcome outcome
}

func (s *source) queueSettlements(batch *pgx.Batch, settlements []*settlement) {
	for _, st := range settlements {
		s.queueSettlement(batch, st)
	}
}

func (s *source) queueSettlement(batch *pgx.Batch, st *settlement) {
	id := s.id.Load()
	if len(st.finished) > 0 {
		batch.Queue(query.Finish, id, st.claim, st.finished, len(st.failed)).QueryRow(func(row pgx.Row) error {
			return row.Scan(&st.recorded)
		})
	}
	if len(st.failed) == 0 {
		return
	}
	ids := make([]int64, len(st.failed))
	texts, kinds := make([]string, len(ids)), make([]string, len(ids))
	after := make([]*float64, len(ids))
	byID := make(map[int64]int, len(ids))
	for i, it := range st.failed {
		ids[i], byID[it.msg.Seq] = it.msg.Seq, i
		texts[i], kinds[i], after[i] = st.outcomes[i].text, st.outcomes[i].kind, st.outcomes[i].after
	}
	batch.Queue(query.Fail, id, st.claim, ids, texts, after, kinds).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var seq int64
			var f failure
			if err := rows.Scan(&seq, &f.attempts, &f.dead, &f.due); err != nil {
				return err
			}
			f.i = byID[seq]
			st.failures = append(st.failures, f)
		}
		return rows.Err()
	})
}

// account counts and logs what has been recorded, once it is committed.
func (s *source) account(settlements []*settlement, done []work.Done[*item]) {
	for _, st := range settlements {
		s.stats.delivered.Add(int64(st.recorded))
		if stale := len(st.finished) - st.recorded; stale > 0 {
			s.stats.staleFinishes.Add(int64(stale))
			why := "finish refused: the claim had gone to another worker"
			if s.removed.Load() {
				why = "finish refused: the subscription was removed meanwhile"
			}
			s.log.Warn(why, "messages", stale, "claim", st.claim)
		}
		for _, f := range st.failures {
			s.accountFailure(st, f)
		}
	}
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, d := range done {
		if d.Err == nil && !d.Released {
			s.log.With(attrs(d.Item)...).Debug("delivered", "attempt", d.Item.msg.Attempt)
		}
	}
}

func (s *source) accountFailure(st *settlement, f failure) {
	o := st.outcomes[f.i]
	log := s.log.With(attrs(st.failed[f.i])...)
	switch {
	case o.kind == "release":
	case f.dead:
		s.stats.dead.Add(1)
		log.Error("message is dead", "error", o.text, "attempts", f.attempts)
	case o.kind == "outage":
		log.Debug("message goes back: the sink is unavailable", "error", o.text)
	default:
		s.stats.failed.Add(1)
		if o.stack != "" {
			log = log.With("stack", o.stack)
		}
		log.Warn("attempt failed; the message is retried", "error", o.text, "attempts", f.attempts, "due", f.due)
	}
}
