package run_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// What others read of runs by name is what testdata/events.txt says: the fields of events and snapshots, the columns
// of deed.run_events, and which event leads where. docs/contracts.md has its version; when it changes, histories of
// the version before stay where they are, and those of the next get a folder of their own.
func TestContract_R4_WhatEventsAreCalled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var b strings.Builder
	for _, v := range []any{run.Event{}, run.Snapshot{}, run.StepSnapshot{}, run.Artifact{}, run.Error{}, run.RootCause{}} {
		typ := reflect.TypeOf(v)
		fmt.Fprintf(&b, "%s\n", typ.Name())
		for i := range typ.NumField() {
			fmt.Fprintf(&b, "  %s %s\n", typ.Field(i).Tag.Get("json"), typ.Field(i).Type)
		}
	}
	for _, q := range []struct{ what, sql string }{
		{"deed.run_events", `
			select string_agg(format('  %s %s', a.attname, format_type(a.atttypid, a.atttypmod)), e'\n' order by a.attnum)
			from pg_attribute a where a.attrelid = 'deed.run_events'::regclass and a.attnum > 0`},
		{"deed.run_transitions", `
			select string_agg(format('  %s %s %s', t.event_type, t.from_status, t.to_status), e'\n' order by t.event_type collate "C", t.from_status collate "C")
			from deed.run_transitions t`},
	} {
		fmt.Fprintf(&b, "%s\n%s\n", q.what, pgtest.One[string](t, db.Pool(pgtest.Owner), q.sql))
	}
	const file = "testdata/events.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), b.String()); diff != "" {
		t.Errorf("others read this by name; if it is meant to change, docs/contracts.md says what that takes (-is +would be):\n%s", diff)
	}
}
