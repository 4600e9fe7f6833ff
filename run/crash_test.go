package run_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// A writer and projector that is killed anywhere, before a statement, after it and after its commit,
// and begins again: each step is in the log once, without a gap, and the snapshots are what the events
// say.
func TestContract_R8_KilledAnywhere(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/runner")
	for _, point := range []string{"appending:20", "appended:20", "committed:20", "gathered:20", "gathered and appended:20", "projected:1", "projected:3", "stored:2"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			runs := []string{running(t, db, "a"), running(t, db, "b")}
			start := func(point string) *harness.Victim {
				return program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_RUNS="+strings.Join(runs, ","))
			}
			victim := start(point)
			name, _, _ := strings.Cut(point, ":")
			victim.Crashed(t, name, pgtest.Patience)
			again := start("")
			for _, r := range runs {
				eventually(t, "the snapshots", func() bool { return lastOf(t, db, r) == 102 })
			}
			again.Stop()
			want(t, "events", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat(count(*), ' ', max(run_seq)) from deed.run_log where run_id = $1::text::uuid`, runs[0]), "102 102")
			for _, r := range runs {
				if found, err := run.Rebuild(t.Context(), db.Pool(pgtest.Worker), r, true); err != nil || len(found) > 0 {
					t.Errorf("snapshots are not what the events say: %+v, %v", found, err)
				}
			}
		})
	}
}
