package local_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

const endsPlan = `{plan: p, version: "1", steps: {
  a: {kind: go, handler: h}, b: {kind: go, handler: h}, c: {kind: go, handler: h}, d: {kind: go, handler: h, retry: {attempts: 2, backoff: 1ms}},
  after-b: {kind: go, handler: h, after: [b]}, last: {kind: go, handler: h, after: [a, b, c, d], needs: done}}}`

// endAll ends the steps that are due, as their names and attempts say, and reports whether the run has ended.
func endAll(t *testing.T, db *pgtest.DB, id string, owner string) bool {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, owner); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `
			select deed.finish_steps(array_agg(c.run_id), array_agg(c.place), array_agg(c.claim), array_agg(c.step_id), array_agg(c.attempt),
			  array_agg(case when c.step_id = 'b' or c.step_id = 'd' and c.attempt = 1 then 'failed' when c.step_id = 'c' then 'skipped' else 'completed' end),
			  array_agg(case when c.step_id in ('b', 'd') and c.attempt = 1 then '{"error": {"category": "user", "code": "NO", "message": "ü", "retryable": true}}'
			    when c.step_id = 'c' then '{"reason": "so"}' when c.step_id = 'a' then '{"output": {"x": "ü"}}' end::jsonb),
			  array_agg('2026-01-02 03:04:05.678Z'::timestamptz), p_adapter => 'test')
			from deed.claim_steps('{deed,go:h}', 'w', 10) c
			having count(*) > 0`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select finished_at is not null from deed.runs where run_id = $1::text::uuid`, id)
}

// written is all that there is of a run, but for what is another in each: its row, its events, their messages, and its steps.
func written(t *testing.T, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select concat_ws(E'\n',
		  (select to_jsonb(r) - '{run_id,input,input_sha256,created_at,started_at,finished_at}'::text[]
		      || jsonb_build_object('finished', r.finished_at = (select l.persisted_at from deed.run_log l where l.run_id = r.run_id order by l.run_seq desc limit 1))
		    from deed.runs r where r.run_id = $1::text::uuid),
		  (select string_agg((to_jsonb(l) - '{run_id,emitted_at,persisted_at,idempotency_key,event_data}'::text[])::text || (l.event_data - '{claim,until}'::text[]) || (l.event_data ? 'claim')
		      || (l.idempotency_key = deed.event_key(l.run_id, coalesce(l.step_id, 'RUN'), l.logical_attempt, l.event_type, '1'))
		      || case when l.event_type = 'StepStarted' then l.emitted_at::text else (l.emitted_at = l.persisted_at)::text end, E'\n' order by l.run_seq)
		    from deed.run_log l where l.run_id = $1::text::uuid),
		  (select string_agg(concat_ws(' ', l.slot = deed.slot((select t.slot_base from deed.topics t where t.topic = l.topic), l.key, 0), l.topic, l.type, l.tenant_id, l.content_type, l.list_version,
		      m - '{runId,eventId,idempotencyKey,emittedAt,persistedAt,eventData}'::text[], (m -> 'eventData') - '{claim,until}'::text[],
		      m ->> 'runId' = $1, m ->> 'eventId' = deed.run_event_id($1::text::uuid, (m ->> 'runSeq')::bigint)::text,
		      m ->> 'idempotencyKey' = encode(e.idempotency_key, 'hex'), (m ->> 'emittedAt')::timestamptz = e.emitted_at, (m ->> 'persistedAt')::timestamptz = e.persisted_at,
		      l.created_at = e.persisted_at, m -> 'eventData' = e.event_data, m ->> 'emittedAt' like '%+00:00'), E'\n' order by l.id)
		    from deed.log l cross join lateral (select convert_from(l.payload, 'UTF8')::jsonb as m) m
		    join deed.run_log e on e.run_id = $1::text::uuid and e.run_seq = (m ->> 'runSeq')::bigint
		    where l.key = $1),
		  (select count(*) || ' steps' from deed.run_steps s where s.run_id = $1::text::uuid))`, id)
}

// What ends is appended without the looks that others' events need (deed.write_ends): log, messages and the run's row are the same as by
// deed.write_events, which takes it where a tenant is set. A StepStarted that was told before comes once.
func TestContract_R1_EndsAreWrittenAlike(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, endsPlan)
	carry := func(id, owner string) string {
		db.Exec(t, pgtest.Worker, `select deed.announce_steps(array[s.run_id], array[s.place], null, array['2026-01-01 00:00Z'::timestamptz], 'test', array[1], array[1])
			from deed.run_steps s where s.run_id = $1::text::uuid and s.step_id = 'a'`, id)
		if owner == "" { // it does without
			db.Exec(t, pgtest.Owner, `alter function deed.write_events rename to write_events_away`)
			defer db.Exec(t, pgtest.Owner, `alter function deed.write_events_away rename to write_events`)
		}
		eventually(t, "the end of the run", func() bool { return endAll(t, db, id, owner) })
		return written(t, db, id)
	}
	first := start(t, db, "first", nil)
	ends := carry(first, "")
	has(t, ends, `"status": "FAILED"`, `StepStarted`, `RunFailed`, `0 steps`)
	has(t, logOf(t, db, first), "StepSkipped after-b#1", "StepStarted last#1, StepCompleted last#1, RunFailed")
	want(t, "what a run's steps leave that end", ends, carry(start(t, db, "second", nil), tenant.Default.String()))
}

