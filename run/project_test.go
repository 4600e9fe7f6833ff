package run_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

var update = flag.Bool("update", false, "renew what is expected of histories that have none yet, and testdata/events.txt")

// text is a snapshot as JSON, in which two are compared.
func text(t rapid.TB, s run.Snapshot) string {
	t.Helper()
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func project(t rapid.TB, events ...run.Event) run.Snapshot {
	t.Helper()
	s, err := run.Project(events...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

// eventOf is the event of that number, whose data are of what there is.
func eventOf(seq int64, typ run.Type, step string, attempt int, data string) run.Event {
	if !strings.HasPrefix(string(typ), "Step") {
		step = ""
	}
	return run.Event{RunID: "01890a5d-ac96-774b-bcce-b302099a8057", Seq: seq, Type: typ, Step: step, Attempt: attempt, Data: json.RawMessage(data), EmittedAt: epoch.Add(time.Duration(seq) * time.Second)}
}

// someEvents draws a log: of what runs take and of what they do not, known and unknown, with
// good data and bad.
func someEvents(t *rapid.T) (list []run.Event) {
	n := rapid.IntRange(0, 60).Draw(t, "events")
	for seq := range int64(n) {
		typ := rapid.SampledFrom(append(types, "StepPaused", "StepCompleted", "StepFailed", "StepStarted")).Draw(t, "type")
		if seq < 2 && rapid.IntRange(0, 9).Draw(t, "begins") > 0 {
			typ = []run.Type{run.RunApproved, run.RunStarted}[seq]
		}
		data := rapid.SampledFrom([]string{
			`{}`, `{"steps": ["a", "b", "c"], "engine_run_ref": {"workflow": "w", "n": 1}}`, `{"started_at": "2026-01-02T03:04:05Z", "artifacts": [{"uri": "s3://b/k", "kind": "log", "sizeBytes": 12}]}`,
			`{"error": {"code": "E1", "message": "no", "retryable": true}}`, `{"artifacts": "none", "error": 7, "steps": {}, "started_at": []}`, `{"reason": "not due", "artifacts": null}`, `null`, ``,
		}).Draw(t, "data")
		e := eventOf(seq+1, typ, rapid.SampledFrom([]string{"a", "b", "x", "main/y"}).Draw(t, "step"), rapid.IntRange(1, 3).Draw(t, "attempt"), data)
		e.EngineAttempt = rapid.IntRange(0, 2).Draw(t, "engine")
		list = append(list, e)
	}
	return list
}

// Incremental projection is projection from the start: for every prefix, every split, with
// repetitions, and over snapshots that were stored meanwhile. What it is given stays as it was.
func TestContract_R6_IncrementalIsFull(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := someEvents(t)
		var s run.Snapshot
		for at := 0; at < len(events); {
			upto := rapid.IntRange(at, len(events)).Draw(t, "upto")
			from := rapid.IntRange(0, at).Draw(t, "from")
			before, given := text(t, s), text(t, project(t, events[:at]...))
			next, err := s.Apply(events[from:upto]...)
			if err != nil {
				t.Fatal(err)
			}
			if after := text(t, s); after != before {
				t.Fatalf("Apply has changed what it was given: %s", cmp.Diff(before, after))
			}
			if at > 0 && before != given {
				t.Fatalf("after %d events: %s", at, cmp.Diff(given, before))
			}
			if got, want := text(t, next), text(t, project(t, events[:upto]...)); upto > 0 && got != want {
				t.Fatalf("events %d to %d after %d (-from the start +in portions):\n%s", from, upto, at, cmp.Diff(want, got))
			}
			if next.LastEventSeq != int64(upto) {
				t.Fatalf("it is at %d, want %d", next.LastEventSeq, upto)
			}
			if again, err := next.Apply(events[:upto]...); err != nil || text(t, again) != text(t, next) {
				t.Fatalf("again: %v", err)
			}
			s = next
			if rapid.Bool().Draw(t, "stored") {
				s = run.Snapshot{}
				if err := json.Unmarshal([]byte(text(t, next)), &s); err != nil {
					t.Fatal(err)
				}
			}
			at = upto
			if upto == from && rapid.Bool().Draw(t, "enough") {
				break
			}
		}
	})
}

// A finished step never runs again by what comes late, and counters are what can be counted.
func TestContract_R6_WhatCanBeCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := someEvents(t)
		ended := map[string]int{}
		var s run.Snapshot
		for i := range events {
			s, _ = s.Apply(events[i])
			failed := 0
			for _, step := range s.Steps {
				over := step.Status != run.StepPending && step.Status != run.StepRunning
				if at, ok := ended[step.ID]; ok && !over && step.Attempt <= at {
					t.Fatalf("step %s, attempt %d, had ended and is %s", step.ID, step.Attempt, step.Status)
				}
				if over {
					ended[step.ID] = step.Attempt
				}
				if step.Status == run.StepFailure {
					failed++
				}
			}
			if failed != s.FailedSteps {
				t.Fatalf("%d steps have failed, and it says %d", failed, s.FailedSteps)
			}
		}
	})
}

