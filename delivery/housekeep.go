package delivery

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
)

const (
	housekeepEvery = time.Minute
	purgeBatch     = 5000
	relaneBatch    = 20_000
	relaneDeadline = time.Minute // it may have to look at all that is queued
	endBatch       = 1000
	contentBatch   = 100
)

// keepHouse moves deliveries into the lanes that the provider has now, ends what
// has expired or is to be given up while nobody may be called for it, and
// removes what is over, if that was asked for.
func (l *Ledger) keepHouse(ctx context.Context) {
	for first := true; ; first = false {
		for _, s := range l.sources {
			l.chore(ctx, "move deliveries into their lanes", relaneBatch, func(ctx context.Context) (n int, err error) {
				ctx, cancel := context.WithTimeout(ctx, relaneDeadline)
				defer cancel()
				err = l.pool.QueryRow(ctx, query.Relane, s.name, relaneBatch).Scan(&n)
				return n, err
			})
			l.chore(ctx, "forget lanes", endBatch, func(ctx context.Context) (n int, err error) {
				ctx, cancel := l.deadline(ctx)
				defer cancel()
				err = l.pool.QueryRow(ctx, query.ForgetLanes, s.name, endBatch).Scan(&n)
				return n, err
			})
			s.look(ctx)
		}
		l.endWaiting(ctx)
		if !first { // files before the deliveries that tell whose they are
			l.chore(ctx, "remove files that nothing needs", contentBatch, l.purgeContents)
		}
		if l.opts.Retention > 0 && !first {
			l.chore(ctx, "remove old deliveries", purgeBatch, l.purge)
		}
		if !work.Sleep(ctx, housekeepEvery/2+rand.N(housekeepEvery)) {
			return
		}
	}
}

// chore does what is to be done in batches until a batch is not full.
func (l *Ledger) chore(ctx context.Context, what string, batch int, do func(context.Context) (int, error)) {
	for n := batch; n == batch && ctx.Err() == nil; {
		var err error
		if n, err = do(ctx); err != nil && ctx.Err() == nil {
			l.opts.Logger.Warn("chore failed; will try again", "chore", what, "error", err)
		}
	}
}

func (l *Ledger) purge(ctx context.Context) (removed int, err error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	err = l.pool.QueryRow(ctx, query.Purge, l.opts.Retention.Seconds(), purgeBatch, l.opts.Worker).Scan(&removed)
	return removed, err
}

func (l *Ledger) purgeContents(ctx context.Context) (removed int, err error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	err = l.pool.QueryRow(ctx, query.PurgeContents, l.opts.ContentRetention.Seconds(), contentBatch, l.opts.Worker).Scan(&removed)
	return removed, err
}

// endWaiting ends what is queued and may not be called for: what has expired,
// and what its own destination has been away for too long for.
func (l *Ledger) endWaiting(ctx context.Context) {
	end := func(ctx context.Context, level slog.Level, what string, to Status, sql string, args ...any) (int, error) {
		ctx, cancel := l.deadline(ctx)
		defer cancel()
		rows, err := l.pool.Query(ctx, sql, args...)
		if err != nil {
			return 0, err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e ended, err error) {
			err = row.Scan(&e.ID, &e.Tenant, &e.provider, &e.Channel, &e.Attempts, &e.CorrelationID, &e.ChannelMsgID, &e.Reason)
			return e, err
		})
		if err != nil {
			return 0, err
		}
		for _, e := range list {
			about(l.opts.Logger.With("provider", e.provider), e.row()).Log(ctx, level, what, "from", Queued, "to", to, "attempts", e.Attempts, "reason", e.Reason)
		}
		return len(list), nil
	}
	l.chore(ctx, "skip what has expired", endBatch, func(ctx context.Context) (int, error) {
		return end(ctx, slog.LevelInfo, "delivery skipped: it has expired", Skipped, query.Expire, endBatch, l.opts.Worker)
	})
	l.chore(ctx, "take away suppressions that have ended", endBatch, func(ctx context.Context) (n int, err error) {
		ctx, cancel := l.deadline(ctx)
		defer cancel()
		err = l.pool.QueryRow(ctx, query.ExpireSuppressions, endBatch, l.opts.Worker).Scan(&n)
		return n, err
	})
	l.chore(ctx, "match status events", endBatch, func(ctx context.Context) (n int, err error) {
		ctx, cancel := l.deadline(ctx)
		defer cancel()
		var told string
		if err = l.pool.QueryRow(ctx, query.MatchLateEvents, endBatch, l.opts.Worker).Scan(&n, &told); err == nil {
			_, err = l.tellProofs(told)
		}
		return n, err
	})
	for _, s := range l.sources {
		l.chore(ctx, "give up what cannot be reached", endBatch, func(ctx context.Context) (int, error) {
			return end(ctx, slog.LevelError, "delivery is dead: its destination was away for too long", Dead, query.GiveUp, s.name, s.opts.GiveUpAfter.Seconds(), endBatch, l.opts.Worker)
		})
	}
}
