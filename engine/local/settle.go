package local

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/run"
)

// errNotNow undoes an effect whose end is not recorded now: it is another's, or was recorded before, with the effect.
var errNotNow = errors.New("the end is not recorded")

// settle records ends together with their effects, in one transaction; where that is refused, or one of them is not recorded,
// each in one of its own.
func (e *Engine) settle(ctx context.Context, ends []*ending) error {
	if len(ends) == 0 {
		return nil
	}
	err := e.settleTogether(ctx, ends)
	if err == nil || !errors.Is(err, errNotNow) && passing(err) {
		return err
	}
	for _, end := range ends {
		err := e.settleTogether(ctx, []*ending{end})
		if err != nil && !passing(err) {
			code, notDone := "PUBLISH_REFUSED", true
			if end.owed != nil {
				// An attempt before this one may have reserved one under its key, which may be put back.
				code, notDone = "DELIVERY_REFUSED", end.it.first()
			}
			refused := end.it.failed(&run.Failure{Code: code, NotDone: notDone, Err: err}, end.started)
			err = e.each(ctx, []*ending{refused}, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settling begins a transaction in which nothing is waited for longer than an end waits for its run: the loop waits with it.
const settling = `begin isolation level read committed; set local lock_timeout = '200ms'`

// settleTogether publishes the messages and reserves the deliveries, and records the ends last: whoever has a run's row
// takes no other lock. Where there is one alone, that it is not recorded now is what became of it.
func (e *Engine) settleTogether(ctx context.Context, effects []*ending) error {
	var said []string
	var ends []*ending
	err := pgx.BeginTxFunc(ctx, e.pool, pgx.TxOptions{BeginQuery: settling}, func(tx pgx.Tx) (err error) {
		var messages []deed.Message
		for _, end := range effects {
			if end.message != nil {
				messages = append(messages, *end.message)
			}
		}
		if len(messages) > 0 {
			if _, err = deed.Publish(ctx, tx, messages...); err != nil {
				return err
			}
		}
		if ends, err = reserve(ctx, tx, effects); err != nil {
			return err
		}
		crash.Point("published")
		if said, err = e.finish(ctx, tx, ends); err != nil {
			return err
		}
		for _, s := range said {
			if s != "recorded" {
				return errNotNow
			}
		}
		return nil
	})
	switch {
	case err == nil:
		crash.Point("settled effects")
	case len(effects) > 1 || !errors.Is(err, errNotNow):
		return err
	}
	for _, end := range ends {
		end.it.recorded = true
	}
	e.count(ends, said)
	return nil
}
