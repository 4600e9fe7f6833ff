package schema_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// withFaces returns a database with both faces.
func withFaces(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	installFaces(t, db, false, schema.Faces()...)
	return db
}

func installFaces(t *testing.T, db *pgtest.DB, adopt bool, faces ...string) {
	t.Helper()
	var takeover *schema.Takeover
	if adopt {
		takeover = &schema.Takeover{}
	}
	installed, err := schema.InstallFaces(context.Background(), db.Conn(t, pgtest.Owner), faces, takeover)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(installed, faces) {
		t.Fatalf("installed %v, want %v", installed, faces)
	}
}

// lines runs a command and returns the lines that it printed.
func lines(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Args[len(cmd.Args)-1], err, errors.String())
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

func seed(parts ...string) string { return filepath.Join(append([]string{"testdata"}, parts...)...) }

// Seed 004, smoke test 1, as printed.
func TestContract_O4_SmokeTest1ClaimOrdering(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	got := lines(t, db.Psql(t, pgtest.Team, "-f", seed("seed004", "smoke1.sql")))
	var order []string
	for _, row := range got {
		order = append(order, regexp.MustCompile(`""seq"": (\d)`).FindStringSubmatch(row)[1])
	}
	if !slices.Equal(order, []string{"1", "2", "3"}) {
		t.Errorf("claimed %v, want 1, 2, 3; rows:\n%s", order, strings.Join(got, "\n"))
	}
}