// Inner steps that are recorded together are appended as ends are: the same as by deed.write_events.
func TestContract_R1_InnerStepsAreWrittenAlike(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: h}}}`)
	carry := func(request, owner string) string {
		id := start(t, db, request, nil)
		db.Exec(t, pgtest.Worker, `select from deed.claim_steps('{go:h}', 'w', 1, '1 hour')`) // longer than the test lasts
		record := func(owner, names, attempts, outcomes string) []string {
			t.Helper()
			var said []string
			err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, owner)
				if err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), `
					select r.result
					from (
						select array_agg(s.run_id) as runs, array_agg(s.place) as places, array_agg(s.claim) as claims, array_agg('a/' || u.name) as names, array_agg(u.attempt) as attempts, array_agg(u.outcome) as outcomes,
						  array_agg(case u.outcome when 'failed' then '{"error": {"category": "user", "code": "NO", "message": "ü", "retryable": true}, "key_n": 1}' when 'skipped' then '{"reason": "so"}' when 'completed' then '{"output": {"x": "ü"}}' end::jsonb) as data,
						  array_agg('2026-01-02 03:04:05.678Z'::timestamptz) as started, array_agg(case when u.outcome = 'waiting' then 0.0::float8 end) as again
						from deed.run_steps s cross join unnest($2::text[], $3::int[], $4::text[]) u(name, attempt, outcome)
						where s.run_id = $1::text::uuid
					) a
					cross join lateral deed.record_steps(a.runs, a.places, a.claims, a.names, a.attempts, a.outcomes, a.data, a.started, a.again, p_adapter => 'test') r
					order by r.ordinal`, id, names, attempts, outcomes)
				if err != nil {
					return err
				}
				said, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return said
		}
		record("", "{asleep}", "{1}", "{waiting}")
		if owner == "" { // it does without
			db.Exec(t, pgtest.Owner, `alter function deed.write_events rename to write_events_away`)
			defer db.Exec(t, pgtest.Owner, `alter function deed.write_events_away rename to write_events`)
		}
		want(t, "answers", strings.Join(record(owner, "{x,y,z,asleep}", "{1,1,1,1}", "{completed,failed,skipped,completed}"), " "), "recorded recorded recorded recorded")
		want(t, "answers to more", strings.Join(record(owner, "{y,x,w}", "{2,1,1}", "{completed,completed,completed}"), " "), "recorded repeated recorded")
		return written(t, db, id)
	}
	all := carry("first", "")
	has(t, all, `"status": "RUNNING"`, "StepSkipped", "a/asleep", `"of": 1`)
	want(t, "what inner steps leave", all, carry("second", tenant.Default.String()))
	// Twice in one call is no end like others; whoever knows what that is says so.
	id := start(t, db, "third", nil)
	_, err := db.Pool(pgtest.Worker).Exec(t.Context(), `
		select deed.record_steps(array[c.run_id, c.run_id], array[c.place, c.place], array[c.claim, c.claim], array['a/x', 'a/x'], array[1, 1], array['completed', 'completed'])
		from deed.claim_steps('{go:h}', 'w', 1) c`)
	want(t, "the log of one that is there twice, and refused or recorded once", logOf(t, db, id), map[bool]string{true: "RunApproved, RunStarted, StepStarted a/x#1, StepCompleted a/x#1", false: "RunApproved, RunStarted"}[err == nil])
}

// What is null of one of several inner steps is refused, and nobody is told that it is recorded.
func TestContract_R1_InnerStepsWithoutAll(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: h}}}`)
	for what, arrays := range map[string]string{"attempt": `array['a/x', 'a/y'], array[1, null]`, "name": `array['a/x', null], array[1, 1]`} {
		t.Run(what, func(t *testing.T) {
			id := start(t, db, what, nil)
			_, err := db.Pool(pgtest.Worker).Exec(t.Context(), `
				select deed.record_steps(array[c.run_id, c.run_id], array[c.place, c.place], array[c.claim, c.claim], `+arrays+`, array['completed', 'completed'])
				from deed.claim_steps('{go:h}', 'w', 1) c`)
			if err == nil || !strings.Contains(err.Error(), "DDARG") {
				t.Errorf("it is taken: %v", err)
			}
			want(t, "the log", logOf(t, db, id), "RunApproved, RunStarted")
			db.Exec(t, pgtest.Owner, `update deed.run_steps set parked = true`) // the next one is claimed alone
		})
	}
}

// An output of few bytes and many levels is refused as that of any event is: not every reader of JSON takes it.
func TestContract_R1_ADeepOutputIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: h}}}`)
	id := start(t, db, "deep", nil)
	_, err := db.Pool(pgtest.Worker).Exec(t.Context(), `
		select deed.finish_steps(array[c.run_id], array[c.place], array[c.claim], array['a'], array[1], array['completed'],
		  array[('{"output": ' || repeat('[', 1500) || repeat(']', 1500) || '}')::jsonb])
		from deed.claim_steps('{go:h}', 'w', 1) c`)
	if err == nil {
		t.Error("an output of 1,500 levels was stored")
	} else {
		has(t, err.Error(), "1000 arrays and objects in each other", "DDARG")
	}
	want(t, "the log", logOf(t, db, id), "RunApproved, RunStarted")
}
