package run

import (
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
// deed.run_stale, and [Projector.Run] looks again every second until the gap has closed.
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
// closed goes on; and removes, once a minute, those that are past their retention. Any number of processes may do it.
func (p *Projector) Run(ctx context.Context) error {
	var looked time.Time
	for work.Sleep(ctx, staleEvery) {
		if p.keep > 0 && time.Since(looked) > retainEvery {
			looked = time.Now()
			if err := p.retain(ctx); err != nil && ctx.Err() == nil {
				p.log.Warn("old runs were not removed; will try again", "error", sqlstate.WithHint(err))
			}
		}
		if err := p.retry(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("runs that miss an event were not looked at; will try again", "error", sqlstate.WithHint(err))
		}
	}
	return nil
}

// retain removes old runs, step by step, until there is nothing to do now.
func (p *Projector) retain(ctx context.Context) error {
	for {
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
			return err
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
		hints[id] = seq
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
		bounded, cancel := context.WithTimeout(ctx, statement)
		now, err = p.projectSome(bounded, ids, hints)
		cancel()
		if err != nil {
			return now, err
		}
	}
	return now, nil
}

// advance is how far a run has come.
type advance struct {
	before, after Snapshot
	newest        int64 // the number of the newest event in the log
	redacted      bool
	halted        bool // an event that is in the snapshot is known to be damaged: it waits for a rebuild
	gap           *GapError
	whole         bool // all that the log has of it has been read
}

func (p *Projector) projectSome(ctx context.Context, ids []string, hints map[string]int64) (now time.Time, err error) {
	list := make([]advance, len(ids))
	if now, err = p.newest(ctx, ids, list); err != nil {
		return now, err
	}
	for slices.ContainsFunc(list, func(a advance) bool { return !a.whole }) {
		if err := p.read(ctx, ids, list); err != nil {
			return now, err
		}
	}
	var out stored
	for i := range list {
		a := &list[i]
		switch {
		case a.halted:
			continue
		case a.newest < a.before.LastEventSeq: // what is in the snapshot is not in the log any more
			a.gap = &GapError{Run: ids[i], Expected: a.newest + 1}
		case a.gap == nil && a.after.LastEventSeq < hints[ids[i]]: // it was there when it was published
			a.gap = &GapError{Run: ids[i], Expected: a.after.LastEventSeq + 1}
		}
		if err := out.add(ids[i], a); err != nil {
			return now, err
		}
	}
	return now, p.store(ctx, &out)
}

// newest reads the snapshots that there are.
func (p *Projector) newest(ctx context.Context, ids []string, list []advance) (now time.Time, err error) {
	rows, err := p.pool.Query(ctx, query.Snapshots, ids)
	if err != nil {
		return now, err
	}
	i := 0
	var text []byte
	var newest, expected int64
	var redacted bool
	_, err = pgx.ForEachRow(rows, []any{&text, &newest, &expected, &redacted, &now}, func() error {
		a := &list[i]
		i++
		if text != nil {
			if err := json.Unmarshal(text, &a.before); err != nil {
				return fmt.Errorf("the snapshot of run %s: %w", ids[i-1], err)
			}
		}
		a.after, a.newest, a.redacted = a.before, newest, redacted
		a.halted = expected > 0 && expected <= a.before.LastEventSeq
		a.whole = a.halted || newest <= a.before.LastEventSeq
		return nil
	})
	return now, err
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
	events := make([][]Event, len(some))
	for rows.Next() {
		e, err := scanEvent(rows)
		if err != nil {
			return err
		}
		n, _ := slices.BinarySearch(some, e.RunID) // ids are sorted
		events[n] = append(events[n], e)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for n, next := range events {
		a := &list[at[n]]
		before := a.after.LastEventSeq
		var err error
		a.after, err = a.after.Apply(next...)
		p.projected.Add(a.after.LastEventSeq - before)
		if gap, ok := errors.AsType[*GapError](err); ok {
			a.gap = gap
		} else if err != nil {
			return err
		}
		a.whole = a.gap != nil || len(next) < eventsAtOnce
	}
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
}

func (s *stored) add(id string, a *advance) error {
	if a.after.LastEventSeq > a.before.LastEventSeq {
		text, err := json.Marshal(a.after)
		if err != nil {
			return err
		}
		s.runs, s.seqs, s.snapshots, s.redacted = append(s.runs, id), append(s.seqs, a.after.LastEventSeq), append(s.snapshots, string(text)), append(s.redacted, a.redacted)
	}
	if a.gap != nil {
		s.stale, s.expected, s.got = append(s.stale, id), append(s.expected, a.gap.Expected), append(s.got, nonZero(a.gap.Got))
	}
	return nil
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
	p.stored.Add(int64(len(out.runs)))
	for _, id := range since {
		n := slices.Index(out.stale, id)
		p.gaps.Add(1)
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
