package run_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// runsOf makes a run of a and one of b, and says which is whose.
func runsOf(t *testing.T, db *pgtest.DB, a, b tenant.ID) map[tenant.ID]string {
	t.Helper()
	runs := map[tenant.ID]string{}
	for _, id := range []tenant.ID{a, b} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, id.String()); err != nil {
			t.Fatal(err)
		}
		made, err := run.CreateFor(t.Context(), db.Pool(pgtest.Worker), id, run.Request{Plan: "p", Version: "1", ID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		decide(t, db, made.ID, run.RunApproved, run.RunStarted)
		runs[id] = made.ID
	}
	return runs
}

// slow is what appends all that deed.write_event leaves to it: while it is away, what is appended was
// appended by that one alone.
func slow(t *testing.T, db *pgtest.DB, away bool) {
	t.Helper()
	from, to := "write_events", "write_events_away"
	if !away {
		from, to = to, from
	}
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter function deed.%s rename to %s`, from, to))
}

// trial is an append of one event alone, by a login, in a transaction that has set a tenant.
type trial struct {
	what  string
	login string // "": the worker's
	set   string // "": no tenant
	of    tenant.ID
	code  string // that it is refused with
}

// appendsAs tries each, with what is slow away and then there: what may be appended needs it not, and what may not is
// refused by it, by name; then as one of many. Nothing that is refused is stored.
func appendsAs(t *testing.T, db *pgtest.DB, runs map[tenant.ID]string, trials ...trial) {
	t.Helper()
	n := time.Now().UnixNano() // steps of its own
	try := func(c trial, count int) error {
		conn := db.Conn(t, pgtest.Owner) // each has a session of its own
		defer conn.Close(t.Context())
		login := c.login
		if login == "" {
			login = pgtest.One[string](t, db.Pool(pgtest.Worker), `select session_user::text`)
		}
		if _, err := conn.Exec(t.Context(), `set session authorization `+pgx.Identifier{login}.Sanitize()); err != nil {
			t.Fatal(err)
		}
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, c.set); err != nil {
				return err
			}
			n += int64(count)
			_, err := tx.Exec(t.Context(), `
				select from deed.append_events(array_fill($1::text::uuid, array[$3::int]), array_fill('StepStarted'::text, array[$3::int]),
				  array(select 's' || $2::bigint - i from generate_series(1, $3) i), array_fill(1, array[$3::int]))`, runs[c.of], n, count)
			return err
		})
	}
	slow(t, db, true)
	for _, c := range trials {
		code := c.code
		if code != "" && code != "42501" {
			code = "42883" // there is no such function: it was left to that one
		}
		want(t, c.what+", by write_event", sqlState(try(c, 1)), code)
	}
	slow(t, db, false)
	for _, c := range trials {
		before := logOf(t, db, runs[c.of])
		for _, count := range []int{1, 2} {
			err := try(c, count)
			want(t, fmt.Sprintf("%s, %d events: %v", c.what, count, err), sqlState(err), c.code)
		}
		if after := logOf(t, db, runs[c.of]); (before == after) != (c.code != "") {
			t.Errorf("%s: the log was %s, and is %s", c.what, before, after)
		}
	}
}

// An event that is appended alone is held to tenants as one of many is, where logins are bound, too.
func TestContract_D7_AnEventAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	runs := runsOf(t, db, a, b)
	unbound := []trial{
		{"none set, a's", "", "", a, ""},
		{"none set, b's", "", "", b, ""},
		{"b set, b's", "", b.String(), b, ""},
		{"b set, a's", "", b.String(), a, "DDTEN"},
		{"a setting that cannot be read", "", "b", b, "DDTEN"},
	}
	appendsAs(t, db, runs, unbound...)

	login := "deed_test_bound_" + db.Name()
	db.Exec(t, pgtest.Owner, `create role `+pgx.Identifier{login}.Sanitize()+` login in role deed_app`)
	t.Cleanup(func() { db.Exec(t, pgtest.Owner, `drop role `+pgx.Identifier{login}.Sanitize()) })
	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Admin), login, []tenant.ID{b}, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	appendsAs(t, db, runs, trial{"an application, b's", login, "", b, "42501"})
	// Who binds a login does so before it is a worker: one that is cannot be.
	db.Exec(t, pgtest.Owner, `grant deed_worker to `+pgx.Identifier{login}.Sanitize())
	appendsAs(t, db, runs, append(unbound,
		trial{"bound to b, none set, b's", login, "", b, ""},
		trial{"bound to b, b set, b's", login, b.String(), b, ""},
		trial{"bound to b, none set, a's", login, "", a, "DDTEN"},
		trial{"bound to b, a set, a's", login, a.String(), a, "DDTEN"},
		trial{"bound to b, a set, b's", login, a.String(), b, "DDTEN"},
	)...)

	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Owner), login, []tenant.ID{a, b}, audit.Act{By: "x", Reason: "x"}); err == nil {
		t.Error("a worker is bound")
	}

	if _, err := tenant.Remove(t.Context(), db.Pool(pgtest.Admin), b, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	appendsAs(t, db, runs,
		trial{"a's, once b was removed", "", "", a, ""},
		trial{"a set, a's, once b was removed", "", a.String(), a, ""},
		trial{"b's, once it was removed", "", "", b, "DDCON"},
		trial{"b set, b's, once it was removed", "", b.String(), b, "DDCON"},
		trial{"bound to b, b's, once it was removed", login, "", b, "DDTEN"},
		trial{"bound to b, a's, once b was removed", login, "", a, "DDTEN"},
	)
}

// Who crosses tenants and has set one, or is bound to one, does nothing to another one's runs.
func TestContract_D7_AnothersRunIsNotRedacted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	runs := runsOf(t, db, a, b)
	for _, r := range runs {
		decide(t, db, r, run.RunFailed)
	}
	act := audit.Act{By: "ann", Reason: "asked for"}
	bound := "deed_test_bound_" + db.Name()
	db.Exec(t, pgtest.Owner, `create role `+pgx.Identifier{bound}.Sanitize()+` login in role deed_app`)
	t.Cleanup(func() { db.Exec(t, pgtest.Owner, `drop role `+pgx.Identifier{bound}.Sanitize()) })
	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Admin), bound, []tenant.ID{a}, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `grant deed_admin to `+pgx.Identifier{bound}.Sanitize()) // who binds a login does so before it is an operator
	admin := pgtest.One[string](t, db.Pool(pgtest.Admin), `select session_user::text`)
	for _, c := range []struct {
		what, login, set string
		refused          bool
	}{
		{"a set", admin, a.String(), true},
		{"bound to a, none set", bound, "", true},
		{"bound to a, a set", bound, a.String(), true},
		{"bound to a, b set", bound, b.String(), true},
		{"b set", admin, b.String(), false},
	} {
		for what, do := range map[string]func(pgx.Tx) error{
			"redact":  func(tx pgx.Tx) error { _, err := run.Redact(t.Context(), tx, runs[b], act); return err },
			"rebuild": func(tx pgx.Tx) error { _, err := run.Rebuild(t.Context(), tx, runs[b], false); return err },
		} {
			conn := db.Conn(t, pgtest.Owner) // each has a session of its own
			if _, err := conn.Exec(t.Context(), `set session authorization `+pgx.Identifier{c.login}.Sanitize()); err != nil {
				t.Fatal(err)
			}
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, c.set); err != nil {
					return err
				}
				return do(tx)
			})
			if c.refused && deed.CodeOf(err) != deed.Forbidden || !c.refused && err != nil {
				t.Errorf("%s, %s b's: %v", c.what, what, err)
			}
			want(t, fmt.Sprintf("%s, %s b's: it is redacted or rebuilt", c.what, what), pgtest.One[bool](t, db.Pool(pgtest.Owner), `
				select exists (select from deed.runs where redacted_at is not null) or exists (select from deed.run_snapshots)`), !c.refused)
			if err := conn.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Nor is who has set one told what has become of another one's run by asking to end it or to approve it.
func TestContract_D7_AnothersRunIsNotDecided(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	runs := runsOf(t, db, a, b)
	decide(t, db, runs[b], run.RunCancelled)
	act := audit.Act{By: "ann", Reason: "a test"}
	bound := "deed_test_bound_" + db.Name()
	db.Exec(t, pgtest.Owner, `create role `+pgx.Identifier{bound}.Sanitize()+` login in role deed_app`)
	t.Cleanup(func() { db.Exec(t, pgtest.Owner, `drop role `+pgx.Identifier{bound}.Sanitize()) })
	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Admin), bound, []tenant.ID{a}, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `grant deed_admin to `+pgx.Identifier{bound}.Sanitize()) // who binds a login does so before it is an operator
	admin := pgtest.One[string](t, db.Pool(pgtest.Admin), `select session_user::text`)
	for _, c := range []struct {
		what, login, set string
		refused          bool
	}{
		{"a set", admin, a.String(), true},
		{"a setting that cannot be read", admin, "b", true},
		{"bound to a, none set", bound, "", true},
		{"bound to a, a set", bound, a.String(), true},
		{"bound to a, b set", bound, b.String(), true},
		{"b set", admin, b.String(), false},
		{"none set", admin, "", false},
	} {
		for what, said := range map[string]struct {
			do  func(pgx.Tx) (bool, error)
			own string // what its tenant is told
		}{
			"cancel":  {func(tx pgx.Tx) (bool, error) { return run.Cancel(t.Context(), tx, runs[b], act) }, "false "},
			"approve": {func(tx pgx.Tx) (bool, error) { return false, run.Approve(t.Context(), tx, runs[b], act) }, "false " + string(deed.Conflict)},
		} {
			conn := db.Conn(t, pgtest.Owner) // each has a session of its own
			if _, err := conn.Exec(t.Context(), `set session authorization `+pgx.Identifier{c.login}.Sanitize()); err != nil {
				t.Fatal(err)
			}
			var did bool
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) (err error) {
				if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, c.set); err != nil {
					return err
				}
				did, err = said.do(tx)
				return err
			})
			answer := said.own
			if c.refused {
				answer = "false " + string(deed.Forbidden)
			}
			want(t, fmt.Sprintf("%s, %s b's: %v", c.what, what, err), fmt.Sprint(did, " ", deed.CodeOf(err)), answer)
			if err := conn.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Who crosses tenants and has set one, or is bound to one, has no step of another one's tried again.
func TestRetryStep_AnothersStep(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // the step waits for a person, and nothing has failed
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for _, id := range []tenant.ID{a, b} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, id.String()); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.Worker, `select deed.put_plan('{"plan":"p","steps":{"s":{"kind":"external","queue":"q"}},"version":"1"}', p_tenant => $1::text::uuid)`, b.String())
	id := pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.start_run('p', '1', '1', p_tenant => $1::text::uuid)`, b.String())
	db.Exec(t, pgtest.Owner, `update deed.run_steps set verdict = 'HOLD_OVER', ready = false, process_after = 'infinity'`)
	admin, bound := pgtest.One[string](t, db.Pool(pgtest.Admin), `select session_user::text`), "deed_test_bound_"+db.Name()
	db.Exec(t, pgtest.Owner, `create role `+pgx.Identifier{bound}.Sanitize()+` login in role deed_app`)
	t.Cleanup(func() { db.Exec(t, pgtest.Owner, `drop role `+pgx.Identifier{bound}.Sanitize()) })
	if _, err := tenant.Bind(t.Context(), db.Pool(pgtest.Admin), bound, []tenant.ID{a}, audit.Act{By: "x", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `grant deed_admin to `+pgx.Identifier{bound}.Sanitize()) // who binds a login does so before it is an operator
	for _, c := range []struct {
		what, login, set string
		refused          bool
	}{
		{"a set", admin, a.String(), true},
		{"a setting that cannot be read", admin, "b", true},
		{"bound to a, none set", bound, "", true},
		{"bound to a, a set", bound, a.String(), true},
		{"bound to a, b set", bound, b.String(), true},
		{"b set", admin, b.String(), false},
	} {
		conn := db.Conn(t, pgtest.Owner) // each has a session of its own
		if _, err := conn.Exec(t.Context(), `set session authorization `+pgx.Identifier{c.login}.Sanitize()); err != nil {
			t.Fatal(err)
		}
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, c.set); err != nil {
				return err
			}
			_, err := run.RetryStep(t.Context(), tx, id, "s", true, audit.Act{By: "ann", Reason: "a test"})
			return err
		})
		want(t, fmt.Sprintf("%s: %v", c.what, err), deed.CodeOf(err) == deed.Forbidden, c.refused)
		want(t, c.what+": the step's attempt", pgtest.One[int](t, db.Pool(pgtest.Owner), `select attempt from deed.run_steps`), map[bool]int{true: 1, false: 2}[c.refused])
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
