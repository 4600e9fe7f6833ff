package local_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
)

func nameOf(point string) string {
	name, _, _ := strings.Cut(point, ":")
	return name
}

// Three engines end a run's steps at the same time: the step that waits for all of them begins once, and none is lost.
func TestContract_R15_AJoinFiresOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const wide = 60
	var plan strings.Builder
	plan.WriteString("{plan: p, version: \"1\", steps: {first: {kind: go, handler: any}")
	var all []string
	for i := range wide {
		name := fmt.Sprint("s", i)
		all = append(all, name)
		fmt.Fprintf(&plan, ", %s: {kind: go, handler: any, after: [first]}", name)
	}
	fmt.Fprintf(&plan, ", join: {kind: go, handler: join, after: [%s]}}}", strings.Join(all, ", "))
	put(t, db, plan.String())
	var joined, others atomic.Int64
	for range 3 {
		serve(t, db, local.Options{Concurrency: 4, Handlers: []local.Handler{
			local.Step("any", func(context.Context, nothing) (nothing, error) { others.Add(1); return nil, nil }),
			local.Step("join", func(context.Context, nothing) (nothing, error) { joined.Add(1); return nil, nil }),
		}})
	}
	var runs []string
	for i := range 4 {
		runs = append(runs, start(t, db, fmt.Sprint(i), nil))
	}
	for _, id := range runs {
		want(t, "a run", ended(t, db, id), "COMPLETED")
	}
	want(t, "joins", joined.Load(), int64(len(runs)))
	want(t, "the others", others.Load(), int64(len(runs)*(wide+1)))
}

// deaf is a connection of which the server sees what is written, and whose answer never comes to what
// has the word in it, every other time.
type deaf struct {
	net.Conn
	word string
	n    *atomic.Int64
	lost *atomic.Bool // its next answer is; noted before it is asked: the driver may listen while a write takes long
}

func (d deaf) Write(b []byte) (int, error) {
	if strings.Contains(string(b), d.word) && d.n.Add(1)%2 == 0 {
		d.lost.Store(true)
	}
	return d.Conn.Write(b)
}

func (d deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.lost.Load() {
		_ = d.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// The answer to an exchange, or to a commit, never comes: the engine asks again, an end is recorded once, and a message is
// published once.
func TestContract_R3_AnEndWhoseAnswerNeverComes(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"finish_steps", "commit\x00"} { // not "read committed"
		t.Run(strings.Trim(word, "\x00"), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}, b: {kind: publish, topic: orders, payload: 1, after: [a]}, c: {kind: go, handler: a, after: [b]}}}`)
			cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
			if err != nil {
				t.Fatal(err)
			}
			var cut atomic.Int64
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the words are in what is written
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, address)
				return deaf{conn, word, &cut, new(atomic.Bool)}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			e, err := local.New(t.Context(), pool, local.Options{PollInterval: 10 * time.Millisecond, Lease: time.Second, Handlers: []local.Handler{
				local.Step("a", func(context.Context, nothing) (nothing, error) { return nil, nil }),
			}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() {
				if err := e.Run(ctx); err != nil {
					t.Log(err) // a stop whose last answer is cut off
				}
			})
			defer running.Wait()
			defer cancel()
			for i := range 6 {
				want(t, "a run", ended(t, db, start(t, db, fmt.Sprint(i), nil)), "COMPLETED")
			}
			owner := db.Pool(pgtest.Owner)
			want(t, "messages", pgtest.One[int](t, owner, `select count(*) from deed.log where topic = 'orders'`), 6)
			want(t, "ends", pgtest.One[int](t, owner, `select count(*) from deed.run_log where event_type = 'StepCompleted'`), 18)
			if cut.Load() < 3 {
				t.Errorf("only %d answers could be cut off", cut.Load())
			}
		})
	}
}

// Two tenants share alike: one that has much to do does not keep the other waiting.
func TestClaimSteps_TenantsInTurn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Admin, `select deed.add_tenant('00000000-0000-0000-0000-00000000000a', 'a'), deed.add_tenant('00000000-0000-0000-0000-00000000000b', 'b')`)
	for i, owner := range []string{"00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"} {
		db.Exec(t, pgtest.Worker, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep"}}}', p_tenant => $1::text::uuid)`, owner)
		db.Exec(t, pgtest.Worker, `select deed.start_run('p', '1', n::text, p_tenant => $1::text::uuid) from generate_series(1, $2::int) n`, owner, 20-19*i)
	}
	worker := db.Pool(pgtest.Worker)
	const sql = `select string_agg(right(tenant_id::text, 1), '' order by tenant_id) from deed.claim_steps('{deed,go:x}', 'w', $1, p_after => nullif($2::text, '')::uuid)`
	want(t, "four of them", pgtest.One[string](t, worker, sql, 4, ""), "aaab") // b has but one
	want(t, "the first behind a is b, which has nothing more", pgtest.One[string](t, worker, sql, 2, "00000000-0000-0000-0000-00000000000a"), "aa")
	want(t, "none of another queue", pgtest.One[int](t, worker, `select count(*) from deed.claim_steps('{go:x}', 'w', 10)`), 0)
}