// Seed 004, smoke test 2, as printed.
func TestContract_O4_SmokeTest2ClaimsDoNotOverlap(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	lines(t, db.Psql(t, pgtest.Team, "-c", `insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 10)`))
	cmd := exec.Command("bash", "-e", seed("seed004", "smoke2.sh"))
	cmd.Env = append(os.Environ(), db.Env(t, pgtest.Team)...)
	got := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`).FindAllString(strings.Join(lines(t, cmd), "\n"), -1)
	if len(got) != 10 {
		t.Fatalf("the two terminals claimed %d messages, want 5 and 5", len(got))
	}
	if slices.Sort(got); len(slices.Compact(got)) != 10 {
		t.Errorf("both claimed the same message: %v", got)
	}
}

// Seed 004, smoke test 3, as printed.
func TestContract_O4_SmokeTest3FinalizationNeedsTheToken(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	lines(t, db.Psql(t, pgtest.Team, "-c", `insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 7)`))
	got := lines(t, db.Psql(t, pgtest.Team, "-f", seed("seed004", "smoke3.sql")))
	if len(got) != 7 || !slices.Equal(got[5:], []string{"0", "5"}) {
		t.Errorf("printed %v, want five ids, then 0 and 5", got)
	}
	got = lines(t, db.Psql(t, pgtest.Team, "-c", `select count(*), count(processing_token), min(attempts), max(attempts) from outbox where delivered_at is not null`))
	if !slices.Equal(got, []string{"5|0|1|1"}) {
		t.Errorf("delivered, tokens, attempts: %v, want 5, none, 1", got)
	}
}

// Seed 004's retention statement, as printed: what was delivered a week ago
// goes, with its receipts; nothing else does.
func TestContract_O4_RetentionAsPrinted(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	run := func(sql string) []string { t.Helper(); return lines(t, db.Psql(t, pgtest.Team, "-c", sql)) }
	run(`insert into outbox (topic, payload) select 'test', '{}' from generate_series(1, 10)`)
	const finish = `select app.outbox_mark_delivered('11111111-1111-1111-1111-111111111111',
		array(select id from app.outbox_claim(3, '11111111-1111-1111-1111-111111111111', null)))`
	run(finish)
	db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '8 days'`)
	run(finish)
	// A second subscription that has not delivered yet keeps a message.
	team := db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.Owner, `select deed.subscribe('shared', 'a'), deed.subscribe('shared', 'b')`)
	db.Exec(t, pgtest.Owner, `select deed.set_door('shared', 'a')`)
	run(`insert into outbox (topic, payload, created_at) values ('shared', '{}', now() - interval '1 year')`)
	run(`select app.outbox_mark_delivered('22222222-2222-2222-2222-222222222222',
		array(select id from app.outbox_claim(1, '22222222-2222-2222-2222-222222222222', null)))`)
	db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '8 days' where n = (select max(n) from deed.receipts)`)

	got := lines(t, db.Psql(t, pgtest.Team, "-f", seed("seed004", "retention.sql")))
	if len(got) != 0 {
		t.Errorf("printed %v", got)
	}
	if got := run(`select topic, count(*), count(delivered_at) from outbox group by topic order by topic`); !slices.Equal(got, []string{"shared|1|1", "test|7|3"}) {
		t.Errorf("topic, messages, delivered: %v; want those of three days delivered, those not delivered, and what another subscription still needs", got)
	}
	if n := pgtest.One[int](t, team, `select count(*) from deed.log`); n != 8 {
		t.Errorf("the log has %d messages, want 8", n)
	}
	// One of a batch of three alone: the receipt shrinks.
	run(`delete from outbox where id = (select id from outbox where topic = 'test' and delivered_at is not null limit 1)`)
	if n := pgtest.One[int](t, team, `select finished from deed.receipts where subscription = 0 and finished > 0`); n != 2 {
		t.Errorf("the receipt names %d messages, want 2", n)
	}
	if out, err := db.Psql(t, pgtest.Team, "-c", `delete from outbox`).CombinedOutput(); err == nil || !strings.Contains(string(out), "deed dead discard") {
		t.Errorf("deleting what is not delivered: %v, %s", err, out)
	}
}

// Seed 003's signatures, as printed: names, order, types, defaults and results.
func TestContract_O3_Signatures(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	spaces, word := regexp.MustCompile(`\s+`), regexp.MustCompile(`\bint\b`)
	canonical := func(s string) string {
		s = spaces.ReplaceAllString(strings.ToLower(s), " ")
		return strings.NewReplacer("( ", "(", " )", ")", "::text", "").Replace(strings.TrimSpace(word.ReplaceAllString(s, "integer")))
	}
	for _, name := range []string{"claim_outbox_events", "complete_outbox_event", "publish_outbox"} {
		printed, err := os.ReadFile(seed("seed003", name+".sql"))
		if err != nil {
			t.Fatal(err)
		}
		got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select 'm10_recovery.' || proname || '(' || pg_get_function_arguments(oid) || ') returns ' || pg_get_function_result(oid)
			from pg_proc where pronamespace = 'm10_recovery'::regnamespace and proname = $1`, name)
		if diff := cmp.Diff(canonical(string(printed)), canonical(got)); diff != "" {
			t.Errorf("%s (-seed +installed):\n%s", name, diff)
		}
	}
}

// Seed 004's signatures, and the columns of both relations.
func TestContract_O4_SignaturesAndColumns(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	owner := db.Pool(pgtest.Owner)
	for name, want := range map[string]string{
		"outbox_claim":          "p_limit integer, p_token uuid, p_tenant uuid returns SETOF outbox",
		"outbox_mark_delivered": "p_token uuid, p_ids uuid[] returns integer",
	} {
		got := pgtest.One[string](t, owner, `
			select pg_get_function_arguments(p.oid) || ' returns ' || replace(pg_get_function_result(p.oid), 'public.', '')
			from pg_proc p where p.pronamespace = 'app'::regnamespace and p.proname = $1`, name)
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for relation, want := range map[string]string{
		"public.outbox":       "id uuid, tenant_id uuid, topic text, payload jsonb, created_at timestamp with time zone, delivered_at timestamp with time zone, processing_token uuid, attempts integer",
		"m10_recovery.outbox": "id bigint, aggregate_type text, aggregate_id text, event_type text, payload jsonb, created_at timestamp with time zone, processed_at timestamp with time zone, retry_count integer, process_after timestamp with time zone, claimed_at timestamp with time zone, claimed_by text",
	} {
		got := pgtest.One[string](t, owner, `
			select string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum)
			from pg_attribute where attrelid = $1::text::regclass and attnum > 0`, relation)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", relation, diff)
		}
	}
}

