package deed

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/internal/work"
)

const (
	housekeepEvery = time.Minute
	backfillPage   = 1000
	backlogEvery   = 5 * time.Second

	backfillToldEvery = 10 * time.Second
)

// housekeeper does what must be done now and then by some process: partitions
// ahead of need, old idempotency keys, and what new subscriptions are owed; and it
// looks which subscriptions were removed. Any number of processes may do it at the
// same time.
type housekeeper struct {
	*upkeep.Keeper
	sources []*source
}

// run does it until ctx ends.
func (h *housekeeper) run(ctx context.Context) {
	var open []*backlog
	pause := time.Duration(0)
	var chores, looked time.Time
	for {
		if !time.Now().Before(chores) {
			h.MakePartitions(ctx)
			h.PurgeKeys(ctx)
			chores = time.Now().Add(housekeepEvery/2 + rand.N(housekeepEvery))
		}
		if !time.Now().Before(looked.Add(backlogEvery)) {
			claim.LookRemoved(ctx, h.Keeper, subscriptionsOf(h.sources)...)
			h.SummariseLog(ctx)
			h.Tally(ctx)
			open = h.backlogs(ctx, open) // also while one waits for a transaction, which may take hours
			looked = time.Now()
		}
		worked := false
		still := open[:0]
		for _, b := range open {
			moved, finished := h.backfill(ctx, b)
			worked = worked || moved
			if !finished {
				still = append(still, b)
			}
		}
		open = still
		switch {
		case len(open) == 0:
			pause = backlogEvery
		case worked:
			pause = time.Millisecond
		default:
			pause = min(max(2*pause, 2*time.Millisecond), time.Second)
		}
		if !work.Sleep(ctx, pause) {
			return
		}
	}
}

// backlog is what a source is still owed from before its time.
type backlog struct {
	source *source
	at     string    // where the last step began
	added  int       // messages so far
	told   time.Time // when the log last said so, or the first step was made
}

// backlogs adds to those that are known the sources that are still owed messages from
// before their time: that of a new subscription, or of a stream that has become a queue.
func (h *housekeeper) backlogs(ctx context.Context, known []*backlog) []*backlog {
	ids := make([]int, len(h.sources))
	for i, s := range h.sources {
		ids[i] = s.ID
	}
	h.Chore(ctx, "look for backfills", func(ctx context.Context) error {
		rows, err := h.Pool.Query(ctx, query.Backlogs, ids)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, s := range h.sources {
			if slices.Contains(found, s.ID) && !slices.ContainsFunc(known, func(b *backlog) bool { return b.source == s }) {
				known = append(known, &backlog{source: s})
			}
		}
		return err
	})
	return known
}

// backfill takes one step towards what b's source is owed from before it
// existed, and says whether it got on.
func (h *housekeeper) backfill(ctx context.Context, b *backlog) (moved, finished bool) {
	s := b.source
	if s.ID == 0 || s.IsRemoved() { // the catch-all of undeclared topics is owed nothing
		return false, true
	}
	h.Chore(ctx, "backfill "+s.Label(), func(ctx context.Context) error {
		var added int
		var last bool
		var at string
		// A window is opened under READ COMMITTED, whatever the database's default is.
		err := pgx.BeginTxFunc(ctx, h.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, query.Backfill, s.ID, backfillPage).Scan(&added, &last, &at)
		})
		if err != nil {
			return err
		}
		// What it says holds, as it has committed.
		moved, finished = added > 0 || at != b.at, last
		b.at = at
		b.added += added
		if added > 0 {
			s.Wake()
		}
		return nil
	})
	h.tell(b, finished)
	return moved, finished
}

// tell logs every ten seconds how a long backfill gets on, and its end.
func (h *housekeeper) tell(b *backlog, finished bool) {
	switch {
	case b.told.IsZero():
		b.told = time.Now()
	case time.Since(b.told) >= backfillToldEvery, finished && b.added > 0:
		b.told = time.Now()
		h.Logger.Info("messages from before the subscription are brought to it", "subscription", b.source.Label(), "so_far", b.added, "finished", finished)
	}
}
