package run_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// A process that starts runs for many is killed anywhere, before the statement of many, between its commit and the answers, among
// them, and at each step of a request that is tried alone: each request that was answered has the run that it was told of, and
// each, asked again, has one, which has begun once.
func TestContract_R12_StarterKilledAnywhere(t *testing.T) {
	t.Parallel()
	const requests = 60
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/starter")
	for _, point := range []string{
		"starting together:1", "starting together:3", "started together:1", "started together:4", "answering:1", "answering:15",
		"starting alone:1", "starting alone:9", "started alone:1", "started alone:12", "committed alone:1", "committed alone:7",
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, pgtest.App, `select deed.put_plan(convert_to('{"plan":"p","steps":{"a":{"for":"1h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'))`)
			start := func(point string) *harness.Victim {
				return program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.App), "VICTIM_REQUESTS="+strconv.Itoa(requests))
			}
			victim := start(point)
			victim.Crashed(t, point, pgtest.Patience)
			before := answersOf(t, victim, map[string]string{})
			again := start("")
			if err := again.Wait(t, pgtest.Patience); err != nil {
				t.Fatalf("%v\n%s", err, again.Output())
			}
			after := answersOf(t, again, before)
			want(t, "requests that have an answer", len(after), requests)
			want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.runs where status = 'RUNNING'`), requests)
			want(t, "events", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', count(*), count(distinct run_id)) from deed.run_log`), "120 60")
			want(t, "steps", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(distinct run_id) from deed.run_steps where ready`), requests)
			for id, r := range after {
				want(t, "the run of request "+id, pgtest.One[string](t, db.Pool(pgtest.Owner), `
					select q.run_id::text from deed.run_requests q join deed.runs r using (run_id)
					where q.request_key = deed.idempotency_key(r.tenant_id::text, 'default', 'default', 'p', '1', $1)`, id), r)
			}
		})
	}
}

// answersOf adds what a process has said of its requests to known, which no answer may contradict.
func answersOf(t testing.TB, v *harness.Victim, known map[string]string) map[string]string {
	t.Helper()
	for line := range strings.Lines(v.Output()) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "answered" {
			continue
		}
		if r, ok := known[f[1]]; ok && r != f[2] {
			t.Errorf("request %s was answered with run %s, and then with %s", f[1], r, f[2])
		}
		known[f[1]] = f[2]
	}
	return known
}
