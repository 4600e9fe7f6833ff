package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// conditionPeer is a stream beside something that would slow a queue down.
type conditionPeer struct {
	streamPeer
	label string
	// begin makes the condition, before anything is drained or, if late, just
	// before what is measured; it lasts until the connection ends.
	begin string
	late  bool
}

func (p conditionPeer) name() string { return p.label }

var conditions = []peer{
	conditionPeer{label: "deed stream"},
	conditionPeer{label: "snapshot held", begin: `begin isolation level repeatable read; select count(*) from business`},
	conditionPeer{label: "idle writer", begin: `begin; select pg_current_xact_id()`, late: true},
	conditionPeer{label: "prepared writer", begin: `begin; insert into business (client, amount) values (0, 0); prepare transaction 'bench'`, late: true},
}

// drainBeside drains twice the messages, and then measures how fast the same
// number once more is drained, all beside a condition.
func drainBeside(ctx context.Context, e *env) error {
	p := e.peer.(conditionPeer)
	n := e.opts.messages
	beside, err := pgx.Connect(ctx, e.cluster.URL(e.database))
	if err != nil {
		return err
	}
	defer beside.Close(ctx)
	condition := func(late bool) error {
		if p.begin == "" || p.late != late {
			return nil
		}
		if err := beside.PgConn().Exec(ctx, p.begin).Close(); err != nil {
			return fmt.Errorf("%s: %w", p.label, err)
		}
		return nil
	}
	if err := condition(false); err != nil {
		return err
	}
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	var took time.Duration
	for i, count := range []int{2 * n, n} {
		if i == 1 {
			if err := condition(true); err != nil {
				return err
			}
		}
		if _, err := e.fill(ctx, count); err != nil {
			return err
		}
		if err := e.exec(ctx, `checkpoint`); err != nil {
			return err
		}
		if took, err = e.drainAll(ctx, pool, count); err != nil {
			return err
		}
	}
	e.record("drained", "messages/s", float64(n)/took.Seconds())
	if err := e.expectStored(ctx, 0, 3*n); err != nil {
		return err
	}
	if p.late && p.label == "prepared writer" {
		if _, err := beside.Exec(ctx, `rollback prepared 'bench'`); err != nil {
			return err
		}
	}
	return nil
}
