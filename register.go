package deed

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/work"
)

// register declares the subscriptions that are absent, and compares the others
// with what is stored. It is one transaction: a topic's first subscriptions are
// made together, so that each gets what was published before. It tries until it has
// succeeded, ctx ends or no waiting helps; then the sources know their ids.
func register(ctx context.Context, db *pgxpool.Pool, opts Options, sources []*source) error {
	for n := 1; ; n++ {
		err := tryRegister(ctx, db, opts, sources)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		opts.Logger.Warn("subscriptions not registered; will try again", "error", err)
		if !work.Sleep(ctx, work.Backoff(n, 100*time.Millisecond, 5*time.Second)) {
			return ctx.Err()
		}
	}
}

func tryRegister(ctx context.Context, db *pgxpool.Pool, opts Options, sources []*source) error {
	ctx, cancel := context.WithTimeout(ctx, opts.Deadline)
	defer cancel()
	var differences []error
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		for _, t := range opts.Topics {
			different, err := t.declare(ctx, tx)
			if err != nil {
				return err
			}
			differences = append(differences, different)
		}
		for _, s := range sources {
			different, err := s.register(ctx, tx)
			if err != nil {
				return err
			}
			differences = append(differences, different)
		}
		return errors.Join(differences...)
	})
	if err != nil {
		return err
	}
	for _, s := range sources {
		s.id.Store(int64(s.ID))
	}
	return nil
}
