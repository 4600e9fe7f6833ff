package upkeep

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

const (
	retainEvery  = 5 * time.Minute
	retainBatch  = 1000 // messages moved out of a partition at once
	historyBatch = 5000
)

// Step is what one step of retention did: see admin.RetentionStep.
type Step struct {
	Partition *int
	Did       string
	Count     int64
}

// Retain removes what is finished and old enough, in small steps, until there is
// nothing to do now; report is called after each that did something. A partition that
// the database refuses to be rid of keeps nothing else: the error says which, at the end.
// A step that fails altogether, as one that is cut off, keeps no history.
func (k *Keeper) Retain(ctx context.Context, report func(Step)) error {
	begun := map[int]int{}
	var failed error
	for {
		if err := k.detachEmpty(ctx); err != nil {
			k.Logger.Debug("detaching an empty partition did not end; will try again", "error", sqlstate.WithHint(err))
		}
		step, problem, ok, err := k.retentionStep(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
			if ctx.Err() != nil {
				return failed
			}
			break
		}
		if !ok {
			break
		}
		report(step)
		if problem != "" {
			failed = errors.Join(failed, fmt.Errorf("partition %d: %s", *step.Partition, problem))
		}
		if step.Did == "began" {
			begun[*step.Partition]++
			if begun[*step.Partition] > 5 { // something comes into it all the time: the next time
				break
			}
		}
	}
	if err := k.purgeHistory(ctx, report); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, k.purgeKept(ctx, report))
}

func (k *Keeper) retentionStep(ctx context.Context) (step Step, problem string, ok bool, err error) {
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, k.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query.RetentionStep, retainBatch)
		if err != nil {
			return err
		}
		var n int
		_, err = pgx.ForEachRow(rows, []any{&n, &step.Did, &step.Count, &problem}, func() error {
			step.Partition, ok = &n, true
			return nil
		})
		return err
	})
	return step, problem, ok, err
}

// detachEmpty detaches the table of an emptied partition if this login may act
// as its owner: then it can be dropped without a lock that anybody would wait
// behind. It waits for the transactions that use the log; one that does not end
// in time leaves it half detached, which deed.retention_step finishes, as it
// does after a crash.
func (k *Keeper) detachEmpty(ctx context.Context) error {
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	rows, err := k.Pool.Query(ctx, query.EmptyPartitions)
	if err != nil {
		return err
	}
	empty, err := pgx.CollectRows(rows, pgx.RowTo[int])
	for _, n := range empty {
		sql := fmt.Sprintf("alter table deed.log detach partition deed.log_p%d concurrently", n)
		if _, err := k.Pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return err
}

func (k *Keeper) purgeHistory(ctx context.Context, report func(Step)) error {
	for more := true; more; {
		steps, err := k.purgeHistoryOnce(ctx)
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

func (k *Keeper) purgeHistoryOnce(ctx context.Context) ([]Step, error) {
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	rows, err := k.Pool.Query(ctx, query.PurgeHistory, historyBatch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
		err = row.Scan(&s.Did, &s.Count)
		s.Did = "removed " + s.Did
		return s, err
	})
}

// purgeKept removes the content of messages that have been finished since it
// was moved out of its partition.
func (k *Keeper) purgeKept(ctx context.Context, report func(Step)) error {
	for slot, id := new(-1), new(int64(0)); slot != nil && id != nil; {
		var removed int64
		err := func() error {
			ctx, cancel := k.bounded(ctx)
			defer cancel()
			return k.Pool.QueryRow(ctx, query.PurgeKept, *slot, *id, historyBatch).Scan(&removed, &slot, &id)
		}()
		if err != nil {
			return err
		}
		if removed > 0 {
			report(Step{Did: "removed kept", Count: removed})
		}
	}
	return nil
}

// KeepRetention removes what is finished and old enough, every few minutes.
func (k *Keeper) KeepRetention(ctx context.Context) {
	for pause := rand.N(retainEvery / 5); work.Sleep(ctx, pause); pause = retainEvery/2 + rand.N(retainEvery) {
		err := k.Retain(ctx, func(s Step) {
			args := []any{"did", s.Did, "count", s.Count}
			if s.Partition != nil {
				args = append(args, "partition", *s.Partition)
			}
			k.Logger.Debug("retention", args...)
		})
		if err != nil && ctx.Err() == nil {
			k.Logger.Warn("retention failed; will try again", "error", sqlstate.WithHint(err))
		}
	}
}