// The reducer and deed.run_transitions say the same of every cell: where a run goes, and
// that what it does not take changes nothing.
func TestContract_R4_TheReducerFollowsTheTable(t *testing.T) {
	t.Parallel()
	owner := pgtest.New(t).Pool(pgtest.Owner)
	for _, from := range statuses {
		for _, typ := range types {
			var events []run.Event
			for _, before := range toStatus[from] {
				events = append(events, eventOf(int64(len(events)+1), before, "", 1, `{"steps": ["s"]}`))
			}
			s := project(t, events...)
			if len(events) > 0 {
				want(t, "the status", string(s.Status), from)
			}
			to := pgtest.One[string](t, owner, `select coalesce(max(to_status), '') from deed.run_transitions where event_type = $1 and from_status = $2`, string(typ), from)
			after, err := s.Apply(eventOf(s.LastEventSeq+1, typ, "s", 1, `{"started_at": "2026-01-02T03:04:05Z"}`))
			if err != nil {
				t.Fatal(err)
			}
			if to == "" {
				s.RunID, s.LastEventSeq = after.RunID, after.LastEventSeq
				if text(t, after) != text(t, s) {
					t.Errorf("%s while %s is not taken, and makes it %s", typ, from, text(t, after))
				}
			} else {
				want(t, string(typ)+" while "+from, string(after.Status), to)
			}
		}
	}
}

// An event that is missing stops it there, and says so.
func TestContract_R7_AGapStopsTheReducer(t *testing.T) {
	t.Parallel()
	events := []run.Event{eventOf(1, run.RunApproved, "", 1, `{}`), eventOf(2, run.RunStarted, "", 1, `{}`), eventOf(4, run.RunCompleted, "", 1, `{}`)}
	s, err := run.Project(events...)
	gap, ok := errors.AsType[*run.GapError](err)
	if !ok || gap.Expected != 3 || gap.Got != 4 || s.Status != run.Running || s.LastEventSeq != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	s, err = s.Apply(eventOf(3, run.RunPaused, "", 1, `{}`), eventOf(4, run.RunResumed, "", 1, `{}`))
	if err != nil || s.LastEventSeq != 4 {
		t.Errorf("when it has closed: %+v, %v", s, err)
	}
	other := eventOf(5, run.RunCompleted, "", 1, `{}`)
	other.RunID = "01890a5d-ac96-774b-bcce-000000000000"
	if _, err := s.Apply(other); err == nil {
		t.Error("another run's event is taken")
	}
}

