package local_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// modelStep is a step of a random plan, and what each of its attempts comes to.
type modelStep struct {
	name     string
	after    []int
	needs    string // "done", or ""
	attempts int
	outcomes []string // completed, skipped, failed, final; one an attempt
}

// drawSteps draws a graph: a step comes after some of those before it.
func drawSteps(t *rapid.T) []modelStep {
	steps := make([]modelStep, rapid.IntRange(1, 14).Draw(t, "steps"))
	for i := range steps {
		s := modelStep{name: fmt.Sprint("s", i), attempts: rapid.IntRange(1, 3).Draw(t, "attempts")}
		for j := range i {
			if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				s.after = append(s.after, j)
			}
		}
		if rapid.Bool().Draw(t, "needs done") {
			s.needs = "done"
		}
		for range s.attempts {
			s.outcomes = append(s.outcomes, rapid.SampledFrom([]string{"completed", "completed", "skipped", "failed", "final"}).Draw(t, "outcome"))
		}
		steps[i] = s
	}
	return steps
}

// body is the plan as it is stored.
func body(version string, steps []modelStep) string {
	var b strings.Builder
	b.WriteString(`{"plan":"model","steps":{`)
	for i, s := range steps {
		after := []string{}
		for _, j := range s.after {
			after = append(after, steps[j].name)
		}
		names, _ := json.Marshal(after)
		fmt.Fprintf(&b, `%s"%s":{"after":%s,"handler":"h","kind":"go","needs":"%s","retry":{"attempts":%d,"backoff":"1ms"}}`, strings.Repeat(",", min(i, 1)), s.name, names, s.needs, s.attempts)
	}
	fmt.Fprintf(&b, `},"version":"%s"}`, version)
	return b.String()
}

// reduce says what a run must come to, step by step in the plan's order, which is one in which nothing comes before what it waits
// for.
func reduce(steps []modelStep) (status run.Status, of []run.StepStatus, attempts []int) {
	status = run.Completed
	for _, s := range steps {
		missed := false
		for _, j := range s.after {
			missed = missed || of[j] != run.StepSuccess
		}
		if missed && s.needs != "done" {
			of, attempts = append(of, run.StepSkip), append(attempts, 1)
			continue
		}
		n, came := 0, run.StepFailure
		for n < s.attempts {
			o := s.outcomes[n]
			n++
			if o == "completed" {
				came = run.StepSuccess
			} else if o == "skipped" {
				came = run.StepSkip
			}
			if o != "failed" {
				break
			}
		}
		if came == run.StepFailure {
			status = run.Failed
		}
		of, attempts = append(of, came), append(attempts, n)
	}
	return status, of, attempts
}

// modelClaim is a step in the hands of a worker of the model.
type modelClaim struct {
	Place, Attempt int
	Claim          int64
	Step           string
}

// Random graphs, whose steps come to what was drawn, by workers who claim, end some at once, repeat what they
// said, lose claims, and say it all the same: the run comes to what the reducer says, each attempt has one end, and none begins before
// what it waits for has ended.
func TestContract_R15_RandomGraphsComeToWhatTheReducerSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		version := fmt.Sprint(checks)
		steps := drawSteps(rt)
		db.Exec(t, pgtest.App, `select deed.put_plan(convert_to($1, 'UTF8'))`, body(version, steps))
		id := pgtest.One[string](t, db.Pool(pgtest.App), `select run_id::text from deed.start_run('model', $1, 'r')`, version)
		var held, told []modelClaim
		losses := 5
		finish := func(list []modelClaim) (said []string) {
			n := len(list)
			runs, places, claims, names, attempts, outcomes, data := make([]string, n), make([]int, n), make([]int64, n), make([]string, n), make([]int, n), make([]string, n), make([]*string, n)
			for i, c := range list {
				runs[i], places[i], claims[i], names[i], attempts[i] = id, c.Place, c.Claim, c.Step, c.Attempt
				o := steps[c.Place].outcomes[c.Attempt-1]
				text := fmt.Sprintf(`{"error": {"code": "X", "retryable": %t}}`, o != "final")
				if outcomes[i] = strings.Replace(o, "final", "failed", 1); outcomes[i] == "failed" {
					data[i] = &text
				}
			}
			rows, err := worker.Query(t.Context(), `select result from deed.finish_steps($1::text[]::uuid[], $2, $3, $4, $5, $6, $7::text[]::jsonb[]) order by ordinal`, runs, places, claims, names, attempts, outcomes, data)
			if err == nil {
				said, err = pgx.CollectRows(rows, pgx.RowTo[string])
			}
			if err != nil {
				rt.Fatal(err)
			}
			return said
		}
		for turn := 0; !pgtest.One[bool](t, worker, `select finished_at is not null from deed.runs where run_id = $1::text::uuid`, id); turn++ {
			if turn > 100_000 {
				rt.Fatal("the run does not end")
			}
			switch rapid.IntRange(0, 9).Draw(rt, "act") {
			default: // claim
				rows, err := worker.Query(t.Context(), `select place, attempt, claim, step_id from deed.claim_steps('{go:h}', 'w', $1, '1 hour')`, rapid.IntRange(1, 5).Draw(rt, "limit"))
				if err != nil {
					rt.Fatal(err)
				}
				list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[modelClaim])
				if err != nil {
					rt.Fatal(err)
				}
				held = append(held, list...)
			case 0, 1, 2, 3, 4: // end some
				n := rapid.IntRange(0, len(held)).Draw(rt, "ends")
				if n == 0 {
					continue
				}
				part := held[len(held)-n:]
				held = held[:len(held)-n]
				for i, s := range finish(part) {
					if s == "recorded" {
						told = append(told, part[i])
					}
				}
			case 5: // say again what was said, in the other order
				if len(told) > 0 {
					part := slices.Clone(told[max(0, len(told)-3):])
					slices.Reverse(part)
					for i, s := range finish(part) {
						if s != "repeated" {
							rt.Fatalf("%+v again: %s", part[i], s)
						}
					}
				}
			case 6: // somebody's leases run out; they go on as if nothing had been
				if losses > 0 {
					losses--
					db.Exec(t, pgtest.Owner, `update deed.run_steps set lease_until = now() - interval '1 minute' where claim is not null`)
				}
			}
		}
		status, of, attempts := reduce(steps)
		shown, err := run.Show(t.Context(), worker, id, 0)
		if err != nil {
			rt.Fatal(err)
		}
		if shown.Snapshot.Status != status {
			rt.Fatalf("the run is %s, want %s", shown.Snapshot.Status, status)
		}
		ends := map[string]int64{}
		events, err := run.Events(t.Context(), worker, id, 0, 1000)
		if err != nil {
			rt.Fatal(err)
		}
		for _, e := range events {
			switch e.Type {
			case run.StepCompleted, run.StepFailed, run.StepSkipped:
				ends[e.Step] = e.Seq
			}
		}
		for i, s := range steps {
			got := shown.Snapshot.Steps[i]
			if got.ID != s.name || got.Status != of[i] || got.Attempt != attempts[i] {
				rt.Fatalf("step %+v, want %s %s in attempt %d", got, s.name, of[i], attempts[i])
			}
			first := slices.IndexFunc(events, func(e run.Event) bool { return e.Step == s.name })
			for _, j := range s.after {
				if events[first].Seq < ends[steps[j].name] {
					rt.Fatalf("%s has begun before %s had ended", s.name, steps[j].name)
				}
			}
		}
		if found := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(invariant || ': ' || detail, ', '), '') from deed.verify_steps()`); found != "" {
			rt.Fatal(found)
		}
	})
}
