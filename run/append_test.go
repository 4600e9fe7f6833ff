package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// The relation run_events has seed 001's columns, under its names, in its order and with
// its types.
func TestContract_R1_ColumnsOfTheSeed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	parent := appendAs(t, db, run.New{Run: r, Type: run.StepStarted, Step: "load", Attempt: 1})[0]
	appendAs(t, db, run.New{Run: r, Type: run.StepCompleted, Step: "load", Attempt: 1, EngineAttempt: 3, Data: begun, Parent: parent.ID})
	const seed = `runId, runSeq, eventId, stepId, engineAttemptId, logicalAttemptId, eventType, eventData, idempotencyKey, emittedAt, persistedAt, adapterVersion, engineRunRef, causedBySignalId, parentEventId`
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `set local search_path = deed`); err != nil {
		t.Fatal(err)
	}
	rows, err := tx.Query(t.Context(), `select `+seed+` from run_events where runId = $1 and eventType = 'StepCompleted'`, r)
	if err != nil {
		t.Fatal(err)
	}
	values, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the run", values["runid"], any(r))
	want(t, "the number", values["runseq"], any(int64(4)))
	want(t, "the step", values["stepid"], any("load"))
	want(t, "the engine's attempt", values["engineattemptid"], any("3"))
	want(t, "the logical attempt", values["logicalattemptid"], any("1"))
	want(t, "the adapter", values["adapterversion"], any("test/1"))
	key := idempotency.Key(r, "load", "1", "StepCompleted", "1")
	want(t, "the key", values["idempotencykey"], any(fmt.Sprintf("%x", key)))
	types := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum) from pg_attribute where attrelid = 'deed.run_events'::regclass and attnum <= 15`)
	want(t, "the types", types, "runid character varying(255), runseq bigint, eventid uuid, stepid character varying(255), engineattemptid character varying(255), "+
		"logicalattemptid character varying(255), eventtype character varying(64), eventdata jsonb, idempotencykey character(64), emittedat timestamp without time zone, "+
		"persistedat timestamp without time zone, adapterversion character varying(40), enginerunref jsonb, causedbysignalid uuid, parenteventid uuid")
}

// What was appended stays, for superusers, too.
func TestContract_R1_AppendOnlyForEverybody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	partition := pgtest.One[string](t, db.Pool(pgtest.Owner), `select tableoid::regclass::text from deed.run_log limit 1`)
	for _, table := range []string{"deed.run_log", partition} {
		for _, sql := range []string{`update ` + table + ` set event_data = '{}'`, `delete from ` + table, `truncate ` + table} {
			for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin, pgtest.Owner} {
				_, err := db.Pool(role).Exec(t.Context(), sql)
				if state := sqlState(err); state != "DDCON" && (role == pgtest.Owner || state != "42501") {
					t.Errorf("%s may %s: %v", role, sql, err)
				}
			}
		}
	}
	for _, sql := range []string{
		`update deed.runs set input = '{"a": 1}'`, `update deed.runs set plan_version = '2'`, `delete from deed.runs`, `truncate deed.runs`,
	} {
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	decide(t, db, r, run.RunCompleted)
	if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.runs set status = 'RUNNING', finished_at = null`); sqlState(err) != "DDCON" {
		t.Errorf("a run that has ended goes on: %v", err)
	}
	want(t, "the log", logOf(t, db, r), "1 RunApproved, 2 RunStarted, 3 RunCompleted")
}

