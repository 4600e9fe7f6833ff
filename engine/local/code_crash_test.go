package local_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// A process that is killed anywhere in its code: another goes on with what was recorded. Each inner step has one end, and is done
// under one key, by which the other end can tell a repeat; what Tx does is done once.
func TestContract_R5_CodeKilledAnywhere(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/coder")
	for _, point := range []string{
		"inner calling:1", "inner calling:7", "inner called:1", "inner called:6", "recording:1", "recording:4", "recorded:1", "recorded:5",
		"in tx:1", "tx recorded:1", "tx committed:2", "sleeping:1", "called:1", "called:4", "exchanging:2", "exchanged:3",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, pgtest.Owner, `create table public.effects (n serial, key text); create table public.orders (n serial, first text);
				grant all on public.effects, public.effects_n_seq, public.orders, public.orders_n_seq to deed_worker; grant usage on schema public to deed_worker`)
			put(t, db, `{plan: p, version: "1", steps: {main: {kind: go, handler: code}}}`)
			runs := []string{start(t, db, "a", nil), start(t, db, "b", nil)}
			victim := program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			victim.Crashed(t, nameOf(point), time.Minute)
			again := program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			for _, id := range runs {
				want(t, "a run", ended(t, db, id), "COMPLETED")
			}
			again.Stop()
			owner := db.Pool(pgtest.Owner)
			want(t, "what Tx has done", pgtest.One[int](t, owner, `select count(*) from public.orders`), 2)
			want(t, "that knows what the step before has returned", pgtest.One[int](t, owner, `
				select count(*) from public.orders o join deed.runs r on o.first = encode(deed.idempotency_key(r.run_id::text, 'main/first', '1'), 'hex')`), 2)
			want(t, "keys of effects", pgtest.One[int](t, owner, `select count(distinct key) from public.effects`), 10)
			want(t, "ends of inner steps", pgtest.One[int](t, owner, `select count(*) from deed.run_log where event_type = 'StepCompleted' and step_id like 'main/%'`), 16)
			want(t, "ends", pgtest.One[int](t, owner, `select count(*) from deed.run_log where event_type in ('StepCompleted', 'StepFailed', 'StepSkipped')`), 18)
		})
	}
}