// Nor does one of another queue, whose place in the order is behind theirs, whether a claim has room for fewer than all or more than a hundred tenants wait.
func TestClaimSteps_TenantsInTurnOfTwoQueues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ tenants, room, claims int }{
		"room for half of them":    {30, 16, 2},
		"more than are looked at":  {220, 250, 3},
		"one at a time, two turns": {3, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			const id = `('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid`
			db.Exec(t, pgtest.Admin, `select deed.add_tenant(`+id+`, 't' || n) from generate_series(1, $1::int + 1) n`, c.tenants)
			db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to(format('{"plan": "p", "version": "1", "steps": {"a": {%s}}}', case when n <= $1 then '"kind": "go", "handler": "charge"' else '"kind": "sleep"' end), 'UTF8'), p_tenant => `+id+`)
				from generate_series(1, $1::int + 1) n`, c.tenants)
			db.Exec(t, pgtest.Worker, `select deed.start_run('p', '1', i::text, p_tenant => `+id+`) from generate_series(1, $1::int + 1) n, generate_series(1, 3) i`, c.tenants)
			worker := db.Pool(pgtest.Worker)
			served, after := map[string]bool{}, ""
			for range c.claims {
				last, round := "", "" // as an engine goes on
				for _, owner := range pgtest.One[[]string](t, worker, `select array_agg(tenant_id::text) from deed.claim_steps('{go:charge,deed}', 'w', $1, p_after => nullif($2::text, '')::uuid)`, c.room, after) {
					served[owner], last = true, max(last, owner)
					if owner <= after {
						round = max(round, owner)
					}
				}
				if after = last; round != "" {
					after = round
				}
			}
			want(t, "tenants that had a turn", len(served), c.tenants+1)
		})
	}
}

// Nor does what others have in their hands keep anybody from a turn, in its queue or in another.
func TestClaimSteps_WhatIsInHandKeepsNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const id = `('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid`
	db.Exec(t, pgtest.Admin, `select deed.add_tenant(`+id+`, 't' || n) from generate_series(1, 252) n`)
	db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to(format('{"plan": "p", "version": "1", "steps": {"a": {%s}}}', case when n < 252 then '"kind": "go", "handler": "report"' else '"kind": "sleep"' end), 'UTF8'), p_tenant => `+id+`)
		from generate_series(1, 252) n`)
	start := func(from, upto int) {
		db.Exec(t, pgtest.Worker, `select deed.start_run('p', '1', gen_random_uuid()::text, p_tenant => `+id+`) from generate_series($1::int, $2) n`, from, upto)
	}
	start(1, 250)
	worker := db.Pool(pgtest.Worker)
	claim := func(after any) string {
		return pgtest.One[string](t, worker, `select coalesce(string_agg(right(tenant_id::text, 3), ' ' order by tenant_id), '') from deed.claim_steps('{go:report,deed}', 'w', 1, p_after => $1::text::uuid)`, after)
	}
	want(t, "all in hand", pgtest.One[int](t, worker, `select count(*) from deed.claim_steps('{go:report}', 'w', 1000) c`) > 0, true)
	for pgtest.One[int](t, worker, `select count(*) from deed.claim_steps('{go:report}', 'w', 1000)`) > 0 {
	}
	want(t, "nothing", claim(nil), "")
	start(252, 252)
	want(t, "of the other queue", claim(nil), "252")
	start(251, 251)
	want(t, "of the same one, behind them", claim(nil), "251")
	start(1, 1)
	want(t, "round", claim("00000000-0000-0000-0000-000000000002"), "001")
}

// Nor a step that is claimed alone, as its claims were lost: its turn comes however much others before it in the order have to do.
func TestClaimSteps_ATurnForWhatIsClaimedAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owners := []string{"00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b", "00000000-0000-0000-0000-00000000000c"}
	for _, owner := range owners {
		db.Exec(t, pgtest.Admin, `select deed.add_tenant($1::text::uuid, right($1, 1))`, owner)
		db.Exec(t, pgtest.Worker, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep"}}}', p_tenant => $1::text::uuid)`, owner)
		db.Exec(t, pgtest.Worker, `select deed.start_run('p', '1', n::text, p_tenant => $1::text::uuid) from generate_series(1, case $1 when $2 then 1 else 20 end) n`, owner, owners[1])
	}
	db.Exec(t, pgtest.Owner, `update deed.run_steps set lost_claims = 1, claim = 1, claimed_at = now(), claimed_by = 'gone', lease_until = now() - interval '1 second' where tenant_id = $1::text::uuid`, owners[1])
	worker, after, claimed := db.Pool(pgtest.Worker), "", ""
	for range 3 {
		after = pgtest.One[string](t, worker, `select max(tenant_id::text) from deed.claim_steps('{deed}', 'w', 3, p_after => nullif($1::text, '')::uuid)`, after)
		claimed += after[len(after)-1:]
	}
	want(t, "the last of each claim", claimed, "abc")
}

