package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// Subscription is the name of the projector's subscription of [Topic].
const Subscription = "projector"

// The codes that are looked for in logs and alerts.
const (
	GapDetected = "PROJECTOR_GAP_DETECTED" // P1: an event of a run is missing
	RunHalted   = "PROJECTOR_RUN_HALTED"   // P1: a run cannot be projected
	LagHigh     = "PROJECTOR_LAG_HIGH"     // P2: snapshots are more than five seconds behind
)

const (
	lagHigh       = 5 * time.Second
	staleEvery    = time.Second
	lagToldEvery  = time.Minute
	runsAtOnce    = 100
	messagesLimit = 1000
	statement     = 30 * time.Second // the deadline of one
	retainEvery   = time.Minute
	retainStep    = 10 * time.Minute // the deadline of one
	retainFor     = time.Second      // in a row: runs that miss an event are looked at in between, and others have a turn
)

// ProjectorOptions configures a [Projector]. The zero value works.
type ProjectorOptions struct {
	// Logger is told of runs that miss an event, and of snapshots that are behind.
	// Default: discard.
	Logger *slog.Logger

	// Retention is how long runs are kept that have ended; at least a day. [Projector.Run]
	// removes them. Default: for ever.
	Retention time.Duration
}

// Projector keeps the snapshots of runs: the sink of a subscription of [Topic]. A message is only a hint that
// a run has moved; what has happened is read from the log, beyond the newest
// snapshot, and each page of messages makes one new snapshot of each of its runs. So a repeat, and a
// projector that was killed, change nothing (R8): where it goes on is the subscription's position.
//
// A run of which an event is missing stops there, and it alone (R7): it is noted in
// deed.run_stale, and [Projector.Run] looks again every second until the gap has closed. So does one
// whose snapshot or events cannot be read, or whose snapshot the database refuses.
type Projector struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	keep time.Duration

	projected, stored, gaps atomic.Int64
	told                    atomic.Int64 // when the log last said that it is behind, in nanoseconds
}

// NewProjector makes one. pool's login holds deed_worker.
func NewProjector(pool *pgxpool.Pool, opts ProjectorOptions) *Projector {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Projector{pool: pool, log: opts.Logger, keep: opts.Retention}
}

// ProjectorStats are counters of a [Projector] since it was made.
type ProjectorStats struct {
	Events    int64 // projected
	Snapshots int64 // stored
	Gaps      int64 // found
}

// Stats returns p's counters.
func (p *Projector) Stats() ProjectorStats {
	return ProjectorStats{p.projected.Load(), p.stored.Load(), p.gaps.Load()}
}

// BatchSize is the most messages that one Deliver takes.
func (p *Projector) BatchSize() int { return messagesLimit }

// Deliver projects the runs that ms are of. An error is the database's, and no message's: it
// costs none an attempt.
func (p *Projector) Deliver(ctx context.Context, ms []deed.Message) []error {
	hints := map[string]int64{}
	oldest := time.Time{}
	for _, m := range ms {
		var e struct {
			RunID string `json:"runId"`
			Seq   int64  `json:"runSeq"`
		}
		if json.Unmarshal(m.Payload, &e) != nil || checkID("", e.RunID) != nil {
			continue // not of an append; what happened is in the log
		}
		id := strings.ToLower(e.RunID)
		hints[id] = max(hints[id], e.Seq)
		if oldest.IsZero() || m.CreatedAt.Before(oldest) {
			oldest = m.CreatedAt
		}
	}
	now, err := p.project(ctx, hints)
	if err != nil {
		outcomes := make([]error, len(ms))
		for i := range outcomes {
			outcomes[i] = deed.Unavailable(err, 0)
		}
		return outcomes
	}
	if lag := now.Sub(oldest); len(hints) > 0 && lag > lagHigh {
		if told := p.told.Load(); time.Now().UnixNano()-told > int64(lagToldEvery) && p.told.CompareAndSwap(told, time.Now().UnixNano()) {
			p.log.Warn("snapshots of runs are behind", "code", LagHigh, "lag", lag.Round(time.Millisecond))
		}
	}
	return nil
}

// Run looks at the runs that miss an event, every second, until ctx ends: one whose gap has
// closed goes on; at those that were passed over or redacted, whose snapshots it makes anew; and removes, once a minute, those that are past their retention. Any number of processes may do it.
func (p *Projector) Run(ctx context.Context) error {
	var looked time.Time
	more := false
	for work.Sleep(ctx, staleEvery) {
		if p.keep > 0 && (more || time.Since(looked) > retainEvery) {
			looked = time.Now()
			var err error
			if more, err = p.retain(ctx, retainFor); err != nil && ctx.Err() == nil {
				p.log.Warn("old runs were not removed; will try again", "error", sqlstate.WithHint(err))
			}
		}
		if err := p.retry(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("runs that miss an event were not looked at; will try again", "error", sqlstate.WithHint(err))
		}
	}
	return nil
}