// Seed 003's selection rule, its three conditions as printed: what they select
// is what is claimed.
func TestContract_O3_SelectionRule(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	run := func(sql string) []string { t.Helper(); return lines(t, db.Psql(t, pgtest.Team, "-c", sql)) }
	text, err := os.ReadFile(seed("seed003", "selection.txt"))
	if err != nil {
		t.Fatal(err)
	}
	rule := "(" + strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), ") and (") + ")"
	for range 8 {
		run(`select m10_recovery.publish_outbox('order', '42', 'order.placed', '{"n": 1}')`)
	}
	run(`insert into m10_recovery.outbox (event_type, payload, process_after) values ('order.placed', '{}', now() + interval '1 hour')`)
	run(`select m10_recovery.complete_outbox_event(id, 'a', true) from m10_recovery.claim_outbox_events('a', 1)`)
	run(`select m10_recovery.complete_outbox_event(id, 'a', false, 'no') from m10_recovery.claim_outbox_events('a', 1)`)
	db.Exec(t, pgtest.Owner, `update deed.pending set process_after = process_after + interval '1 hour' where attempts > 0`) // the test may take longer than two seconds
	run(`select id from m10_recovery.claim_outbox_events('a', 1)`)
	stale := run(`select id from m10_recovery.claim_outbox_events('b', 1)`)
	db.Exec(t, pgtest.Owner, `update deed.pending set claimed_at = claimed_at - interval '6 minutes', lease_until = lease_until - interval '6 minutes' where id = $1::text::bigint`, stale[0])

	selected := run(`select id from m10_recovery.outbox where ` + rule + ` order by id`)
	claimed := run(`select id from m10_recovery.claim_outbox_events('c', 100)`)
	if diff := cmp.Diff(selected, claimed); diff != "" || len(claimed) != 5 || !slices.Contains(claimed, stale[0]) {
		t.Errorf("the rule selects %v, claimed were %v, want 5 with the stale one, %v", selected, claimed, stale)
	}
	if again := run(`select id from m10_recovery.claim_outbox_events('d')`); len(again) != 0 {
		t.Errorf("claimed once more: %v", again)
	}
}

