package deed_test

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Where many outcomes and claims take a transaction each, either may fail
// alone; nothing is lost by it and nothing comes twice. Claims fail at their
// commit, when their rows have been sent: they must not be delivered.
func TestFault_HalfOfAnExchange(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]string{
		"outcomes": `create trigger half before insert on deed.receipts for each row when (new.finished >= 100) execute function public.refuse()`,
		"claims": `create constraint trigger half after update on deed.pending deferrable initially deferred for each row
			when (new.id % 100 = 99 and new.claim is not null) execute function public.refuse()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const count = 2000
			db := pgtest.New(t)
			subscribe(t, db, "orders", "handler")
			var msgs []deed.Message
			for n := range count {
				msgs = append(msgs, message("orders", n))
			}
			publish(t, db, msgs...)
			// One in three is refused: a sequence counts what a rolled back transaction asked.
			db.Exec(t, pgtest.Owner, `create sequence public.asked; grant usage on sequence public.asked to public`)
			db.Exec(t, pgtest.Owner, `create function public.refuse() returns trigger language plpgsql as $$
				begin
				  if nextval('public.asked') % 3 = 1 then raise exception 'refused'; end if;
				  return new;
				end $$`)
			db.Exec(t, pgtest.Owner, trigger)
			// In calls of a hundred: how many outcomes come together does not depend on the machine.
			r := &batchRecorder{size: 100}
			c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{
				{Topic: "orders", Sink: r, BatchSize: 200, Concurrency: 2},
			}})
			eventually(t, "all deliveries", func() bool { n, _ := r.counts(); return n == count })
			eventually(t, "all outcomes", func() bool {
				drained, err := c.Drained(context.Background())
				return err == nil && drained
			})
			time.Sleep(50 * time.Millisecond)
			if _, repeats := r.counts(); repeats != 0 {
				t.Errorf("%d messages came twice", repeats)
			}
			if asked := pgtest.One[int](t, db.Pool(pgtest.Owner), `select last_value from public.asked`); asked < 3 {
				t.Errorf("the trigger was asked %d times", asked)
			}
		})
	}
}