// What was recorded replays for ever: a history is not changed, and what it gives is not
// either.
func TestContract_R6_RecordedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/histories/*/*.ndjson")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var logs, ends strings.Builder
	for _, name := range files {
		for ending, all := range map[string]*strings.Builder{".ndjson": &logs, ".json": &ends} {
			text, err := os.ReadFile(strings.TrimSuffix(name, ".ndjson") + ending)
			if err != nil && !*update {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	for _, typ := range types {
		want(t, "a history with "+string(typ), strings.Contains(logs.String(), `"eventType":"`+string(typ)+`"`), true)
	}
	for _, status := range statuses {
		want(t, "a history that leads to "+status, strings.Contains(ends.String(), "\n  \"status\": \""+status+"\""), true)
	}
	for _, status := range []run.StepStatus{run.StepPending, run.StepRunning, run.StepSuccess, run.StepFailure, run.StepSkip} {
		want(t, "a history with a step that is "+string(status), strings.Contains(ends.String(), "\n      \"status\": \""+string(status)+"\""), true)
	}
	for _, name := range files {
		t.Run(strings.TrimPrefix(name, "testdata/histories/"), func(t *testing.T) {
			t.Parallel()
			recorded, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var events []run.Event
			for line := range strings.Lines(string(recorded)) {
				var e run.Event
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
			got := text(t, project(t, events...)) + "\n"
			golden := strings.TrimSuffix(name, ".ndjson") + ".json"
			want, err := os.ReadFile(golden)
			if errors.Is(err, os.ErrNotExist) && *update {
				err = os.WriteFile(golden, []byte(got), 0o644)
				want = []byte(got)
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("it gives something else than when it was recorded (-then +now):\n%s", diff)
			}
		})
	}
}

// The cause of a failure is no inner step whose code went on: one whose outer step has not failed. What only looks like an
// inner step, since nothing is known of an outer one, is a step like others.
func TestProject_RootCauseOfInnerSteps(t *testing.T) {
	t.Parallel()
	const failed = `{"error": {"code": "E", "message": "no", "retryable": false}}`
	for name, c := range map[string]struct {
		ends [][3]string // type, step, data
		want string
	}{
		"the code went on":              {[][3]string{{"StepFailed", "a/try", failed}, {"StepCompleted", "a", `{}`}, {"StepFailed", "b", failed}}, "b"},
		"in a branch":                   {[][3]string{{"StepFailed", "a/one/try", failed}, {"StepCompleted", "a", `{}`}, {"StepFailed", "b", failed}}, "b"},
		"and skipped the rest":          {[][3]string{{"StepFailed", "a/try", failed}, {"StepSkipped", "a", `{}`}, {"StepFailed", "b", failed}}, "b"},
		"the outer one fails by it":     {[][3]string{{"StepFailed", "a/try", failed}, {"StepFailed", "a", failed}, {"StepFailed", "b", failed}}, "a/try"},
		"the outer one fails after b":   {[][3]string{{"StepFailed", "a/try", failed}, {"StepFailed", "b", failed}, {"StepFailed", "a", failed}}, "a/try"},
		"the inner one failed after b":  {[][3]string{{"StepFailed", "b", failed}, {"StepFailed", "a/try", failed}, {"StepFailed", "a", failed}}, "b"},
		"nobody knows of an outer one":  {[][3]string{{"StepFailed", "x/try", failed}, {"StepFailed", "b", failed}}, "x/try"},
		"nothing else has failed":       {[][3]string{{"StepFailed", "a/try", failed}, {"StepCompleted", "a", `{}`}}, ""},
		"the outer one is tried anew":   {[][3]string{{"StepFailed", "a/try", failed}, {"StepFailed", "a", failed}, {"StepCompleted 2", "a", `{}`}, {"StepFailed", "b", failed}}, "b"},
		"an inner one in a later event": {[][3]string{{"StepCompleted", "a", `{}`}, {"StepFailed", "a/try", failed}, {"StepFailed", "b", failed}}, "b"},
	} {
		events := []run.Event{eventOf(1, run.RunApproved, "", 0, `{}`), eventOf(2, run.RunStarted, "", 0, `{"steps": ["a", "b"]}`)}
		for _, e := range c.ends {
			typ, again := strings.CutSuffix(e[0], " 2")
			attempt := 1
			if again {
				attempt = 2
			}
			events = append(events, eventOf(int64(len(events))+1, run.Type(typ), e[1], attempt, e[2]))
		}
		events = append(events, eventOf(int64(len(events))+1, run.RunFailed, "", 0, `{"error": {"code": "OWN", "message": "by itself", "retryable": false}}`))
		cause := project(t, events...).RootCause
		if code := map[bool]string{true: "OWN", false: "E"}[c.want == ""]; cause.Step != c.want || cause.Error.Code != code {
			t.Errorf("%s: it is %q %s, want %q %s", name, cause.Step, cause.Error.Code, c.want, code)
		}
	}
}

// What the last event of each kind says is in the snapshot: seed 001's fields, all of them.
func TestContract_R6_EveryFieldOfTheSeed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	r := make1(t, db, "a")
	for _, e := range []run.New{
		{Type: run.RunApproved},
		{Type: run.RunStarted, Data: json.RawMessage(`{"steps": ["extract", "load", "report"], "engine_run_ref": {"workflow": "w"}}`)},
		{Type: run.StepCompleted, Step: "extract", Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "artifacts": [{"uri": "s3://b/k", "kind": "log"}]}`)},
		{Type: run.StepFailed, Step: "load", Data: json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z", "error": {"code": "E", "message": "no", "retryable": false}}`)},
		{Type: run.RunFailed},
	} {
		e.Run = r
		if _, err := write(t.Context(), owner, e); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := run.Show(t.Context(), db.Pool(pgtest.App), r, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(text(t, shown.Snapshot)), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runId", "status", "lastEventSeq", "steps", "artifacts", "startedAt", "completedAt", "totalDurationMs", "failedSteps", "rootCause", "engineRunRef"} {
		if fields[name] == nil {
			t.Errorf("there is no %s in %s", name, text(t, shown.Snapshot))
		}
	}
	var list []string
	for _, s := range shown.Snapshot.Steps {
		list = append(list, fmt.Sprint(s.ID, " ", s.Status))
	}
	want(t, "the steps", strings.Join(list, ", "), "extract SUCCESS, load FAILED, report PENDING")
	want(t, "the root cause", shown.Snapshot.RootCause.Step+" "+shown.Snapshot.RootCause.Error.Code, "load E")
	want(t, "artifacts", len(shown.Snapshot.Artifacts), 1)
	// Any moment of it can be looked at.
	for seq, status := range []run.Status{"", run.Approved, run.Running, run.Running, run.Running, run.Running, run.Running, run.Failed} {
		if seq == 0 {
			continue
		}
		then, err := run.Show(t.Context(), db.Pool(pgtest.App), r, int64(seq))
		if err != nil || then.Snapshot.Status != status || then.Snapshot.LastEventSeq != int64(seq) {
			t.Errorf("after event %d: %+v, %v", seq, then.Snapshot, err)
		}
	}
}
