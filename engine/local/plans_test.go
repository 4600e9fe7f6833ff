package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// loads counts how often a plan of that name is asked for.
type loads struct {
	plan string
	atomic.Int64
}

func (l *loads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "deed.load_plan") && len(d.Args) > 0 && d.Args[0] == l.plan {
		l.Add(1)
	}
	return ctx
}
func (*loads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A plan that is none can be put by SQL, where its expressions are not looked at. It is read once, and all of its steps fail by that; no other run waits.
func TestEngine_APlanThatIsNoneHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var steps strings.Builder
	for i := range 900 {
		fmt.Fprintf(&steps, `"bbcdefghijklmnop%04d":{"for":"1s","kind":"sleep"},`, i)
	}
	db.Exec(t, pgtest.App, `select deed.put_plan(convert_to($1, 'UTF8'))`, `{"plan":"none","steps":{`+steps.String()+
		`"z":{"handler":"h","kind":"go","with":{"x":[`+strings.Repeat(`"${steps.bbcdefghijklmnop1234}",`, 5499)+`"${steps.bbcdefghijklmnop1234}"]}}},"version":"1"}`)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: h}}}`)
	none, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "none", Version: "1", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	handler := local.Step("h", func(context.Context, nothing) (nothing, error) { return nil, nil })
	cfg, read := db.NewPool(pgtest.Worker, 8).Config(), &loads{plan: "none"}
	cfg.ConnConfig.Tracer = read
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	serveIn(t, pool, local.Options{Handlers: []local.Handler{handler}})
	eventually(t, "the plan that is none to be read", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.run_steps where claim is not null)`) || statusOf(t, db, none.ID) == "FAILED"
	})
	want(t, "the good run", ended(t, db, start(t, db, "a", nil)), "COMPLETED")
	want(t, "the other", ended(t, db, none.ID), "FAILED")
	code := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(distinct l.event_data -> 'error' ->> 'code', ',') from deed.run_log l where l.run_id = $1::text::uuid and l.event_type = 'StepFailed'`, none.ID)
	want(t, "its steps", code, "PLAN_INVALID")
	want(t, "times that it was read", read.Load(), 1)
}

// Of other steps what is asked for is read, and no more than there is room for: of 300 outputs of 15 KiB the statuses are nothing, and all of them are too much.
func TestEngine_WhatAStepIsToldOfOthersIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var steps strings.Builder
	var names, statuses, outputs []string
	for i := range 300 {
		name := fmt.Sprint("s", i)
		fmt.Fprintf(&steps, "  %s: {kind: go, handler: large}\n", name)
		names, statuses, outputs = append(names, name), append(statuses, fmt.Sprintf(`"${steps.%s.status}"`, name)), append(outputs, fmt.Sprintf(`"${size(steps.%s.output.x)}"`, name))
	}
	asks := func(name string, texts []string) string {
		return fmt.Sprintf("  %s: {kind: go, handler: told, after: [%s], needs: done, with: {x: [%s]}}\n", name, strings.Join(names, ","), strings.Join(texts, ","))
	}
	put(t, db, "plan: p\nversion: \"1\"\nsteps:\n"+steps.String()+asks("status", statuses)+asks("few", outputs[:200])+asks("many", outputs))
	large := map[string]string{"x": strings.Repeat("x", 15<<10)}
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("large", func(context.Context, nothing) (map[string]string, error) { return large, nil }),
		local.Step("told", func(_ context.Context, in map[string]json.RawMessage) (string, error) {
			return string(in["x"])[:10], nil
		}),
	}})
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	told := func(step string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce((select coalesce(l.event_data ->> 'output', l.event_data -> 'error' ->> 'code' || ': ' || (l.event_data -> 'error' ->> 'message')) from deed.run_log l
			where l.run_id = $1::text::uuid and l.step_id = $2 and l.event_type in ('StepCompleted', 'StepFailed')), '')`, id, step)
	}
	want(t, "of statuses", told("status"), `["SUCCESS"`)
	want(t, "of 200 outputs", told("few"), `[15360,153`)
	has(t, told("many"), "CONDITION_ERROR: ", "came to 4610700 bytes, and at most 4194304 are possible")
}

// Plans are kept by what they take, not by their number.
func TestEngine_KeptPlansAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	e, _ := serve(t, db, local.Options{Handlers: []local.Handler{local.Step("h", func(context.Context, nothing) (nothing, error) { return nil, nil })}})
	most := 0
	for i := range 8 {
		put(t, db, fmt.Sprintf(`{plan: p%d, version: "1", steps: {a: {kind: go, handler: h, when: "false", with: {x: [%s 1]}}}}`, i, strings.Repeat(`"${'`+strings.Repeat("x", 4000)+`'}", `, 60)))
		s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: fmt.Sprint("p", i), Version: "1", ID: "a"})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the run", ended(t, db, s.ID), "COMPLETED")
		n, size := e.KeptPlans()
		if most = max(most, n); n == 0 || size < n*20<<20 || size > 128<<20 {
			t.Errorf("%d plans of %d bytes are kept", n, size)
		}
	}
	want(t, "plans kept at once", most, 4)
}