// One event alone is written as it is in a call of many: its row, its message, and its start's.
func TestAppend_OneIsAsMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	other := running(t, db, "other")
	at := time.Date(2026, 1, 2, 3, 4, 6, 7000, time.UTC)
	for n, e := range []run.New{
		{Type: run.StepStarted, Step: "s", Attempt: 1},
		{Type: run.StepSkipped, Step: "é \"quoted\"", Attempt: 1, EmittedAt: at, Data: json.RawMessage(`{"reason": "not \u003cdue\u003e", "n": 1.50}`)},
		{Type: run.StepCompleted, Step: "s", Attempt: 1, EngineAttempt: 7, EmittedAt: at, Data: begun, Signal: signal(1), Parent: signal(2)},
		{Type: run.StepFailed, Step: "s", Attempt: 1, EmittedAt: at, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05.123456+01:00", "error": {"code": "E"}}`)},
	} {
		var said [2]string
		for i := range said {
			e.Run = running(t, db, fmt.Sprint(n, " ", i))
			events := []run.New{e}
			if i == 1 {
				events = append(events, run.New{Run: other, Type: run.StepStarted, Step: fmt.Sprint(n), Attempt: 1})
			}
			got := appendAs(t, db, events...)[0]
			said[i] = fmt.Sprint(got.Seq, got.Repeated) + pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(concat_ws(E'\n', l.run_seq, l.event_type, l.step_id, l.logical_attempt, l.engine_attempt, l.adapter_version, l.caused_by_signal_id, l.parent_event_id, l.event_data,
				    case when $2 or l.emitted_at <> l.persisted_at then l.emitted_at end, m.tenant_id, m.topic, m.type, m.content_type, m.list_version, m.slot = deed.slot(t.slot_base, m.key, m.id), m.created_at = l.persisted_at,
				    p.j ->> 'idempotencyKey' = encode(l.idempotency_key, 'hex'), p.j ->> 'eventId' = deed.run_event_id(l.run_id, l.run_seq)::text, (p.j ->> 'persistedAt')::timestamptz = l.persisted_at, (p.j ->> 'emittedAt')::timestamptz = l.emitted_at,
				    p.j - '{runId,eventId,idempotencyKey,emittedAt,persistedAt}'::text[]), E'\n' order by l.run_seq)
				from deed.run_log l
				join deed.log m on m.key = l.run_id::text
				cross join lateral (select convert_from(m.payload, 'UTF8')::jsonb as j) p
				join deed.topics t on t.topic = m.topic
				where l.run_id = $1::text::uuid and (p.j ->> 'runSeq')::bigint = l.run_seq and l.run_seq > 2`, e.Run, !e.EmittedAt.IsZero())
		}
		if said[0] != said[1] {
			t.Errorf("alone:\n%s\nwith another:\n%s", said[0], said[1])
		}
	}
}

// A start that is missing is appended before its end, by its own time; one that comes
// afterwards is a repeat of that.
func TestContract_R1_AnEndHasItsStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	got := appendAs(t, db,
		run.New{Run: r, Type: run.StepCompleted, Step: "one", Attempt: 1, Data: begun},
		run.New{Run: r, Type: run.StepStarted, Step: "one", Attempt: 1},
		run.New{Run: r, Type: run.StepStarted, Step: "two", Attempt: 1},
		run.New{Run: r, Type: run.StepFailed, Step: "two", Attempt: 1, Data: begun})
	want(t, "the numbers", fmt.Sprint(got[0].Seq, got[1].Seq, got[2].Seq, got[3].Seq), "4 3 5 6")
	want(t, "a start after its end", got[1].Repeated, true)
	again := appendAs(t, db, run.New{Run: r, Type: run.StepStarted, Step: "one", Attempt: 1})[0]
	want(t, "a late start", fmt.Sprint(again.Seq, again.Repeated, again.ID == got[1].ID), "3 true true")
	want(t, "the log", logOf(t, db, r), "1 RunApproved, 2 RunStarted, 3 StepStarted one#1, 4 StepCompleted one#1, 5 StepStarted two#1, 6 StepFailed two#1")
	want(t, "when it began", pgtest.One[string](t, db.Pool(pgtest.Owner), `select to_char(emitted_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') from deed.run_log where run_seq = 3`), "2026-01-02 03:04:05")
}

func TestContract_R3_RepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r, other := running(t, db, "a"), running(t, db, "b")
	e := run.New{Run: r, Type: run.StepCompleted, Step: "load", Attempt: 1, EngineAttempt: 1, Data: begun}
	first := appendAs(t, db, e)[0]
	e.EngineAttempt = 7 // no part of the key
	want(t, "a repeat", appendAs(t, db, e)[0], run.Appended{Seq: first.Seq, ID: first.ID, Repeated: true})
	both := appendAs(t, db, e, run.New{Run: other, Type: run.StepStarted, Step: "load", Attempt: 1}, run.New{Run: other, Type: run.StepStarted, Step: "load", Attempt: 1}, e)
	want(t, "repeats within a call", fmt.Sprint(both[0].Repeated, both[1].Repeated, both[2].Repeated, both[3].Repeated, both[1].Seq == both[2].Seq), "true false true true true")
	count := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select differing from deed.runs where run_id = $1::text::uuid`, r)
	}
	want(t, "repeats that say something else", count(), 0)
	e.Data = json.RawMessage(`{"started_at": "2026-01-02T03:04:06Z"}`)
	appendAs(t, db, e, e)
	want(t, "repeats that say something else", count(), 2)
	decide(t, db, r, run.RunCompleted)
	want(t, "a repeat after the run's end", appendAs(t, db, e)[0].Repeated, true)
	want(t, "the log", logOf(t, db, r), "1 RunApproved, 2 RunStarted, 3 StepStarted load#1, 4 StepCompleted load#1, 5 RunCompleted")
}

// A run may be paused twice: the signal takes the step's place in the key.
func TestContract_R3_TheSignalTakesTheStepsPlace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	for n := range 2 {
		for _, typ := range []run.Type{run.SignalAccepted, run.RunPaused, run.RunResumed} {
			for try := range 2 {
				got, err := write(t.Context(), db.Pool(pgtest.Owner), run.New{Run: r, Type: typ, Signal: signal(n)})
				if err != nil || got[0].Repeated != (try == 1) {
					t.Fatalf("%s by signal %d, try %d: %+v, %v", typ, n, try, got, err)
				}
			}
		}
	}
	want(t, "the key", pgtest.One[string](t, db.Pool(pgtest.Owner), `select encode(idempotency_key, 'hex') from deed.run_log where run_seq = 4`),
		fmt.Sprintf("%x", idempotency.Key(r, signal(0), "1", "RunPaused", "1")))
	want(t, "the status", status(t, db, r), "RUNNING")
}

var (
	types    = []run.Type{run.RunApproved, run.RunStarted, run.StepStarted, run.StepCompleted, run.StepFailed, run.StepSkipped, run.SignalAccepted, run.SignalRejected, run.RunPaused, run.RunResumed, run.RunCompleted, run.RunFailed, run.RunCancelled}
	statuses = []string{"PENDING", "APPROVED", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"}
)

// toStatus has what brings a run to each status.
var toStatus = map[string][]run.Type{
	"PENDING": {}, "APPROVED": {run.RunApproved}, "RUNNING": {run.RunApproved, run.RunStarted}, "PAUSED": {run.RunApproved, run.RunStarted, run.RunPaused},
	"COMPLETED": {run.RunApproved, run.RunStarted, run.RunCompleted}, "FAILED": {run.RunFailed}, "CANCELLED": {run.RunCancelled},
}

// newEvent is an event of that type that no run has.
func newEvent(id string, typ run.Type) run.New {
	e := run.New{Run: id, Type: typ, Attempt: 1}
	switch {
	case strings.HasPrefix(string(typ), "Step"):
		e.Step, e.Data = "step", begun
	case strings.HasPrefix(string(typ), "Signal") || typ == run.RunPaused || typ == run.RunResumed:
		e.Signal = signal(99)
	}
	return e
}

// Every cell of deed.run_transitions: what stands there is taken and leads there, what
// does not is refused and changes nothing.
func TestContract_R4_EveryCell(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	for _, from := range statuses {
		for _, typ := range types {
			to := pgtest.One[string](t, owner, `select coalesce(max(to_status), '') from deed.run_transitions where event_type = $1 and from_status = $2`, string(typ), from)
			r := make1(t, db, from+string(typ))
			decide(t, db, r, toStatus[from]...)
			want(t, "the status", status(t, db, r), from)
			before := logOf(t, db, r)
			_, err := write(t.Context(), owner, newEvent(r, typ))
			repeat := slices.Contains(toStatus[from], typ) && typ != run.RunPaused
			switch {
			case repeat && err == nil && status(t, db, r) == from && logOf(t, db, r) == before:
			case to == "" && sqlState(err) == "DDCON" && status(t, db, r) == from && logOf(t, db, r) == before:
			case to != "" && err == nil && status(t, db, r) == to && logOf(t, db, r) != before:
			default:
				t.Errorf("%s while %s: %v; it is %s then, and the table says %q", typ, from, err, status(t, db, r), to)
			}
		}
	}
	want(t, "cells", pgtest.One[int](t, owner, `select count(*) from deed.run_transitions where event_type = any ($1) and from_status = any ($2)`, types, statuses),
		pgtest.One[int](t, owner, `select count(*) from deed.run_transitions`))
	want(t, "what ends", pgtest.One[int](t, owner, `
		select count(*) from deed.run_transitions where from_status in ('COMPLETED', 'FAILED', 'CANCELLED') and event_type not like 'Signal%'`), 0)
}

// Of a step's attempt there is one end, and the next one begins after it.
func TestContract_R5_OneEndAnAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	step := func(typ run.Type, attempt int) run.New {
		return run.New{Run: r, Type: typ, Step: "s", Attempt: attempt, Data: begun}
	}
	refused := func(what string, events ...run.New) {
		t.Helper()
		before := logOf(t, db, r)
		if _, err := run.Append(t.Context(), db.Pool(pgtest.Worker), "", events...); deed.CodeOf(err) != deed.Conflict || logOf(t, db, r) != before {
			t.Errorf("%s: %v; %s", what, err, logOf(t, db, r))
		}
	}
	refused("the second attempt first", step(run.StepStarted, 2))
	appendAs(t, db, step(run.StepStarted, 1))
	refused("the second beside the first", step(run.StepStarted, 2))
	refused("two ends in one call", step(run.StepFailed, 1), step(run.StepCompleted, 1))
	appendAs(t, db, step(run.StepFailed, 1))
	refused("another end", step(run.StepCompleted, 1))
	refused("another end", step(run.StepSkipped, 1))
	refused("the third", step(run.StepStarted, 3))
	appendAs(t, db, step(run.StepFailed, 2), step(run.StepCompleted, 3))
	refused("an end of one before", step(run.StepCompleted, 2))
	appendAs(t, db, run.New{Run: r, Type: run.StepSkipped, Step: "t", Attempt: 1})
	refused("a start after it was skipped", run.New{Run: r, Type: run.StepStarted, Step: "t", Attempt: 1})
	want(t, "the log", logOf(t, db, r), "1 RunApproved, 2 RunStarted, 3 StepStarted s#1, 4 StepFailed s#1, 5 StepStarted s#2, 6 StepFailed s#2, 7 StepStarted s#3, 8 StepCompleted s#3, 9 StepSkipped t#1")
}

// Whatever is wrong is refused by name, and nothing of the call is stored.
func TestContract_R3_BadInput(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{0xb}, "b"); err != nil {
		t.Fatal(err)
	}
	var r string
	inTenant := func(id tenant.ID, role pgtest.Role, fn func(pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), db.Pool(role), func(tx pgx.Tx) error {
			if err := tenant.Set(t.Context(), tx, id); err != nil {
				return err
			}
			return fn(tx)
		})
	}
	if err := inTenant(tenant.ID{}, pgtest.App, func(tx pgx.Tx) error {
		made, err := run.Create(t.Context(), tx, run.Request{Plan: "p", Version: "1", ID: "a"})
		r = made.ID
		return err
	}); err != nil {
		t.Fatal(err)
	}
	decide(t, db, r, run.RunApproved, run.RunStarted)
	before := logOf(t, db, r)
	big := fmt.Sprintf(`'{"a": "%s"}'`, strings.Repeat("x", 65<<10))
	for _, c := range []struct{ what, run, typ, step, attempt, rest, code string }{
		{"unknown type", r, "'StepPaused'", "'s'", "1", "", "DDARG"},
		{"no type", r, "null", "'s'", "1", "", "DDARG"},
		{"a run's event", r, "'RunCompleted'", "null", "1", "", "DDARG"},
		{"a signal's event", r, "'SignalAccepted'", "null", "1", ", p_signals => '{00000000-0000-4000-8000-000000000001}'", "DDARG"},
		{"no step", r, "'StepStarted'", "null", "1", "", "DDARG"},
		{"an empty step", r, "'StepStarted'", "''", "1", "", "DDARG"},
		{"the step RUN", r, "'StepStarted'", "'RUN'", "1", "", "DDARG"},
		{"a long step", r, "'StepStarted'", "repeat('x', 201)", "1", "", "DDARG"},
		{"attempt 0", r, "'StepStarted'", "'s'", "0", "", "DDARG"},
		{"no attempt", r, "'StepStarted'", "'s'", "null", "", "DDARG"},
		{"engine attempt 0", r, "'StepStarted'", "'s'", "1", ", p_engine_attempts => '{0}'", "DDARG"},
		{"65 KiB", r, "'StepStarted'", "'s'", "1", ", p_data => array[" + big + "::jsonb]", "DDARG"},
		{"a list", r, "'StepStarted'", "'s'", "1", ", p_data => array['[]'::jsonb]", "DDARG"},
		{"JSON's null", r, "'StepStarted'", "'s'", "1", ", p_data => array['null'::jsonb]", "DDARG"},
		{"infinity", r, "'StepStarted'", "'s'", "1", ", p_emitted_at => '{infinity}'", "DDARG"},
		{"minus infinity", r, "'StepStarted'", "'s'", "1", ", p_emitted_at => '{-infinity}'", "DDARG"},
		{"an end without its start", r, "'StepCompleted'", "'s'", "1", "", "DDARG"},
		{"a start that is no time", r, "'StepCompleted'", "'s'", "1", `, p_data => array['{"started_at": "2026-13-02T03:04:05Z"}'::jsonb]`, "DDARG"},
		{"a start without a zone", r, "'StepCompleted'", "'s'", "1", `, p_data => array['{"started_at": "2026-01-02T03:04:05"}'::jsonb]`, "DDARG"},
		{"a start before 1970", r, "'StepCompleted'", "'s'", "1", `, p_data => array['{"started_at": "0001-01-01T00:00:00+14:00"}'::jsonb]`, "DDARG"},
		{"a start after 9999", r, "'StepFailed'", "'s'", "1", `, p_data => array['{"started_at": "9999-12-31T23:59:59-14:00"}'::jsonb]`, "DDARG"},
		{"digits of 128 KiB", r, "'StepStarted'", "'s'", "1", `, p_data => array['{"a": 1e131000}'::jsonb]`, "DDARG"},
		{"1,001 levels", r, "'StepStarted'", "'s'", "1", `, p_data => array[('{"a": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb]`, "DDARG"},
		{"unequal length", r, "'StepStarted'", "'s'", "1", ", p_data => '{null,null}'", "DDARG"},
		{"arrays of two dimensions", r, "'StepStarted'", "'s'", "1", ", p_engine_attempts => '{{1}}'", "DDARG"},
		{"more types", r, "'StepStarted', 'StepStarted'", "'s'", "1", "", "DDARG"},
		{"a long adapter", r, "'StepStarted'", "'s'", "1", ", p_adapter => repeat('x', 41)", "DDARG"},
		{"an unknown run", "00000000-0000-7000-8000-000000000000", "'StepStarted'", "'s'", "1", "", "DDNFD"},
	} {
		sql := `select from deed.append_events(array['` + c.run + `'::uuid], array[` + c.typ + `]::text[], array[` + c.step + `]::text[], array[` + c.attempt + `]::int[]` + c.rest + `)`
		if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), sql); sqlState(err) != c.code {
			t.Errorf("%s: %v, want %s", c.what, err, c.code)
		}
	}
	// However few runs are named, or free.
	held, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context())
	if _, err := held.Exec(t.Context(), `select from deed.runs where run_id = $1::text::uuid for no key update`, r); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`select from deed.append_events('{}', '{StepStarted}', '{s}', '{1}')`,
		`select from deed.append_events(null, '{StepStarted}', '{s}', '{1}')`,
		`select from deed.append_events('{}', '{}', '{}', '{}', p_data => '{null}')`,
		`select from deed.try_append_events('{}', '{StepStarted}', '{s}', '{1}')`,
		`select from deed.try_append_events('{` + r + `}', '{StepStarted,StepStarted}', '{s}', '{1}')`,
		`select from deed.try_append_events('{` + r + `}', '{StepStarted}', '{s}', '{1}', p_data => '{null,null}')`,
	} {
		if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), sql); sqlState(err) != "DDARG" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	held.Rollback(t.Context())
	good := run.New{Run: r, Type: run.StepStarted, Step: "s", Attempt: 1}
	if err := inTenant(tenant.ID{0xb}, pgtest.Worker, func(tx pgx.Tx) error { _, err := run.Append(t.Context(), tx, "", good); return err }); deed.CodeOf(err) != deed.Forbidden {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := run.Append(t.Context(), db.Pool(pgtest.App), "", good); sqlState(err) != "42501" {
		t.Errorf("the application appends: %v", err)
	}
	// One bad event, and nothing of the call is there.
	bad := good
	for _, spoil := range []func(){
		func() { bad.Step = "" }, func() { bad.Step = "a\x00b" }, func() { bad.Run = "x" }, func() { bad.Attempt = 0 }, func() { bad.Attempt = 1 << 40 },
		func() { bad.Data = json.RawMessage(`{`) }, func() { bad.Data = json.RawMessage(`{"a": "\u0000"}`) }, func() { bad.Data = json.RawMessage("{\"a\": \"\xff\"}") },
		func() { bad.EmittedAt = time.Unix(1<<60, 0) }, // what the driver would make another time of
		func() { bad.EmittedAt = time.Unix(-1, 0) }, func() { bad.EmittedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		bad = good
		spoil()
		if _, err := run.Append(t.Context(), db.Pool(pgtest.Worker), "", good, bad); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	want(t, "the log", logOf(t, db, r), before)
	if got, err := run.Append(t.Context(), db.Pool(pgtest.Worker), ""); got != nil || err != nil {
		t.Errorf("no events: %v, %v", got, err)
	}
}

// An event and its message are there together or not at all (R13).
func TestContract_R13_EachEventIsPublishedWithIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	r := running(t, db, "a")
	fail := fmt.Errorf("no")
	e := run.New{Run: r, Type: run.StepCompleted, Step: `odd "step" ü`, Attempt: 1, Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "null": null}`)}
	err := pgx.BeginFunc(ctx, db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
		if _, err := run.Append(ctx, tx, "a/1", e); err != nil {
			return err
		}
		return fail
	})
	if err != fail {
		t.Fatal(err)
	}
	want(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'deed.run_events'`), 2)
	appendAs(t, db, e, e)
	rows, err := db.Pool(pgtest.App).Query(ctx, `select key, type, payload from deed.log where topic = 'deed.run_events' order by id`)
	if err != nil {
		t.Fatal(err)
	}
	var key, typ string
	var payload []byte
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &typ, &payload}, func() error {
		n++
		var got run.Event
		if err := json.Unmarshal(payload, &got); err != nil {
			return fmt.Errorf("%s: %w", payload, err)
		}
		want(t, "the key", key, r)
		want(t, "the type", typ, string(got.Type))
		want(t, "the number", got.Seq, int64(n))
		stored := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select concat_ws(' ', eventid, logicalattemptid, idempotencykey, stepid, eventdata::text, persistedat = $3) from deed.run_events where run_id = $1::text::uuid and runseq = $2`, r, got.Seq, got.PersistedAt.UTC())
		want(t, "what is published", strings.Join(strings.Fields(strings.Join([]string{got.ID, fmt.Sprint(got.Attempt), got.Key, got.Step, string(got.Data), "t"}, " ")), " "), strings.Join(strings.Fields(stored), " "))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want(t, "messages", n, 4)
}
