package deed

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
)

const (
	housekeepEvery = time.Minute
	backfillPage   = 1000
	owingEvery     = 5 * time.Second
)

// keepHouse does what must be done now and then by some process: partitions
// ahead of need, old idempotency keys, and what new subscriptions are owed.
// Any number of processes may do it at the same time.
func (c *Client) keepHouse(ctx context.Context) {
	var owing []*source
	pause := time.Duration(0)
	var chores, looked time.Time
	for {
		if !time.Now().Before(chores) {
			c.upkeep.MakePartitions(ctx)
			c.upkeep.PurgeKeys(ctx)
			chores = time.Now().Add(housekeepEvery/2 + rand.N(housekeepEvery))
		}
		if !time.Now().Before(looked.Add(owingEvery)) {
			c.lookRemoved(ctx, c.sources...)
			looked = time.Now()
		}
		if len(owing) == 0 {
			owing = c.owing(ctx)
		}
		worked := false
		still := owing[:0]
		for _, s := range owing {
			added, finished := c.backfill(ctx, s)
			if added > 0 {
				s.poke()
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
func (c *Client) owing(ctx context.Context) (list []*source) {
	ids := make([]int64, len(c.sources))
	for i, s := range c.sources {
		ids[i] = s.id.Load()
	}
	c.upkeep.Chore(ctx, "look for backfills", func(ctx context.Context) error {
		rows, err := c.workers.Query(ctx, query.Owing, ids)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		for _, s := range c.sources {
			if slices.Contains(found, s.id.Load()) {
				list = append(list, s)
			}
		}
		return err
	})
	return list
}

// backfill takes one step towards what s is owed from before it existed.
func (c *Client) backfill(ctx context.Context, s *source) (added int, finished bool) {
	id := s.id.Load()
	if id == 0 || s.removed.Load() {
		return 0, true
	}
	c.upkeep.Chore(ctx, "backfill "+s.label(), func(ctx context.Context) error {
		var page int
		var last bool
		// A window is opened under READ COMMITTED, whatever the database's default is.
		err := pgx.BeginTxFunc(ctx, c.workers, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, query.Backfill, id, backfillPage).Scan(&page, &last)
		})
		if err == nil { // what it says holds once it has committed
			added, finished = page, last
		}
		return err
	})
	return added, finished
}