// Seed 003's completion semantics and its back-off, to the second, with the
// formula as printed; attempts are without limit.
func TestContract_O8_M10BackOffToTheSecond(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	formula, err := os.ReadFile(seed("seed003", "backoff.sql"))
	if err != nil {
		t.Fatal(err)
	}
	// process_after = now() + … holds in the transaction that failed.
	holds := strings.TrimSpace(string(formula))
	run := func(sql string) []string { t.Helper(); return lines(t, db.Psql(t, pgtest.Team, "-c", sql)) }
	id := run(`select m10_recovery.publish_outbox('order', '42', 'order.placed', '{}')`)[0]
	for n := 1; n <= 25; n++ {
		if got := run(`select id, aggregate_type, aggregate_id, event_type, payload, retry_count from m10_recovery.claim_outbox_events('w')`); !slices.Equal(got, []string{
			id + "|order|42|order.placed|{}|" + pgtest.One[string](t, db.Pool(pgtest.Owner), `select $1::int::text`, n-1),
		}) {
			t.Fatalf("attempt %d claimed %v", n, got)
		}
		got := run(`begin;
			select m10_recovery.complete_outbox_event(` + id + `, 'w', false, 'no');
			select retry_count, ` + holds + `, claimed_at is null and claimed_by is null and processed_at is null from m10_recovery.outbox;
			commit`)
		want := pgtest.One[string](t, db.Pool(pgtest.Owner), `select $1::int || '|t|t'`, n)
		if got[len(got)-1] != want {
			t.Fatalf("after %d failures: %v, want %s", n, got, want)
		}
		if dead := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is not null or last_error <> 'no'`); dead != 0 {
			t.Fatalf("after %d failures it is dead, or its error lost", n)
		}
		db.Exec(t, pgtest.Owner, `update deed.pending set process_after = clock_timestamp() - interval '1 second'`)
	}
	run(`select m10_recovery.complete_outbox_event(id, 'w', true) from m10_recovery.claim_outbox_events('w')`)
	if got := run(`select processed_at is not null, retry_count, claimed_by from m10_recovery.outbox`); !slices.Equal(got, []string{"t|25|w"}) {
		t.Errorf("processed, retries, by: %v", got)
	}
}

// A completion that comes too late changes nothing and warns; a repeat of a
// success is silent (O14).
func TestContract_O3_LateCompletionWarns(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	run := func(sql string) string {
		t.Helper()
		out, err := db.Psql(t, pgtest.Team, "-c", sql).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", sql, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	id := run(`select m10_recovery.publish_outbox('order', '42', 'order.placed', '{}')`)
	run(`select id from m10_recovery.claim_outbox_events('slow')`)
	db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp() - interval '1 second'`)
	if got := run(`select id from m10_recovery.claim_outbox_events('fast')`); got != id {
		t.Fatalf("the expired claim was not taken over: %q", got)
	}
	for _, success := range []string{"true", "false"} {
		if got := run(`select m10_recovery.complete_outbox_event(` + id + `, 'slow', ` + success + `)`); !strings.Contains(got, "WARNING") || !strings.Contains(got, "not claimed by slow") {
			t.Errorf("a late completion (%s) said %q", success, got)
		}
	}
	if got := run(`select claimed_by, retry_count, processed_at is null from m10_recovery.outbox`); got != "fast|0|t" {
		t.Errorf("after the late completions: %s", got)
	}
	for range 2 {
		if got := run(`select m10_recovery.complete_outbox_event(` + id + `, 'fast', true)`); got != "" {
			t.Errorf("the owner's completion said %q", got)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(lost) from deed.receipts`); n != 2 {
		t.Errorf("%d late attempts are counted, want 2", n)
	}
}

// What is deed's to write is refused, with the function to call instead.
func TestContract_O3_ManagedColumnsAreRefused(t *testing.T) {
	t.Parallel()
	db := withFaces(t)
	lines(t, db.Psql(t, pgtest.Team, "-c", `select m10_recovery.publish_outbox('order', '42', 'order.placed', '{}')`))
	for sql, hint := range map[string]string{
		`update public.outbox set processing_token = gen_random_uuid()`:                            "app.outbox_claim(",
		`update public.outbox set delivered_at = now()`:                                            "app.outbox_mark_delivered(",
		`update public.outbox set attempts = 5`:                                                    "app.outbox_mark_delivered(",
		`update public.outbox set payload = '{}', topic = 'x'`:                                     "publish another",
		`insert into public.outbox (topic, payload, delivered_at) values ('t', '{}', now())`:       "app.outbox_mark_delivered",
		`insert into public.outbox (topic, payload, id) values ('t', '{}', gen_random_uuid())`:     "app.outbox_claim",
		`delete from public.outbox`:                                                                "deed dead discard",
		`update m10_recovery.outbox set retry_count = 5, process_after = now()`:                    "m10_recovery.complete_outbox_event(",
		`update m10_recovery.outbox set claimed_by = 'me'`:                                         "m10_recovery.claim_outbox_events(",
		`update m10_recovery.outbox set payload = '{}'`:                                            "publish another",
		`insert into m10_recovery.outbox (event_type, payload, retry_count) values ('t', '{}', 3)`: "m10_recovery.publish_outbox(",
		`delete from m10_recovery.outbox`:                                                          "deed dead discard",
	} {
		out, err := db.Psql(t, pgtest.Team, "-v", "VERBOSITY=verbose", "-c", sql).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "DDARG") || !strings.Contains(string(out), hint) {
			t.Errorf("%s\n%v, want DDARG and %q in:\n%s", sql, err, hint, out)
		}
	}
}
