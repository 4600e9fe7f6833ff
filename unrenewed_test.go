package deed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A message that a renewal has passed over, since somebody had it locked, is not taken for renewed: a worker that had it in hand all that time does not
// begin it when it is another's, or may be.
func TestContract_O14_WhatWasPassedOverIsNotRenewed(t *testing.T) {
	t.Parallel()
	for name, claimed := range map[string]bool{"another has claimed it": true, "it is locked still": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			begun, goOn := make(chan int64, 10), make(chan struct{})
			var calls atomic.Int64
			handler := deed.SinkFunc(func(_ context.Context, m deed.Message) error {
				begun <- m.Seq
				if calls.Add(1) == 1 {
					<-goOn
				}
				return nil
			})
			run(t, db, deed.Options{
				Topics:        []deed.Topic{{Name: "orders"}},
				Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: handler, Concurrency: 1, Lease: 3 * time.Second}},
			})
			publish(t, db, message("orders", 1), message("orders", 2))
			first := <-begun
			owner := db.Pool(pgtest.Owner)
			id := pgtest.One[int](t, owner, `select id from deed.subscriptions where name = 's'`)
			eventually(t, "both to be in hand", func() bool {
				return pgtest.One[int](t, owner, `select count(*) from deed.pending where subscription = $1 and claim is not null`, id) == 2
			})
			second := pgtest.One[int64](t, owner, `select id from deed.pending where subscription = $1 and id <> $2`, id, first)
			open := openTx(t, db, pgtest.Owner, fmt.Sprintf(`select from deed.pending where id = %d for update`, second))
			eventually(t, "its lease to be over", func() bool {
				return pgtest.One[bool](t, owner, `select lease_until <= clock_timestamp() from deed.pending where id = $1`, second)
			})
			end := func() {
				if err := open.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if claimed {
				end()
				same(t, "what another claims", ids(claim(t, db.Pool(pgtest.Worker), "orders", "s", 2)), []int64{second})
			}
			close(goOn)
			time.Sleep(500 * time.Millisecond)
			same(t, "others that were begun", len(begun), 0)
			if !claimed {
				end()
				same(t, "once it is free", <-begun, second)
			}
		})
	}
}
