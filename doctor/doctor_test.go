package doctor_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// impatient finds trouble that began just now.
var impatient = doctor.Options{Long: 1}

// examine lets statements take their time unless a deadline is what a test is about: on a
// busy machine a check would not be made.
func examine(t *testing.T, db doctor.DB, opts doctor.Options) doctor.Findings {
	t.Helper()
	opts.Deadline = cmp.Or(opts.Deadline, time.Minute)
	findings, err := doctor.Examine(context.Background(), db, opts)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// find returns the finding of a name and subject, which must be there.
func find(t *testing.T, findings doctor.Findings, name string, level doctor.Level, subject string) doctor.Finding {
	t.Helper()
	for _, f := range findings {
		if f.Name == name && f.Level == level && f.Subject == subject {
			if f.Detail == "" || f.Level != doctor.OK && f.Remedy == "" {
				t.Errorf("%s of %s does not say enough: %+v", name, subject, f)
			}
			return f
		}
	}
	t.Errorf("there is no finding %s of level %s about %q in\n%s", name, level, subject, text(findings.Trouble()))
	return doctor.Finding{}
}

// says checks what a finding's detail has in it.
func says(t *testing.T, f doctor.Finding, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(f.Detail, part) {
			t.Errorf("%s: the detail lacks %q: %s", f.Name, part, f.Detail)
		}
	}
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Of a new installation, seen by an operator's plain login, there is nothing to
// say but that all is well.
func TestExamine_Healthy(t *testing.T) {
	t.Parallel()
	c := pgtest.Private(t, pgembed.Options{})
	db := c.DB(t)
	db.Exec(t, pgtest.Owner, `grant pg_monitor to deed_test_admin, deed_test_worker`)
	db.Exec(t, pgtest.App, `select deed.publish('orders', '{"n": 1}')`)
	for _, role := range []pgtest.Role{pgtest.Admin, pgtest.Worker} {
		findings := examine(t, db.Pool(role), doctor.Options{})
		if trouble := findings.Trouble(); len(trouble) > 0 {
			t.Errorf("as %s:\n%s", role, text(trouble))
		}
		var names []string
		for _, f := range findings {
			if f.Detail == "" {
				t.Errorf("%s says nothing", f.Name)
			}
			names = append(names, f.Name)
		}
		slices.Sort(names)
		if missing := slices.DeleteFunc(doctor.Names(), func(n string) bool { return slices.Contains(names, n) }); len(missing) > 0 {
			t.Errorf("as %s: nothing was said of %v", role, missing)
		}
	}
	const quick = 2 * time.Second // a tenth of a second where nothing else runs; of the others the machine's other work is a part
	var took []time.Duration
	for n := 0; n < 5 || slices.Min(took) > quick && n < 30; n++ {
		began := time.Now()
		examine(t, db.Pool(pgtest.Admin), doctor.Options{})
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("an examination takes %s", took[len(took)/2])
	if took[0] > quick {
		t.Errorf("an examination takes %s", took[0])
	}
}

// Without the schema what is not of the schema is examined, and the rest is not
// complained of one by one.
func TestExamine_NotInstalled(t *testing.T) {
	t.Parallel()
	findings := examine(t, pgtest.Bare(t).Pool(pgtest.Owner), doctor.Options{})
	says(t, find(t, findings, "schema-version", doctor.Fail, "schema deed"), "not installed")
	for _, f := range findings {
		if f.Name == "not-examined" && f.Level != doctor.OK || f.Name == "row-security" {
			t.Errorf("unasked: %+v", f)
		}
	}
	find(t, findings, "server-version", doctor.OK, serverVersion(t, pgtest.Bare(t)))
}

func serverVersion(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select format('PostgreSQL %s.%s', v / 10000, v % 10000) from (select current_setting('server_version_num')::int v) x`)
}

// A statement that hangs is ended by its deadline; the other checks are made.
func TestExamine_IsBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	tx, err := db.Conn(t, pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `lock table deed.partitions in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	// With a longer one where the machine is so busy that the others are cut off, too.
	var findings doctor.Findings
	for deadline := 200 * time.Millisecond; ; deadline *= 5 {
		findings = examine(t, db.Pool(pgtest.Worker), doctor.Options{Deadline: deadline})
		examined := slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Name == "row-security" && f.Level == doctor.OK })
		if examined || deadline > 10*time.Second {
			break
		}
	}
	f := find(t, findings, "not-examined", doctor.Warn, "partitions-ahead")
	if !strings.Contains(f.Remedy, "less busy") {
		t.Errorf("the remedy is %q", f.Remedy)
	}
	find(t, findings, "row-security", doctor.OK, "")
}

func TestExamine_RefusesWrongOptions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, opts := range []doctor.Options{{Long: -1}, {ClockSkew: -1}, {OldXIDs: -1}, {DeadRows: -1}, {Deadline: 1}} {
		if _, err := doctor.Examine(context.Background(), db.Pool(pgtest.Worker), opts); err == nil {
			t.Errorf("%+v is taken", opts)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := doctor.Examine(ended, db.Pool(pgtest.Worker), doctor.Options{}); err == nil {
		t.Error("an ended context is no error")
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	findings := doctor.Findings{
		{Name: "horizon-session", Level: doctor.Warn},
		{Name: "horizon-session", Level: doctor.Warn},
		{Name: "recovery", Level: doctor.Fail},
		{Name: "roles", Level: doctor.OK},
	}
	got := map[doctor.Count]bool{}
	for _, c := range findings.Counts() {
		got[c] = true
	}
	for _, want := range []doctor.Count{
		{"horizon-session", doctor.Warn, 2},
		{"horizon-session", doctor.OK, 0},
		{"recovery", doctor.Fail, 1},
		{"roles", doctor.OK, 1},
		{"wraparound", doctor.Fail, 0},
	} {
		if !got[want] {
			t.Errorf("Counts lacks %+v", want)
		}
	}
	if len(got) != 3*len(doctor.Names()) {
		t.Errorf("%d counts of %d names", len(got), len(doctor.Names()))
	}
	if findings.Worst() != doctor.Fail || doctor.Findings(nil).Worst() != doctor.OK || len(findings.Trouble()) != 3 {
		t.Errorf("worst %s, trouble %v", findings.Worst(), findings.Trouble())
	}
}

// docs/operations.md says of every finding what it means and what to do.
func TestDocument_HasEveryFinding(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range doctor.Names() {
		if !strings.Contains(string(doc), "\n| `"+name+"` | ") {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
	}
}
