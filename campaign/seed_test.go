package campaign_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// seed000 is a statement as seed 000 prints it.
func seed000(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "seed000", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bySeed runs statements by psql, each for itself, in the schema whose names are the seed's, and returns
// what it printed of each: the SQLSTATE of an error, or done.
func bySeed(t testing.TB, db *pgtest.DB, role pgtest.Role, statements ...string) (list []string) {
	t.Helper()
	script := `set search_path = deed;` + "\n"
	for _, s := range statements {
		script += strings.TrimSuffix(strings.TrimSpace(s), ";") + ";\n\\echo done\n"
	}
	cmd := db.Psql(t, role, "-v", "ON_ERROR_STOP=0", "-v", "VERBOSITY=sqlstate", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	state := ""
	for line := range strings.Lines(string(out)) {
		if m := regexp.MustCompile(`ERROR:  (\S+)`).FindStringSubmatch(line); m != nil {
			state = m[1]
		} else if line == "done\n" {
			list, state = append(list, map[bool]string{true: "done", false: state}[state == ""]), ""
		}
	}
	if len(list) != len(statements) {
		t.Fatalf("%d statements printed\n%s", len(statements), out)
	}
	return list
}

// everywhere is a run that goes on and has deliveries of every status, one that has ended, and one that has not
// begun.
func everywhere(t testing.TB, db *pgtest.DB) (queued, running, ended string) {
	t.Helper()
	req := request(t, db, 6)
	ended = deploy(t, db, req)
	req.ID = "2"
	running = deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "run_id = '"+ended+"'", "sent", "")
	rollUp(t, db)
	for n, status := range []string{"sent", "failed", "dead", "skipped"} {
		endAll(t, db, fmt.Sprintf("run_id = '%s' and recipient = '%s'", running, address("email", n)), status, "no address")
	}
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 1, '1 hour', p_runs => true)`)
	db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id), array_agg(claim), array_agg('x'::bytea), null, '1 hour', 'w') from deed.channel_outbox where lease_until is not null`)
	req.ID = "3"
	queued = deploy(t, db, req)
	return queued, running, ended
}

// Who has seed 000 and psql finds refused what it says is: a change of status that it does not print (§4), of runs,
// jobs and deliveries, by the owner too, and any change at all by everybody else (§5).
func TestContract_C2_TheSeedsTransitionsByPsql(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	everywhere(t, db)
	// As it is printed, with what deed adds (C2, D3).
	next := map[string]string{
		"campaign_runs queued": "running", "campaign_runs running": "completed partial failed",
		"job_queue queued": "locked", "job_queue locked": "completed failed queued",
		"channel_outbox queued": "sending skipped failed sent dead", "channel_outbox sending": "sent skipped failed dead queued",
	}
	var statements []string
	for table, statuses := range map[string][]string{
		"campaign_runs":  {"queued", "running", "completed", "partial", "failed", "paused", ""},
		"job_queue":      {"queued", "locked", "completed", "failed", "dead", "partial", ""},
		"channel_outbox": {"queued", "sending", "sent", "called", "posted", "failed", "dead", "skipped", "pending", ""},
	} {
		rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `select min(id::text), status from deed.`+table+` group by status`)
		if err != nil {
			t.Fatal(err)
		}
		there := 0
		for rows.Next() {
			var id, from string
			if err := rows.Scan(&id, &from); err != nil {
				t.Fatal(err)
			}
			there++
			for _, to := range statuses {
				if to != from && !slices.Contains(strings.Fields(next[table+" "+from]), to) {
					statements = append(statements, fmt.Sprintf(`UPDATE %s SET status = '%s' WHERE id = '%s'`, table, to, id))
				}
			}
		}
		if rows.Err() != nil || there < 3 {
			t.Fatal(table, there, rows.Err())
		}
	}
	for i, got := range bySeed(t, db, pgtest.Owner, statements...) {
		// What belongs to no channel of these is refused as a row.
		if got != "DDCON" && (got != "23514" || !strings.Contains(statements[i], "called") && !strings.Contains(statements[i], "posted")) {
			t.Errorf("%s: %s", statements[i], got)
		}
	}
	for _, role := range []pgtest.Role{pgtest.App, pgtest.Worker, pgtest.Admin, pgtest.Team} {
		never := []string{
			`UPDATE campaign_runs SET status = 'running' WHERE id = gen_random_uuid()`, `UPDATE job_queue SET status = 'locked'`, `UPDATE channel_outbox SET status = 'sent'`,
			`INSERT INTO campaign_runs (status) VALUES ('queued')`, `INSERT INTO job_queue (status) VALUES ('queued')`, `INSERT INTO channel_outbox (status) VALUES ('queued')`,
			`DELETE FROM campaign_runs`, `DELETE FROM job_queue`, `DELETE FROM channel_outbox`, `UPDATE campaign_audit_log SET actor = 'nobody'`, `DELETE FROM audit_log`,
		}
		for i, got := range bySeed(t, db, role, never...) {
			if got != "42501" && (got != "55000" || !strings.Contains(never[i], "campaign_audit_log")) {
				t.Errorf("as %s, %s: %s", role, never[i], got)
			}
		}
	}
	db.Broken() // what endAll has changed stands in no audit row
}

