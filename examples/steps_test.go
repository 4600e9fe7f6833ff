package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run/plan"
)

// The worker in Python does steps of kind external: what it returns the next step sees, and what it refuses fails the run.
func TestSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p, err := plan.Parse("p.yaml", []byte(`{plan: p, version: "1", steps: {
		resize: {kind: external, queue: images, with: {width: "${input.width}", fail: "${input.fail}"}},
		wait: {kind: sleep, after: [resize], when: "steps.resize.output.width == 1280", for: 1ms}}}`))
	if err == nil {
		_, err = plan.Put(t.Context(), db.Pool(pgtest.App), nil, p, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `select deed.start_run('p', '1', 'good', '{"width": 640, "fail": false}'), deed.start_run('p', '1', 'bad', '{"width": 1, "fail": true}')`)
	engine, err := local.New(t.Context(), db.NewPool(pgtest.Worker, 4), local.Options{PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()

	out := steps(t, db, filepath.Join("python", "steps.py"), "images", "--steps", "2")
	const runs = `select coalesce(string_agg(r.status, ' ' order by r.status), '') from deed.runs r where r.finished_at is not null`
	if !pgtest.Wait(pgtest.Patience, func() bool { return pgtest.One[string](t, db.Pool(pgtest.Owner), runs) == "COMPLETED FAILED" }) {
		t.Errorf("the runs have ended as %q; the worker said: %s", pgtest.One[string](t, db.Pool(pgtest.Owner), runs), out)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*) from deed.run_log where step_id = 'wait' and event_type = 'StepCompleted' or event_data -> 'error' ->> 'code' = 'ASKED_TO_FAIL'`); n != 2 {
		t.Errorf("%d of the two ends that are expected", n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What a handler returns or raises, and the database does not take as it is, fails its step, and not the worker: the step would be done again
// for ten lost claims, by one worker after the other.
func TestSteps_WhatIsNotTaken(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p, err := plan.Parse("p.yaml", []byte(`{plan: p, version: "1", steps: {resize: {kind: external, queue: images, with: {case: "${input.case}"}}}}`))
	if err == nil {
		_, err = plan.Put(t.Context(), db.Pool(pgtest.App), nil, p, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	engine, err := local.New(t.Context(), db.NewPool(pgtest.Worker, 4), local.Options{PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	const worker = `
import sys
sys.path.insert(0, "python")
import steps

OUTPUTS = {"large": "x" * 20000, "no JSON": {1}, "NUL": "a\0b", "infinite": float("inf"), "surrogate": "\ud800", "key": {("a", "b"): 1}, "good": 1}
ERRORS = {
    "NUL in a text": steps.Failed("MINE", "a\0b"), "surrogate in a text": steps.Failed("MINE", "a\ud800"), "long code": steps.Failed("MINE" * 100, "no"),
    "NUL in another error": ValueError("a\0b"),
}

def handle(step):
    case = step["input"]["case"]
    if case in ERRORS:
        raise ERRORS[case]
    return OUTPUTS[case]

steps.handle = handle
steps.main()
`
	wants := map[string]string{
		"large": "OUTPUT_REFUSED false", "no JSON": "OUTPUT_REFUSED false", "NUL": "OUTPUT_REFUSED false", "infinite": "OUTPUT_REFUSED false", "surrogate": "OUTPUT_REFUSED false",
		"key": "OUTPUT_REFUSED false", "good": "COMPLETED", "NUL in a text": "MINE true", "surrogate in a text": "MINE true", "long code": strings.Repeat("MINE", 25) + " true", "NUL in another error": "ValueError true",
	}
	const run = `
		select coalesce((select concat_ws(' ', l.event_data -> 'error' ->> 'code', l.event_data -> 'error' ->> 'retryable') from deed.run_log l where l.run_id = r.run_id and l.event_type = 'StepFailed'), r.status)
		from deed.runs r where r.input ->> 'case' = $1`
	for name := range wants {
		db.Exec(t, pgtest.App, `select deed.start_run('p', '1', $1, jsonb_build_object('case', $1::text))`, name)
	}
	out := steps(t, db, "-c", worker, "images", "--steps", strconv.Itoa(len(wants)))
	for name, want := range wants {
		said := func() string { return pgtest.One[string](t, db.Pool(pgtest.Owner), run, name) }
		if !pgtest.Wait(time.Second, func() bool { return said() == want }) {
			t.Errorf("%s: %s, want %s; the worker said: %s", name, said(), want, out)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// steps runs the worker of steps until it ends, and returns what it says.
func steps(t *testing.T, db *pgtest.DB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t), args...)
	cmd.Env = append(append(os.Environ(), db.Env(t, pgtest.Worker)...), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}
