package local_test

import (
	"testing"

	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// An engine that is killed anywhere: another goes on. Whatever was begun is done, its effects under one key, so that
// the other end can tell a repeat; a message is published once; and what must not be repeated is not: it was done
// once, or nobody knows and a person is asked.
func TestContract_R5_KilledAnywhere(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/stepper")
	for _, point := range []string{"claimed:1", "claimed:2", "calling:1", "calling:4", "called:1", "called:5", "exchanging:2", "exchanged:3", "published:1", "settled effects:1"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			effects(t, db)
			put(t, db, `
plan: p
version: "1"
steps:
  first: {kind: go, handler: again}
  tell:  {kind: publish, after: [first], topic: orders, payload: {n: 1}}
  once:  {kind: go, handler: once, after: [first], guarantee: at_most_once}
  last:  {kind: go, handler: again, after: [tell]}
`)
			var runs []string
			for _, id := range []string{"a", "b", "c"} {
				runs = append(runs, start(t, db, id, nil))
			}
			victim := program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			victim.Crashed(t, nameOf(point), pgtest.Patience)
			again := program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			owner := db.Pool(pgtest.Owner)
			eventually(t, "all that can be done to be done", func() bool {
				return pgtest.One[bool](t, owner, `select not exists (select from deed.run_steps where verdict is distinct from 'HOLD_OVER')`)
			})
			again.Stop()
			for _, id := range runs {
				status, failure := statusOf(t, db, id), errorOf(t, db, id, "once")
				if (status != "COMPLETED" || failure != "") && (status != "RUNNING" || failure != "OUTCOME_UNKNOWN") {
					t.Errorf("run %s is %s, and the step that must not be repeated has %q", id, status, failure)
				}
			}
			want(t, "messages", pgtest.One[int](t, owner, `select count(*) from deed.log where topic = 'orders'`), 3)
			want(t, "keys", pgtest.One[bool](t, owner, `select count(distinct key) between 6 and 9 from public.effects`), true)
			want(t, "what must not be repeated and was", pgtest.One[int](t, owner, `
				select count(*) from (
				  select e.key from public.effects e
				  join deed.runs r on e.key = encode(deed.idempotency_key(r.run_id::text, 'once', '1'), 'hex')
				  group by e.key having count(*) > 1) x`), 0)
		})
	}
}
