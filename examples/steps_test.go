package examples_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
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

	bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(bounded, python(t), filepath.Join("python", "steps.py"), "images", "--steps", "2")
	cmd.Env = append(append(os.Environ(), db.Env(t, pgtest.Worker)...), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
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