// What seed 000 has the database reject (§7, §8 C2), by psql: an invalid status, skipped without being it, a key that is
// missing, and one that is there; and its own constraints and index are there when somebody runs them as they are printed.
func TestContract_C2_TheSeedsInvalidOutboxByPsql(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	deploy(t, db, request(t, db, 1))
	row := func(status, skipped, key string) string {
		return fmt.Sprintf(`INSERT INTO channel_outbox (id, tenant_id, workspace_id, channel, provider, lane, recipient, payload, guarantee, status, skipped, skip_reason, idempotency_key, created_at, updated_at)
			VALUES (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', 'email', 'fake', 'example.com', 'x@example.com', '{}', 'at_most_once',
				'%s', %s, CASE WHEN %[2]s THEN 'no address' END, %s, now(), now())`, status, skipped, key)
	}
	statements := map[string][2]string{
		"1 a valid one":                       {row("queued", "false", "sha256('a')"), "done"},
		"2 an invalid status":                 {row("pending", "false", "sha256('b')"), "DDCON"},
		"3 skipped=true with status != it":    {row("queued", "true", "sha256('c')"), "23514"},
		"4 a missing idempotency_key":         {row("queued", "false", "NULL"), "23502"},
		"5 a key that is none":                {row("queued", "false", `'\x'`), "23514"},
		"6 a duplicate idempotency_key":       {row("queued", "false", "sha256('a')"), "23505"},
		"7 a status that is reached by calls": {row("sent", "false", "sha256('d')"), "DDCON"},
		"8 its status without the trigger":    {`UPDATE channel_outbox SET skipped = true WHERE status = 'queued'`, "23514"},
	}
	for n, s := range strings.SplitAfter(seed000(t, "constraints.sql"), ";")[:3] {
		statements[fmt.Sprint("9 as printed, ", n)] = [2]string{s, []string{"42710", "42710", "done"}[n]} // they are there
	}
	var names, list []string
	for name := range statements {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list = append(list, statements[name][0])
	}
	for i, got := range bySeed(t, db, pgtest.Owner, list...) {
		want(t, names[i], got, statements[names[i]][1])
	}
	db.Broken()
}

// The trace of seed 000 (§10), as it is printed, by the application's login: from the run to the provider's message id, and
// nothing of another tenant.
func TestContract_C6_TheSeedsTraceByPsql(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 2)
	run := deploy(t, db, req)
	expandAll(t, db)
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 hour', p_runs => true)`)
	db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id), array_agg(claim), array_agg('x'::bytea), null, '1 hour', 'w') from deed.channel_outbox`)
	db.Exec(t, pgtest.Worker, `
		select deed.settle(array_agg(id order by recipient), array_agg(claim order by recipient), '{accepted,refused}', '{m-1,null}', '{null,no}', '{null,null}', 'w') from deed.channel_outbox`)
	rollUp(t, db)
	req.ID = "2"
	later := deploy(t, db, req)
	trace := strings.Replace(seed000(t, "trace.sql"), "CAMPAIGN_UUID", req.Campaign, 1)
	asked := func(set string) string {
		t.Helper()
		cmd := db.Psql(t, pgtest.App, "-c", "set search_path = deed", "-c", set, "-f", "-")
		cmd.Stdin = strings.NewReader(trace)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	of := func(sql string, args ...any) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), sql, args...)
	}
	job := func(run string) string {
		return of(`select id::text from deed.job_queue where run_id = $1::text::uuid`, run)
	}
	item := func(n int) string {
		return of(`select id::text from deed.channel_outbox where recipient = $1`, address("email", n))
	}
	rows := strings.Split(strings.TrimSpace(asked("select")), "\n")
	slices.Sort(rows[1:]) // what was made at one moment has no order
	made := []string{
		fmt.Sprintf("%s|partial|%s|completed|0|%s|sent|m-1", run, job(run), item(0)),
		fmt.Sprintf("%s|partial|%s|completed|0|%s|failed|", run, job(run), item(1)),
	}
	slices.Sort(made)
	want(t, "the trace", strings.Join(rows, "\n"), strings.Join(append([]string{fmt.Sprintf("%s|queued|%s|queued|0|||", later, job(later))}, made...), "\n"))
	want(t, "another tenant's", asked("set app.current_tenant_id = '01a1fe76-14ee-7f1b-b119-532699ab7d4c'"), "")
}
