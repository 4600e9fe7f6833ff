package deed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/work"
)

const (
	retainEvery  = 5 * time.Minute
	retainBatch  = 1000 // messages moved out of a partition at once
	historyBatch = 5000
)

// Partition is a partition of the log, and what keeps it.
type Partition struct {
	N              int           `json:"n"`
	FromSeq        int64         `json:"from_seq,string"` // the first number that it may hold
	UptoSeq        int64         `json:"upto_seq,string"` // the first number of the next one
	State          string        `json:"state"`           // in use, kept, due, leaving or empty
	OpenedAt       *time.Time    `json:"opened_at,omitempty"`
	ClosedAt       *time.Time    `json:"closed_at,omitempty"` // when the next one was opened
	Bytes          int64         `json:"bytes"`
	Unfinished     int64         `json:"unfinished"` // messages to be moved out; at most 10,000 a subscription are counted
	Overdue        time.Duration `json:"-"`          // for how long its topics' retention has been over
	OverdueSeconds float64       `json:"overdue_seconds"`
	KeptBy         []string      `json:"kept_by"`
	TriedAt        *time.Time    `json:"tried_at,omitempty"` // when a transaction that used it was in the way
}

// Partitions lists the partitions of the log, oldest first, with what keeps
// each. Needs deed_worker or deed_admin.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	rows, err := c.pool.Query(ctx, query["retention"])
	if err != nil {
		return nil, opError("retention", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Partition, error) {
		var p Partition
		err := row.Scan(&p.N, &p.FromSeq, &p.UptoSeq, &p.State, &p.OpenedAt, &p.ClosedAt, &p.Bytes, &p.Unfinished,
			&p.OverdueSeconds, &p.KeptBy, &p.TriedAt)
		p.Overdue = time.Duration(p.OverdueSeconds * float64(time.Second))
		return p, err
	})
	return list, opError("retention", err)
}

// RetentionStep is what one step of retention did.
type RetentionStep struct {
	Partition *int   `json:"partition,omitempty"` // nil: what is known of messages that are gone was removed
	Did       string `json:"did"`                 // began, moved, emptied, dropped, waits; or removed receipts, progress, windows, relays, kept
	Count     int64  `json:"count"`               // messages moved, rows removed
}

// Retain removes what is finished and old enough, in small steps, until there
// is nothing to do now; report is called after each that did something. A
// client that runs does it every few minutes. Any number may do it at once.
// Errors do not undo the steps before. Needs deed_worker or deed_admin.
func (c *Client) Retain(ctx context.Context, report func(RetentionStep)) error {
	return opError("retention", c.retain(ctx, c.pool, report))
}

func (c *Client) retain(ctx context.Context, pool *pgxpool.Pool, report func(RetentionStep)) error {
	begun := map[int]int{}
	for {
		if err := c.detachEmpty(ctx, pool); err != nil {
			c.opts.Logger.Debug("detaching an empty partition did not end; will try again", "error", withHint(err))
		}
		step, ok, err := c.retentionStep(ctx, pool)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		report(step)
		if step.Did == "began" {
			begun[*step.Partition]++
			if begun[*step.Partition] > 5 { // something comes into it all the time: the next time
				break
			}
		}
	}
	if err := c.purgeHistory(ctx, pool, report); err != nil {
		return err
	}
	return c.purgeKept(ctx, pool, report)
}

func (c *Client) retentionStep(ctx context.Context, pool *pgxpool.Pool) (step RetentionStep, ok bool, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query["retention_step"], retainBatch)
		if err != nil {
			return err
		}
		var n int
		_, err = pgx.ForEachRow(rows, []any{&n, &step.Did, &step.Count}, func() error {
			step.Partition, ok = &n, true
			return nil
		})
		return err
	})
	return step, ok, err
}

// detachEmpty detaches the table of an emptied partition if this login may act
// as its owner: then it can be dropped without a lock that anybody would wait
// behind. It waits for the transactions that use the log; one that does not end
// in time leaves it half detached, which deed.retention_step finishes, as it
// does after a crash.
func (c *Client) detachEmpty(ctx context.Context, pool *pgxpool.Pool) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	rows, err := pool.Query(ctx, query["empty_partitions"])
	if err != nil {
		return err
	}
	empty, err := pgx.CollectRows(rows, pgx.RowTo[int])
	for _, n := range empty {
		sql := fmt.Sprintf("alter table deed.log detach partition deed.log_p%d concurrently", n)
		if _, err := pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return err
}

func (c *Client) purgeHistory(ctx context.Context, pool *pgxpool.Pool, report func(RetentionStep)) error {
	for more := true; more; {
		steps, err := c.purgeHistoryOnce(ctx, pool)
		if err != nil {
			return err
		}
		more = false
		for _, s := range steps {
			if s.Count > 0 {
				report(s)
			}
			more = more || s.Count >= historyBatch
		}
	}
	return nil
}

func (c *Client) purgeHistoryOnce(ctx context.Context, pool *pgxpool.Pool) ([]RetentionStep, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	rows, err := pool.Query(ctx, query["purge_history"], historyBatch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s RetentionStep, err error) {
		err = row.Scan(&s.Did, &s.Count)
		s.Did = "removed " + s.Did
		return s, err
	})
}

// purgeKept removes the content of messages that have been finished since it
// was moved out of its partition.
func (c *Client) purgeKept(ctx context.Context, pool *pgxpool.Pool, report func(RetentionStep)) error {
	for slot, id := new(-1), new(int64(0)); slot != nil && id != nil; {
		var removed int64
		err := func() error {
			ctx, cancel := c.deadline(ctx)
			defer cancel()
			return pool.QueryRow(ctx, query["purge_kept"], *slot, *id, historyBatch).Scan(&removed, &slot, &id)
		}()
		if err != nil {
			return err
		}
		if removed > 0 {
			report(RetentionStep{Did: "removed kept", Count: removed})
		}
	}
	return nil
}

// keepRetention removes what is finished and old enough, every few minutes.
func (c *Client) keepRetention(ctx context.Context) {
	for pause := rand.N(retainEvery / 5); work.Sleep(ctx, pause); pause = retainEvery/2 + rand.N(retainEvery) {
		err := c.retain(ctx, c.workers, func(s RetentionStep) {
			args := []any{"did", s.Did, "count", s.Count}
			if s.Partition != nil {
				args = append(args, "partition", *s.Partition)
			}
			c.opts.Logger.Debug("retention", args...)
		})
		if err != nil && ctx.Err() == nil {
			c.opts.Logger.Warn("retention failed; will try again", "error", withHint(err))
		}
	}
}