// retain removes old runs, step by step, until there is nothing to do now, or there is more of it after so long.
func (p *Projector) retain(ctx context.Context, long time.Duration) (more bool, err error) {
	for began := time.Now(); ; {
		bounded, cancel := context.WithTimeout(ctx, retainStep)
		rows, err := p.pool.Query(bounded, query.Retain, p.keep.Seconds())
		did, week, n, waits := "", 0, int64(0), false
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&did, &week, &n}, func() error {
				waits = waits || did == "waits"
				p.log.Info("old runs", "did", did, "week", week, "runs", n)
				return nil
			})
		}
		cancel()
		if err != nil || did == "" || waits {
			return false, err
		}
		if time.Since(began) >= long {
			return true, nil
		}
	}
}

func (p *Projector) retry(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	rows, err := p.pool.Query(bounded, query.Stale)
	if err != nil {
		return err
	}
	hints := map[string]int64{}
	var id string
	var seq int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
		hints[id] = max(hints[id], seq)
		return nil
	}); err != nil {
		return err
	}
	_, err = p.project(ctx, hints)
	return err
}

// project brings the snapshots of runs level with the log, up to what was published of each
// at least; and says what time it is for the database.
func (p *Projector) project(ctx context.Context, hints map[string]int64) (now time.Time, err error) {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(hints)), runsAtOnce) {
		if now, err = p.projectSome(ctx, ids, hints); isOfARun(err) {
			now, err = p.projectEach(ctx, ids, hints)
		}
		if err != nil {
			return now, err
		}
	}
	return now, nil
}

