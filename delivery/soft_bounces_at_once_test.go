package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who has soft bounces recorded while another's are not committed yet is counted after them: the fifth is the fifth,
// and after what was delivered it is the first.
func TestContract_D11_SoftBouncesAtOnce(t *testing.T) {
	t.Parallel()
	const say = `select busy from deed.record_events('fake', 'fake', '', null, array[$1], array[$2], array[$2], array[''], array[''], array[clock_timestamp() - interval '1 minute'], array[''], array[''], 'w', '30 seconds')`
	for name, c := range map[string]struct {
		before int    // soft bounces, of deliveries of their own
		first  string // what is not committed yet
		want   int    // suppressions
	}{
		"the fourth and the fifth":           {3, "soft_bounced", 1},
		"the third and the fourth":           {2, "soft_bounced", 0},
		"a delivery and a fifth":             {4, "delivered", 0},
		"the first and the second of anyone": {0, "soft_bounced", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			l, _ := run(t, db, said(newFake()))
			var mails []delivery.Delivery
			for i := range c.before + 2 {
				mails = append(mails, email("full@example.com", fmt.Sprint(i)))
			}
			ids := sent(t, db, mails...)
			for i := range c.before {
				record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: ids[i], ID: fmt.Sprint(i), At: time.Now().Add(-time.Hour)})
			}
			end := leftOpen(t, db, pgtest.Worker, say, c.first, ids[c.before])
			pool := db.NewPool(pgtest.Worker, 1)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			pid := conn.Conn().PgConn().PID()
			said := make(chan error, 1)
			go func() {
				var busy int
				said <- conn.QueryRow(context.Background(), say, "soft_bounced", ids[c.before+1]).Scan(&busy)
			}()
			eventually(t, "the other to wait, or to be done", func() bool {
				return len(said) > 0 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select cardinality(pg_blocking_pids($1)) > 0`, pid)
			})
			end()
			if err := <-said; err != nil {
				t.Fatal(err)
			}
			if got := suppressed(t, db); len(got) != c.want {
				t.Errorf("suppressed: %q, want %d", got, c.want)
			}
			if n, want := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.soft_bounces where not reached`), map[bool]int{true: 0, false: c.before + 2}[c.want == 1]; c.first != "delivered" && n != want {
				t.Errorf("%d soft bounces are kept, want %d", n, want)
			}
		})
	}
}

// Soft bounces of five deliveries that are recorded at once, each the first that is heard of its address, are five.
func TestContract_D11_FiveSoftBouncesAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	const rounds = 10
	for i := range rounds {
		var mails []delivery.Delivery
		for k := range 5 {
			for _, to := range []string{"x", "y"} {
				mails = append(mails, email(fmt.Sprintf("%s%d@example.com", to, i), fmt.Sprint(k)))
			}
		}
		ids := sent(t, db, mails...)
		var saying sync.WaitGroup
		for k := range 5 {
			events := []delivery.StatusEvent{
				{Said: delivery.SaidSoftBounced, Delivery: ids[2*k], ID: ids[2*k], At: time.Now().Add(-time.Minute)},
				{Said: delivery.SaidSoftBounced, Delivery: ids[2*k+1], ID: ids[2*k+1], At: time.Now().Add(-time.Minute)},
			}
			if k%2 == 0 { // two addresses, in either order
				events[0], events[1] = events[1], events[0]
			}
			saying.Go(func() {
				if got, err := l.Record(t.Context(), "fake", events...); err != nil || got.Matched != 2 || got.Busy != 0 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		saying.Wait()
	}
	if got := suppressed(t, db); len(got) != 2*rounds {
		t.Errorf("%d of %d are suppressed: %s", len(got), 2*rounds, strings.Join(got, "\n"))
	}
}
