package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

const sleepingPlan = `{"plan": "p", "version": "1", "steps": {"load": {"kind": "sleep"}}}`

// A login of the application that names its tenant among several hears of what it has made, at once and when it waits.
func TestCommitted_ALoginOfTheApplicationHears(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "stub", "p")
	a := tenant.ID{0xa}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), a, "a"); err != nil {
		t.Fatal(err)
	}
	app, owner := db.URL(pgtest.App), db.Pool(pgtest.Owner)

	deliver := []string{"deliver", "--tenant", a.String(), "--provider", "p", "--to", "bob@example.org", "--subject", "x", "--text", "x", "--key", "k"}
	first := deedOK(t, app, deliver...)
	want := pgtest.One[string](t, owner, `select id::text from deed.channel_outbox`) + " queued\n"
	if again := deedOK(t, app, deliver...); first != want || again != want {
		t.Errorf("deed deliver printed %q, and given again %q; want %q", first, again, want)
	}
	p := start(t, app, slices.Concat(deliver, []string{"--wait", "10ms"})...)
	if code := p.wait(); code != exitFailed || p.out.String() != want || !strings.Contains(p.errOut.String(), "not delivered within 10ms") {
		t.Errorf("deed deliver --wait: exit status %d, printed %q and %q", code, &p.out, &p.errOut)
	}

	db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to($1, 'UTF8'), p_tenant => $2::text::uuid)`, sleepingPlan, a.String())
	p = start(t, app, "run", "start", "p", "--tenant", a.String(), "--wait", "10ms")
	code, id := p.wait(), pgtest.One[string](t, owner, `select run_id::text from deed.runs`)
	if code != exitPartly || !strings.Contains(p.out.String(), id) || !strings.Contains(p.errOut.String(), "has not ended within --wait 10ms") {
		t.Errorf("deed run start --wait of %s: exit status %d, printed %q and %q", id, code, &p.out, &p.errOut)
	}
	if steps := deedOK(t, app, "run", "steps", id, "--tenant", a.String()); !strings.Contains(steps, "load") {
		t.Errorf("deed run steps printed %q", steps)
	}
}

// Who stops waiting for what is made, by Ctrl-C, hears what goes on, and how the command, given again, makes no second one.
func TestCommitted_WhoStopsWaitingHears(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args       []string
		made, flag string // what was made, and the flag by which it is asked for again
	}{
		"a delivery": {
			[]string{"deliver", "--provider", "p", "--to", "bob@example.org", "--subject", "x", "--text", "x"},
			`select coalesce(min(id::text), '') from deed.channel_outbox`, "--key",
		},
		"a run": {[]string{"run", "start", "p"}, `select coalesce(min(run_id::text), '') from deed.runs`, "--request-id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Providers(t, "stub", "p")
			db.Exec(t, pgtest.App, `select deed.put_plan(convert_to($1, 'UTF8'))`, sleepingPlan)
			app, id := db.URL(pgtest.App), ""
			p := start(t, app, slices.Concat(c.args, []string{"--wait", "1h"})...)
			eventually(t, name, func() bool {
				id = pgtest.One[string](t, db.Pool(pgtest.Owner), c.made)
				return id != ""
			})
			p.signal(os.Interrupt)
			code, said := p.wait(), p.errOut.String()
			key := regexp.MustCompile(c.flag + ` "([^"]+)"`).FindStringSubmatch(said)
			if code == exitOK || !strings.Contains(said, id) || key == nil {
				t.Fatalf("exit status %d, said %q; want %s and its %s", code, said, id, c.flag)
			}
			if again := deedOK(t, app, slices.Concat(c.args, []string{c.flag, key[1]})...); !strings.HasPrefix(again, id) {
				t.Errorf("given again with %s it is %q, want %s", c.flag, again, id)
			}
		})
	}
}
