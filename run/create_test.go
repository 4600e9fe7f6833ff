package run_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// The same request makes one run, however many ask at once; with another input it is
// refused.
func TestContract_R12_OneRunARequest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := run.Request{Plan: "nightly", Version: "1", ID: "2026-01-02", Input: json.RawMessage(`{"day": 2, "of": "May"}`)}
	var mu sync.Mutex
	ids := map[string]int{}
	made := 0
	var wg sync.WaitGroup
	pool := db.NewPool(pgtest.App, 16)
	for range 16 {
		wg.Go(func() {
			c, err := run.Create(t.Context(), pool, req)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[c.ID]++
			if c.New {
				made++
			}
		})
	}
	wg.Wait()
	if len(ids) != 1 || made != 1 {
		t.Errorf("runs %v, %d of them new", ids, made)
	}
	req.Input = json.RawMessage(`{"of": "May",   "day": 2}`)
	if c, err := run.Create(t.Context(), pool, req); err != nil || c.New {
		t.Errorf("the same input in other words: %+v, %v", c, err)
	}
	req.Input = json.RawMessage(`{"day": 3}`)
	if _, err := run.Create(t.Context(), pool, req); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "another input") {
		t.Errorf("another input: %v", err)
	}
	// Each part of the request makes another one.
	req.Input = nil
	for _, change := range []func(*run.Request){
		func(r *run.Request) { r.ID = "x" }, func(r *run.Request) { r.Plan = "x" }, func(r *run.Request) { r.Version = "x" },
		func(r *run.Request) { r.Project = "x" }, func(r *run.Request) { r.Environment = "x" },
	} {
		other := req
		change(&other)
		if c, err := run.Create(t.Context(), pool, other); err != nil || !c.New {
			t.Errorf("%+v: %+v, %v", other, c, err)
		}
	}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), tenant.ID{0xb}, "b"); err != nil {
		t.Fatal(err)
	}
	if c, err := run.CreateFor(t.Context(), db.Pool(pgtest.Worker), tenant.ID{0xb}, req); err != nil || !c.New {
		t.Errorf("another tenant's: %+v, %v", c, err)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 7)
}

// A request's key is made by an expression of its own, faster than by the function that makes all keys: of the same bytes, with the version and without.
func TestContract_R12_TheKeyIsThatOfTheParts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	want(t, "keys that differ, of all", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select count(*) filter (where deed.request_key(u.tenant, u.project, u.environment, u.plan, u.version, u.request)
		    is distinct from deed.idempotency_key(u.tenant::text, u.project, u.environment, u.plan, u.version, u.request)
		  or deed.request_key(u.tenant, u.project, u.environment, u.plan, null, u.request)
		    is distinct from deed.idempotency_key(u.tenant::text, u.project, u.environment, u.plan, u.request)) || ' of ' || count(*)
		from (
			select gen_random_uuid() as tenant, a.part as project, b.part as environment, 'p' || a.part as plan, b.part || '1' as version, a.part || b.part as request
			from unnest(array['x', 'ä\\x00', repeat('€', 200)]) a(part) cross join unnest(array['', 'Ω', '日本']) b(part)
		) u`), "0 of 9")
}

func TestContract_R12_BadRequests(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := run.Request{Plan: "p", Version: "1", ID: "a"}
	parent := make1(t, db, "parent")
	const unknown = "00000000-0000-7000-8000-000000000000"
	for what, c := range map[string]struct {
		change func(*run.Request)
		code   deed.Code
	}{
		"no plan":            {func(r *run.Request) { r.Plan = "" }, deed.Invalid},
		"no version":         {func(r *run.Request) { r.Version = "" }, deed.Invalid},
		"no id":              {func(r *run.Request) { r.ID = "" }, deed.Invalid},
		"a long id":          {func(r *run.Request) { r.ID = strings.Repeat("x", 201) }, deed.Invalid},
		"a list":             {func(r *run.Request) { r.Input = json.RawMessage(`[]`) }, deed.Invalid},
		"no JSON":            {func(r *run.Request) { r.Input = json.RawMessage(`{`) }, deed.Invalid},
		"a NUL":              {func(r *run.Request) { r.Input = json.RawMessage(`{"a": "\u0000"}`) }, deed.Invalid},
		"65 KiB":             {func(r *run.Request) { r.Input = json.RawMessage(`{"a": "` + strings.Repeat("x", 65<<10) + `"}`) }, deed.Invalid},
		"a short hash":       {func(r *run.Request) { r.PlanHash = []byte("x") }, deed.Invalid},
		"an engine's name":   {func(r *run.Request) { r.Engine = "My Engine" }, deed.Invalid},
		"a parent's step":    {func(r *run.Request) { r.ParentStep = "s" }, deed.Invalid},
		"a parent without":   {func(r *run.Request) { r.Parent = parent }, deed.Invalid},
		"an unknown parent":  {func(r *run.Request) { r.Parent, r.ParentStep = unknown, "s" }, deed.NotFound},
		"an unknown one":     {func(r *run.Request) { r.Original = unknown }, deed.NotFound},
		"one that is no id":  {func(r *run.Request) { r.Original = "x" }, deed.Invalid},
		"a project too long": {func(r *run.Request) { r.Project = strings.Repeat("x", 201) }, deed.Invalid},
	} {
		req := good
		c.change(&req)
		if _, err := run.Create(t.Context(), db.Pool(pgtest.App), req); deed.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
	}
	for _, sql := range []string{
		`select deed.create_run(null, '1', 'a')`, `select deed.create_run('p', null, 'a')`, `select deed.create_run('p', '1', null)`,
		`select deed.create_run('p', '1', 'a', p_project => null)`, `select deed.create_run('p', '1', 'a', p_environment => null)`,
		`select deed.create_run('p', '1', 'a', null)`, `select deed.create_run('p', '1', 'a', ('{"a": ' || repeat('[', 1000) || repeat(']', 1000) || '}')::jsonb)`,
	} {
		if _, err := db.Pool(pgtest.App).Exec(t.Context(), sql); sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "create_run: ") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for args, what := range map[string]string{
		"null, '1', 'a'": "plan", "null, null, 'a'": "plan", "'p', null, null": "request id", "'p', '1', null": "request id",
		"'p', null, 'a', p_project => null": "project", "'p', null, 'a', p_environment => null": "environment",
	} {
		if _, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed.start_run(`+args+`)`); sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "start_run: the "+what+" is null") {
			t.Errorf("%s: %v", args, err)
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs`), 1)
	sub, err := run.Create(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "1", ID: "sub", Parent: parent, ParentStep: "s", Original: parent})
	if err != nil || !sub.New {
		t.Errorf("a sub-run: %+v, %v", sub, err)
	}
	// The id's time is the database's: it chooses the partition.
	want(t, "the time of the id", pgtest.One[bool](t, db.Pool(pgtest.Owner), `
		select abs(('x' || left(replace(run_id::text, '-', ''), 12))::bit(48)::bigint - extract(epoch from created_at) * 1000) <= 1 and substr(run_id::text, 15, 1) = '7'
		from deed.runs where run_id = $1::text::uuid`, sub.ID), true)
}
