package upkeep

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

const (
	removeBatch   = 5000 // rows that one step of a removal takes away
	removalsEvery = time.Minute
)

// ClearRemoval takes steps until a removal is over, or waits for others'
// transactions.
func (k *Keeper) ClearRemoval(ctx context.Context, n int64, report func(total int64)) (waits bool, err error) {
	for waited := 0; ; {
		state, total, err := k.removeStep(ctx, n)
		if err != nil {
			return false, err
		}
		report(total)
		crash.Point("clearing")
		switch state {
		case "done":
			return false, nil
		case "waits": // most of them are short
			if waited++; waited == 10 {
				return true, nil
			}
			if !work.Sleep(ctx, 50*time.Millisecond) {
				return true, context.Cause(ctx)
			}
		}
	}
}

func (k *Keeper) removeStep(ctx context.Context, n int64) (state string, total int64, err error) {
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, k.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, query.RemoveStep, n, removeBatch).Scan(&state, &total)
	})
	return state, total, err
}

// FinishRemovals goes on, now and then, with removals that were cut off, or that
// wait for transactions.
func (k *Keeper) FinishRemovals(ctx context.Context) {
	for pause := rand.N(removalsEvery / 10); work.Sleep(ctx, pause); pause = removalsEvery/2 + rand.N(removalsEvery) {
		var open []int64
		k.Chore(ctx, "look for removals", func(ctx context.Context) error {
			return k.Pool.QueryRow(ctx, query.OpenRemovals).Scan(&open)
		})
		for _, n := range open {
			_, err := k.ClearRemoval(ctx, n, func(int64) {})
			if err != nil && ctx.Err() == nil {
				k.Logger.Warn("clearing away what was removed failed; will try again", "removal", n, "error", sqlstate.WithHint(err))
			}
		}
	}
}
