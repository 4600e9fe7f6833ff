// Package upkeep does what an installation needs done now and then, by some
// process: partitions ahead of need, old idempotency keys, retention, and what
// removals leave behind. Any number of processes may do it at the same time.
package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/sqlstate"
)

const purgeBatch = 5000

// Keeper does it over connections of a pool.
type Keeper struct {
	Pool     *pgxpool.Pool
	Deadline time.Duration // of a statement
	Logger   *slog.Logger
}

// Chore does something that is done again soon if it fails.
func (k *Keeper) Chore(ctx context.Context, name string, do func(context.Context) error) {
	bounded, cancel := k.bounded(ctx)
	defer cancel()
	if err := do(bounded); err != nil && ctx.Err() == nil {
		k.Logger.Warn("housekeeping failed; will try again", "chore", name, "error", sqlstate.WithHint(err))
	}
}

func (k *Keeper) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.Deadline)
}

// MakePartitions makes partitions of the log ahead of need.
func (k *Keeper) MakePartitions(ctx context.Context) {
	k.Chore(ctx, "make partitions ahead", func(ctx context.Context) error {
		_, err := k.Pool.Exec(ctx, query.KeepPartitions)
		return err
	})
}

// summaries bounds how often SummariseLog goes on at once: ten million messages.
const summaries = 20

// SummariseLog keeps what the log has filled since cheap to look at by number.
func (k *Keeper) SummariseLog(ctx context.Context) {
	pages := 1
	for n := 0; n < summaries && pages > 0; n++ {
		pages = 0
		k.Chore(ctx, "summarise the log by number", func(ctx context.Context) error {
			return k.Pool.QueryRow(ctx, query.SummariseLog).Scan(&pages)
		})
	}
}

// tallies bounds how often Tally adds up at once.
const tallies = 10

// Tally adds up what was delivered, so that a look need not count it.
func (k *Keeper) Tally(ctx context.Context) {
	k.Chore(ctx, "add up what was delivered", func(ctx context.Context) error {
		added := 1
		for n := 0; n < tallies && added > 0; n++ {
			if err := k.Pool.QueryRow(ctx, query.Tally).Scan(&added); err != nil {
				return err
			}
		}
		return nil
	})
}

// PartitionsAhead counts the partitions ahead of the one in use: of the log, or of the logs
// of runs, of which fewer are.
func PartitionsAhead(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, query.PartitionsAhead).Scan(&n)
	return n, err
}

// CheckStatements has the server parse all statements of upkeep against the schema
// that is installed.
func CheckStatements(ctx context.Context, conn *pgx.Conn) error {
	return sqlfile.Check(ctx, conn, query)
}

// PurgeKeys forgets old idempotency keys.
func (k *Keeper) PurgeKeys(ctx context.Context) {
	k.Chore(ctx, "purge idempotency keys", func(ctx context.Context) error {
		for purged := purgeBatch; purged == purgeBatch; {
			if err := k.Pool.QueryRow(ctx, query.PurgeKeys, purgeBatch).Scan(&purged); err != nil {
				return err
			}
		}
		return nil
	})
}
