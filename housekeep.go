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
	owingEvery     = 5 * time.Second
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
	var owing []*source
	pause := time.Duration(0)
	var chores, looked time.Time
	for {
		if !time.Now().Before(chores) {
			h.MakePartitions(ctx)
			h.PurgeKeys(ctx)
			chores = time.Now().Add(housekeepEvery/2 + rand.N(housekeepEvery))
		}
		if !time.Now().Before(looked.Add(owingEvery)) {
			claim.LookRemoved(ctx, h.Keeper, subscriptionsOf(h.sources)...)
			looked = time.Now()
		}
		if len(owing) == 0 {
			owing = h.owing(ctx)
		}
		worked := false
		still := owing[:0]
		for _, s := range owing {
			added, finished := h.backfill(ctx, s)
			if added > 0 {
				s.Wake()
				worked = true
			}
			if !finished {
				still = append(still, s)
			}
		}
		owing = still
		switch {
		case len(owing) == 0:
			pause = owingEvery
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

// owing returns the sources that are still owed messages from before their
// time: that of a new subscription, or of a stream that has become a queue.
func (h *housekeeper) owing(ctx context.Context) (list []*source) {
	ids := make([]int, len(h.sources))
	for i, s := range h.sources {
		ids[i] = s.ID
	}
	h.Chore(ctx, "look for backfills", func(ctx context.Context) error {
		rows, err := h.Pool.Query(ctx, query.Owing, ids)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, s := range h.sources {
			if slices.Contains(found, s.ID) {
				list = append(list, s)
			}
		}
		return err
	})
	return list
}

// backfill takes one step towards what s is owed from before it existed.
func (h *housekeeper) backfill(ctx context.Context, s *source) (added int, finished bool) {
	if s.ID == 0 || s.IsRemoved() { // the catch-all of undeclared topics is owed nothing
		return 0, true
	}
	h.Chore(ctx, "backfill "+s.Label(), func(ctx context.Context) error {
		var page int
		var last bool
		// A window is opened under READ COMMITTED, whatever the database's default is.
		err := pgx.BeginTxFunc(ctx, h.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, query.Backfill, s.ID, backfillPage).Scan(&page, &last)
		})
		if err == nil { // what it says holds once it has committed
			added, finished = page, last
		}
		return err
	})
	return added, finished
}