// isOfARun says whether it is what a run has in it that cannot be read or stored: it would fail as
// often as it is tried, whatever the database's state.
func isOfARun(err error) bool {
	if _, ok := errors.AsType[pgx.ScanArgError](err); ok {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains([]string{"22", "23", "54"}, pg.Code[:min(2, len(pg.Code))])
}

// projectEach projects runs one by one, of which one cannot be: it halts, and it alone.
func (p *Projector) projectEach(ctx context.Context, ids []string, hints map[string]int64) (now time.Time, err error) {
	for _, id := range ids {
		if now, err = p.projectSome(ctx, []string{id}, hints); isOfARun(err) {
			now, err = p.halt(ctx, id, err)
		}
		if err != nil {
			return now, err
		}
	}
	return now, nil
}

// halt notes that a run cannot be projected beyond its newest snapshot.
func (p *Projector) halt(ctx context.Context, id string, why error) (now time.Time, err error) {
	bounded, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	var list [1]advance
	if now, err = p.newest(bounded, []string{id}, list[:]); err != nil {
		return now, err
	}
	a := &list[0]
	a.wrong = cmp.Or(a.wrong, why)
	var out stored
	out.add(id, a)
	return now, p.store(bounded, &out)
}

// advance is how far a run has come.
type advance struct {
	before, after Snapshot
	redacted      bool
	halted        bool // an event that is in the snapshot is known to be damaged: it waits for a rebuild
	gap           *GapError
	wrong         error // why it cannot be projected
	unread        bool  // its snapshot cannot be read
	whole         bool  // all that the log has of it has been read
}

// projectSome stores after each portion of events: a long run gets on in each, whatever becomes of the next one.
func (p *Projector) projectSome(ctx context.Context, ids []string, hints map[string]int64) (now time.Time, err error) {
	list := make([]advance, len(ids))
	for first := true; ; first = false {
		bounded, cancel := context.WithTimeout(ctx, statement)
		if first {
			now, err = p.newest(bounded, ids, list)
		}
		more := slices.ContainsFunc(list, func(a advance) bool { return !a.whole })
		if err == nil && more {
			err = p.read(bounded, ids, list)
		}
		if err == nil {
			err = p.storeAll(bounded, ids, list, hints)
		}
		cancel()
		if err != nil || !more {
			return now, err
		}
	}
}

// storeAll stores how far each has come.
func (p *Projector) storeAll(ctx context.Context, ids []string, list []advance, hints map[string]int64) error {
	var out stored
	for i := range list {
		a := &list[i]
		switch {
		case a.halted:
			continue
		case a.wrong != nil || a.gap != nil || !a.whole:
		case a.after.LastEventSeq < hints[ids[i]]: // it was there when it was published
			a.gap = &GapError{Run: ids[i], Expected: a.after.LastEventSeq + 1}
		}
		out.add(ids[i], a)
	}
	if err := p.store(ctx, &out); err != nil {
		return err
	}
	for i := range list {
		if a := &list[i]; a.wrong == nil {
			a.before = a.after
		}
	}
	return nil
}

// newest reads the snapshots that there are.
func (p *Projector) newest(ctx context.Context, ids []string, list []advance) (now time.Time, err error) {
	rows, err := p.pool.Query(ctx, query.Snapshots, ids)
	if err != nil {
		return now, err
	}
	i := 0
	var text []byte
	var last, newest, expected int64
	var redacted bool
	_, err = pgx.ForEachRow(rows, []any{&text, &last, &newest, &expected, &redacted, &now}, func() error {
		a := &list[i]
		if a.halted = expected > 0 && expected <= last; !a.halted && text != nil {
			a.before, a.wrong = readSnapshot(text, ids[i], last)
			a.unread = a.wrong != nil
		}
		a.after, a.redacted = a.before, redacted
		if !a.halted && a.wrong == nil && newest < last { // what is in the snapshot is not in the log any more
			a.gap = &GapError{Run: ids[i], Expected: newest + 1}
		}
		a.whole = a.halted || a.wrong != nil || newest <= last
		i++
		return nil
	})
	return now, err
}

// readSnapshot reads the one of a run after event number last. One that does not read is a
// snapshot of that event, of which nothing else is known.
func readSnapshot(text []byte, id string, last int64) (s Snapshot, err error) {
	if err = json.Unmarshal(text, &s); err == nil && s.RunID != id {
		err = fmt.Errorf("it is of run %q", s.RunID)
	} else if err == nil && s.LastEventSeq != last {
		err = fmt.Errorf("it is after event %d", s.LastEventSeq)
	}
	if err != nil {
		return Snapshot{LastEventSeq: last}, fmt.Errorf("the snapshot after event %d: %w", last, err)
	}
	return s, nil
}

// read applies the next events of those runs of which more may come.
func (p *Projector) read(ctx context.Context, ids []string, list []advance) error {
	var some []string
	var afters []int64
	var at []int
	for i := range list {
		if !list[i].whole {
			some, afters, at = append(some, ids[i]), append(afters, list[i].after.LastEventSeq), append(at, i)
		}
	}
	rows, err := p.pool.Query(ctx, query.Tails, some, afters, eventsAtOnce)
	if err != nil {
		return err
	}
	defer rows.Close()
	var events []Event // of the run n; a page may be of many, and what events say is large
	n, projected := 0, int64(0)
	apply := func() {
		a := &list[at[n]]
		before := a.after.LastEventSeq
		var err error
		a.after, err = a.after.Apply(events...)
		projected += a.after.LastEventSeq - before
		if gap, ok := errors.AsType[*GapError](err); ok {
			a.gap = gap
		} else {
			a.wrong = err
		}
		a.whole = err != nil || len(events) < eventsAtOnce
		clear(events)
		events, n = events[:0], n+1
	}
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return err
		}
		for some[n] != e.RunID { // both are in the order of the ids
			apply()
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for n < len(some) {
		apply()
	}
	p.projected.Add(projected)
	return nil
}

// stored is what a page of messages comes to.
type stored struct {
	runs, stale []string
	seqs        []int64
	snapshots   []string
	redacted    []bool
	expected    []int64
	got         []*int64
	why         []error // of those that cannot be projected
}

func (s *stored) add(id string, a *advance) {
	var text []byte
	if a.after.LastEventSeq > a.before.LastEventSeq && a.wrong == nil {
		text, a.wrong = json.Marshal(a.after)
	}
	switch {
	case a.wrong == nil:
	case a.unread: // the snapshot waits for a rebuild
		a.gap = &GapError{Run: id, Expected: a.before.LastEventSeq}
	default: // the event after it is there, and it is tried again from that on
		a.gap = &GapError{Run: id, Expected: a.before.LastEventSeq + 1, Got: a.before.LastEventSeq + 1}
	}
	if text != nil && a.wrong == nil {
		s.runs, s.seqs, s.snapshots, s.redacted = append(s.runs, id), append(s.seqs, a.after.LastEventSeq), append(s.snapshots, string(text)), append(s.redacted, a.redacted)
	}
	if a.gap != nil {
		s.stale, s.expected, s.got, s.why = append(s.stale, id), append(s.expected, a.gap.Expected), append(s.got, nonZero(a.gap.Got)), append(s.why, a.wrong)
	}
}

// store stores it in one statement, and tells of runs that miss an event since.
func (p *Projector) store(ctx context.Context, out *stored) error {
	if len(out.runs) == 0 && len(out.stale) == 0 {
		return nil
	}
	crash.Point("projected")
	rows, err := p.pool.Query(ctx, query.Store, out.runs, out.seqs, out.snapshots, out.redacted, out.stale, out.expected, out.got)
	if err != nil {
		return err
	}
	since, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	crash.Point("stored")
	p.stored.Add(int64(len(out.runs)))
	for _, id := range since {
		n := slices.Index(out.stale, id)
		p.gaps.Add(1)
		if why := out.why[n]; why != nil {
			p.log.Error("a run cannot be projected; its snapshot stays as it is until it can, or the run is rebuilt", "code", RunHalted, "run", id, "error", sqlstate.WithHint(why))
			continue
		}
		p.log.Error("a run misses an event; its snapshot stays as it is until it is there, or the run is rebuilt",
			"code", GapDetected, "run", id, "expected", out.expected[n], "got", deref(out.got[n]))
	}
	return nil
}

func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}
