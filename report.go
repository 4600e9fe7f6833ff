package deed

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/uuid"
)

// reporter tells others which of this process's calls take long, and which of its
// subscriptions pause and why: whoever wonders why nothing goes on looks there.
type reporter struct {
	db       *pgxpool.Pool
	worker   string // this process, for people
	deadline time.Duration
	log      *slog.Logger
	sources  []*source

	id uuid.UUID // of the reports; what it told is replaced by it alone

	toldCalls, toldPauses bool // what was told last is to be replaced
}

// run reports until ctx ends. It asks nothing of the database while no call takes
// long and nothing pauses.
func (r *reporter) run(ctx context.Context) {
	r.id = uuid.New()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.report(context.WithoutCancel(ctx), nil)
			return
		case <-tick.C:
			r.report(ctx, r.sources)
		}
	}
}

// report replaces what was told before by what there is to tell of sources.
func (r *reporter) report(ctx context.Context, sources []*source) {
	if n := r.tellCalls(ctx, sources); n >= 0 {
		r.toldCalls = n > 0
	}
	if n := r.tellPauses(ctx, sources); n >= 0 {
		r.toldPauses = n > 0
	}
}

// tellCalls returns how many calls there were to tell of; -1 if that failed.
func (r *reporter) tellCalls(ctx context.Context, sources []*source) int {
	subs, ids, messageIDs, messages, ages := []int{}, []int64{}, []string{}, []int{}, []float64{}
	for _, s := range sources {
		if l, ok := s.dest.calls.oldest(); ok && time.Since(l.began) >= longCall {
			subs, ids, messageIDs = append(subs, s.ID), append(ids, l.seq), append(messageIDs, l.id.String())
			messages, ages = append(messages, l.messages), append(ages, time.Since(l.began).Seconds())
		}
	}
	if len(subs) == 0 && !r.toldCalls {
		return 0
	}
	return r.tell(ctx, "which calls take long", len(subs), query.ReportCalls, subs, ids, messageIDs, messages, ages)
}

// tellPauses returns how many subscriptions pause; -1 if telling failed.
func (r *reporter) tellPauses(ctx context.Context, sources []*source) int {
	subs, whys, ages := []int{}, []string{}, []float64{}
	for _, s := range sources {
		if since, cause := s.dest.paused(); cause != nil {
			subs, ages = append(subs, s.ID), append(ages, time.Since(since).Seconds())
			whys = append(whys, errortext.Stored(cause.Error(), 500, ""))
		}
	}
	if len(subs) == 0 && !r.toldPauses {
		return 0
	}
	return r.tell(ctx, "which subscriptions pause", len(subs), query.ReportPauses, subs, whys, ages)
}

// tell executes a report of n things and returns n; -1 if it failed.
func (r *reporter) tell(ctx context.Context, what string, n int, sql string, args ...any) int {
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	if _, err := r.db.Exec(ctx, sql, append([]any{r.id.String(), r.worker}, args...)...); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("telling "+what+" failed; will try again", "error", sqlstate.WithHint(err))
		}
		return -1
	}
	return n
}