// Who asks again, as the answer was lost, is told that it was recorded, whatever it said; nobody else is, whose claim had been lost by then.
func TestContract_O14_WhatIsRecordedIsNotLost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {a: {kind: go, handler: a}}}`)
	worker := db.Pool(pgtest.Worker)
	for _, outcome := range []string{"completed", "failed", "skipped", "waiting", "released", "offered"} {
		id := start(t, db, outcome, nil)
		claim := func() int64 {
			db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = clock_timestamp() - interval '1 second' where claim is not null`)
			db.Exec(t, pgtest.Owner, `update deed.run_steps set ready = true, process_after = now(), queue = case verdict when 'HOLD_OVER' then 'deed' else 'go:a' end where run_id = $1::text::uuid`, id)
			return pgtest.One[int64](t, worker, `select claim from deed.claim_steps('{go:a,deed}', 'w', 1)`)
		}
		finish := func(claim int64, outcome, code string) string {
			return pgtest.One[string](t, worker, `
				select result from deed.finish_steps(array[$1::text::uuid], '{0}', array[$2::bigint], '{a}', '{1}', array[$3::text],
				  array[case $3 when 'failed' then jsonb_build_object('error', jsonb_build_object('code', $4::text)) when 'offered' then '{"queue": "q", "input": 1, "key": "k"}' else '{}' end],
				  p_again => array[case when $3 in ('waiting', 'released') then 3600 end::float8])`, id, claim, outcome, code)
		}
		frozen := claim()
		second := claim()
		want(t, outcome, finish(second, outcome, "X"), "recorded")
		want(t, outcome+", again", finish(second, outcome, "X"), "repeated")
		want(t, outcome+", of who was frozen", finish(frozen, outcome, "X"), "lost")
		last, as := second, outcome
		switch outcome {
		case "waiting", "released", "offered":
			third := claim()
			want(t, outcome+", again, claimed by another", finish(second, outcome, "X"), "repeated")
			want(t, "the other's end", finish(third, "completed", ""), "recorded")
			want(t, outcome+", of who was frozen, after it", finish(frozen, outcome, "X"), "lost")
			last, as = third, "completed"
		case "failed":
			third := claim()
			want(t, "of one that was frozen", finish(frozen, "failed", "HOLD_OVER"), "lost")
			want(t, "the end of the hold", finish(third, "failed", "HOLD_OVER"), "recorded")
			want(t, "the end of the hold, again", finish(third, "failed", "HOLD_OVER"), "repeated")
		}
		db.Exec(t, pgtest.Admin, `select deed.redact_run($1::text::uuid, 'asked for')`, id)
		want(t, outcome+", again, after a redaction", finish(last, as, "X"), "repeated")
		want(t, outcome+", of who was frozen, after a redaction", finish(frozen, as, "X"), "lost")
	}
}

// A step whose lease is over while somebody has its row locked is not said to be its worker's; when the row is let go it is, as nobody has taken it.
func TestExtendSteps_ARowThatIsLetGo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	id := start(t, db, "r", nil)
	claim := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select claim from deed.claim_steps('{go:a}', 'w', 1, '1 hour')`)
	held := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.extend_steps(array[$1::text::uuid], '{0}', array[$2::bigint])`, id, claim)
	}
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from deed.run_steps for update`); err != nil {
		t.Fatal(err)
	}
	want(t, "locked, its lease lasts", held(), 1)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = now() - interval '1 second'`)
	if tx, err = db.Pool(pgtest.Owner).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `select from deed.run_steps for update`); err != nil {
		t.Fatal(err)
	}
	want(t, "locked, its lease is over", held(), 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "let go", held(), 1)
	want(t, "its lease", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select lease_until > now() from deed.run_steps`), true)
}
