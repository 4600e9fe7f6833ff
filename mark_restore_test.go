package deed_test

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A stream that nobody had begun to read before the dump begins where it was
// asked for, in a cluster whose transaction ids are far lower: one from now, and
// a queue that was made a stream.
func TestContract_O18_BegunAcrossARestore(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string][2]string{
		"from now": {`select deed.declare_topic('orders', 'stream')`, `select deed.subscribe('orders', 's', 'now')`},
		"a queue":  {`select deed.subscribe('orders', 's', 'now')`, `select deed.set_topic('orders', p_mode => 'stream')`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			publish(t, db, keyed("a", 1))
			db.Exec(t, pgtest.Admin, ask[0])
			db.Exec(t, pgtest.Admin, ask[1])
			publish(t, db, keyed("a", 2))
			restored(t, db)
			publish(t, db, keyed("a", 3))
			var lines recorder
			c, _ := runStream(t, db, stream(&lines))
			eventually(t, "what was published since it was asked for", func() bool { n, _ := lines.counts(); return n >= 2 })
			publish(t, db, keyed("a", 4))
			drained(t, c)
			if n, repeats := lines.counts(); n != 3 || repeats != 0 {
				t.Errorf("%d messages came, %d again; want 3 and none", n, repeats)
			}
			inOrder(t, lines.succeeded())
		})
	}
}
