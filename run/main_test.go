package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// begun is the data of an end whose step began then.
var begun = json.RawMessage(`{"started_at": "2026-01-02T03:04:05Z"}`)

// make1 makes a run, of a request that nobody else makes.
func make1(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	made, err := run.Create(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "nightly", Version: "1", ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// running makes a run and has it RUNNING: two events.
func running(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	r := make1(t, db, id)
	decide(t, db, r, run.RunApproved, run.RunStarted)
	return r
}

// write appends events of any type, as the functions do that decide them.
func write(ctx context.Context, db deed.DB, events ...run.New) ([]run.Appended, error) {
	var runs, types, steps, data, signals []*string
	var attempts []int
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	for _, e := range events {
		runs, types, steps, signals = append(runs, text(e.Run)), append(types, text(string(e.Type))), append(steps, text(e.Step)), append(signals, text(e.Signal))
		data, attempts = append(data, text(string(e.Data))), append(attempts, max(e.Attempt, 1))
	}
	rows, err := db.Query(ctx, `select run_seq, event_id::text, repeated from deed.write_events($1::text[]::uuid[], $2, $3, $4, p_data => $5::text[]::jsonb[], p_signals => $6::text[]::uuid[]) order by ordinal`,
		runs, types, steps, attempts, data, signals)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[run.Appended])
}

func decide(t testing.TB, db *pgtest.DB, id string, types ...run.Type) {
	t.Helper()
	for i, typ := range types {
		e := run.New{Run: id, Type: typ}
		if typ == run.RunPaused || typ == run.RunResumed || typ == run.SignalAccepted || typ == run.SignalRejected {
			e.Signal = signal(i)
		}
		if _, err := write(t.Context(), db.Pool(pgtest.Owner), e); err != nil {
			t.Fatal(err)
		}
	}
}

func signal(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func appendAs(t testing.TB, db *pgtest.DB, events ...run.New) []run.Appended {
	t.Helper()
	got, err := run.Append(t.Context(), db.Pool(pgtest.Worker), "test/1", events...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// log is a run's events as "SEQ TYPE STEP#ATTEMPT", in order.
func logOf(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(concat_ws(' ', l.run_seq, l.event_type, l.step_id || '#' || l.logical_attempt), ', ' order by l.run_seq), '')
		from deed.run_log l where l.run_id = $1::text::uuid`, id)
}

func status(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select status from deed.runs where run_id = $1::text::uuid`, id)
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
