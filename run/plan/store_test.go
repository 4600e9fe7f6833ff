package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t).Pool(pgtest.Worker).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := sqlfile.Check(t.Context(), conn.Conn(), plan.Statements); err != nil {
		t.Error(err)
	}
}

// A version never changes: of many who store it at once, with other bytes, one has, and all
// others are refused.
func TestContract_R12_PlanVersionNeverChanges(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	const callers = 8
	var wg sync.WaitGroup
	errs, made := make([]error, callers), make([]bool, callers)
	for i := range callers {
		p := parse(t, withSteps(fmt.Sprintf("s%d: {kind: sleep, for: 1s}", i%2)))
		wg.Go(func() { made[i], errs[i] = plan.Put(t.Context(), app, nil, p, "ann") })
	}
	wg.Wait()
	created, refused := 0, 0
	for i := range callers {
		switch {
		case made[i]:
			created++
		case deed.CodeOf(errs[i]) == deed.Conflict:
			refused++
		case errs[i] != nil:
			t.Error(errs[i])
		}
	}
	if created != 1 || refused != callers/2 {
		t.Errorf("%d created, %d refused: %v", created, refused, errs)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log a where a.subject_type = 'plan' and a.subject_id = 'p@1' and a.actor = 'ann'`); n != 1 {
		t.Errorf("%d in the audit log", n)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	p := parse(t, shipOrder)
	if created, err := plan.Put(t.Context(), app, nil, p, ""); err != nil || !created {
		t.Fatal(created, err)
	}
	if created, err := plan.Put(t.Context(), app, nil, p, ""); err != nil || created {
		t.Fatal(created, err)
	}
	for _, version := range []string{"", "3"} {
		got, err := plan.Load(t.Context(), app, nil, "ship-order", version, p.SHA256())
		if err != nil || string(got.Body()) != string(p.Body()) || len(got.Steps) != 6 || got.CreatedAt.IsZero() {
			t.Errorf("%+v %v", got, err)
		}
	}
	for _, name := range [][2]string{{"ship-order", "4"}, {"nobody", ""}} {
		if _, err := plan.Load(t.Context(), app, nil, name[0], name[1], nil); deed.CodeOf(err) != deed.NotFound {
			t.Error(err)
		}
	}
	graph := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', s.place, s.step_id, s.needs_success, s.depends, s.successors), ', ' order by s.place) from deed.plan_steps s`)
	if want := "0 charge t {} {1,2}, 1 tell t {0} {3}, 2 mail t {0} {3}, 3 close f {1,2} {}, 4 work t {} {}, 5 rest t {} {}"; graph != want {
		t.Errorf("%s, want %s", graph, want)
	}
	list, err := plan.List(t.Context(), app, plan.Filter{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Steps != 6 {
		t.Error(list, err)
	}
	if _, err := plan.List(t.Context(), app, plan.Filter{Limit: -1}); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "limit -1 is not from 1") {
		t.Error(err)
	}
}

// Bytes that are not those that were stored, or not those that a run began with, are
// refused, and both hashes are in the audit log.
func TestLoad_ErrIntegrity(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	db.Broken()
	p, other := parse(t, shipOrder), parse(t, withSteps("a: {kind: sleep, for: 1s}"))
	if _, err := plan.Put(t.Context(), app, nil, p, ""); err != nil {
		t.Fatal(err)
	}
	refused := func(hash []byte) {
		t.Helper()
		_, err := plan.Load(t.Context(), app, nil, "ship-order", "3", hash)
		if !errors.Is(err, plan.ErrIntegrity) || !strings.Contains(err.Error(), "PLAN_INTEGRITY_VALIDATION_FAILED") {
			t.Error(err)
		}
	}
	refused(other.SHA256())
	db.Exec(t, pgtest.Owner, `update deed.plans set body = replace(convert_from(body, 'UTF8'), 'psp', 'psq')::bytea`)
	refused(nil)
	refused(p.SHA256())
	db.Exec(t, pgtest.Owner, `update deed.plans set sha256 = sha256(body)`)
	refused(p.SHA256())
	n := pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(distinct a.details) from deed.audit_log a
		where a.action = 'refuse' and a.reason = 'PLAN_INTEGRITY_VALIDATION_FAILED' and a.subject_id = 'ship-order@3' and a.details ? 'expected' and a.details ->> 'found' <> a.details ->> 'expected'`)
	if n != 2 {
		t.Errorf("%d pairs of hashes in the audit log, want 2", n)
	}
}

// A plan is its tenant's.
func TestContract_D7_PlansOfTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for _, id := range []tenant.ID{a, b} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, id.String()); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range []tenant.ID{a, b} {
		p := parse(t, withSteps(fmt.Sprintf("s%d: {kind: sleep, for: 1s}", i))) // the same name and version
		if created, err := plan.Put(t.Context(), db.Pool(pgtest.Worker), &id, p, ""); err != nil || !created {
			t.Fatal(created, err)
		}
	}
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, a); err != nil {
			return err
		}
		got, err := plan.Load(t.Context(), tx, nil, "p", "", nil)
		if err != nil || got.Steps[0].ID != "s0" {
			t.Error(got, err)
		}
		list, err := plan.List(t.Context(), tx, plan.Filter{})
		if err != nil || len(list.Items) != 1 {
			t.Error(list, err)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for i := range 3 {
		p := parse(t, strings.Replace(withSteps("a: {kind: sleep, for: 1s}"), `"1"`, fmt.Sprintf(`"%d"`, i+2), 1))
		if _, err := plan.Put(t.Context(), db.Pool(pgtest.Worker), &a, p, ""); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	for f := (plan.Filter{ID: "p", Limit: 2}); ; {
		list, err := plan.List(t.Context(), db.Pool(pgtest.Worker), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Items {
			seen = append(seen, l.Version+l.Tenant.String()[:2])
		}
		if f.Cursor = list.Next; f.Cursor == "" {
			break
		}
	}
	if got := strings.Join(seen, " "); got != "10a 10b 20a 30a 40a" {
		t.Error(got)
	}
	if _, err := plan.List(t.Context(), db.Pool(pgtest.Worker), plan.Filter{Cursor: "x"}); deed.CodeOf(err) != deed.Invalid {
		t.Error(err)
	}
}

// The plan that was stored last is that of the tenant, also for a login that sees those of all.
func TestContract_D7_TheNewestPlanIsTheTenants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	for i, id := range []tenant.ID{a, b} {
		if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), id, id.String()); err != nil {
			t.Fatal(err)
		}
		p := parse(t, strings.Replace(withSteps("a: {kind: sleep, for: 1s}"), `"1"`, fmt.Sprintf(`"%d"`, i+1), 1))
		if _, err := plan.Put(t.Context(), db.Pool(pgtest.Worker), &id, p, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin} {
		err := pgx.BeginFunc(t.Context(), db.Pool(role), func(tx pgx.Tx) error {
			if err := tenant.Set(t.Context(), tx, a); err != nil {
				return err
			}
			got, err := plan.Load(t.Context(), tx, nil, "p", "", nil)
			if err == nil && got.Version != "1" {
				t.Errorf("%v has version %s of another tenant", role, got.Version)
			}
			return err
		})
		if err != nil {
			t.Errorf("%v: %v", role, err)
		}
		if _, err := plan.Load(t.Context(), db.Pool(role), nil, "p", "", nil); deed.CodeOf(err) != deed.Forbidden {
			t.Errorf("%v without a tenant: %v", role, err)
		}
	}
	if got, err := plan.Load(t.Context(), db.Pool(pgtest.Worker), &b, "p", "", nil); err != nil || got.Version != "2" {
		t.Error(got, err)
	}
}

// Whoever calls the function itself cannot store what is no graph, nor steps of names that the logs of runs do not take, or take for inner steps.
func TestPutPlan_ErrGraph(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for body, want := range map[string]string{
		``:                              "not in its canonical form",
		`x`:                             "not in its canonical form",
		`[1]`:                           "plan and version must have",
		`{"plan": "p", "version": "1"}`: "a step at least",
		`{"plan": "p", "version": "1", "steps": 1}`:                                                                                   "not in its canonical form",
		`{"plan": "p", "version": "", "steps": {"a": {"kind": "sleep"}}}`:                                                             "plan and version must have",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "go"}}}`:                                                               "has no handler",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "no"}}}`:                                                               "no kind that is known",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep", "after": ["b"]}}}`:                                            "waits for one that is not there",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep", "after": ["a"]}}}`:                                            "wait for each other",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep"}, "a": {"kind": "sleep"}}}`:                                    "called the same",
		`{"plan": "p", "version": "1", "steps": {"RUN": {"kind": "sleep"}}}`:                                                          "cannot be called 'RUN'",
		`{"plan": "p", "version": "1", "steps": {"": {"kind": "sleep"}}}`:                                                             "cannot be called ''",
		`{"plan": "p", "version": "1", "steps": {"1": {"kind": "sleep"}}}`:                                                            "cannot be called '1'",
		`{"plan": "p", "version": "1", "steps": {"a": {"kind": "sleep"}, "a/b": {"kind": "sleep"}}}`:                                  "cannot be called 'a/b'",
		`{"plan": "p", "version": "1", "steps": {"` + strings.Repeat("a", 101) + `": {"kind": "sleep"}}}`:                             "cannot be called 'aaa",
		`{"plan": "p", "version": "1", "steps": {"RUN_": {"kind": "sleep"}, "_-` + strings.Repeat("9", 98) + `": {"kind": "sleep"}}}`: "",
	} {
		_, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.put_plan($1::text::bytea, p_tenant => '00000000-0000-0000-0000-000000000000')`, body)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
