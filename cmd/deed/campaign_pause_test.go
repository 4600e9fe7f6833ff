package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// underWay makes a run of three, of which one is queued, one being sent, and one in doubt and held for a person.
func underWay(t *testing.T) (db *pgtest.DB, run, held string) {
	t.Helper()
	db = pgtest.New(t)
	db.Broken() // what is held was held by hand
	db.Providers(t, "stub", "texts")
	for _, q := range []string{
		`select deed.put_campaign('spring', '{"text": "Hello"}')`,
		`select deed.put_audience('people', 'sms')`,
		`select deed.add_audience_members(a.id, 0, '{+493012345,+493012346,+493012347}', array['{}', '{}', '{}']::jsonb[]) from deed.audiences a`,
		`select deed.finish_audience(a.id, 3) from deed.audiences a`,
		`select deed.deploy_campaign(c.id, a.id, '1', 'sms', p_options => '{"provider": "texts", "purpose": "offers"}') from deed.campaigns c, deed.audiences a`,
		`select deed.expand_job(j.id, j.claim, 'w') from deed.claim_queued_jobs('w', 10, '1 minute') j`,
		`select deed.claim_deliveries('texts', 'w', 2, '1 hour', p_runs => true)`,
		`select deed.attempt(array_agg(c.id), array_agg(c.claim), array['x'::bytea, 'y'::bytea], null, '1 hour', 'w') from deed.channel_outbox c where c.claim is not null`,
		`select deed.settle(array[c.id], array[c.claim], '{unknown}', '{null}', '{null}', '{null}', 'w') from (select * from deed.channel_outbox where status = 'sending' order by id limit 1) c`,
		`update deed.channel_outbox set held_at = now() where doubt_since is not null`,
	} {
		db.Exec(t, pgtest.Owner, q)
	}
	owner := db.Pool(pgtest.Owner)
	run = pgtest.One[string](t, owner, `select id::text from deed.campaign_runs`)
	held = pgtest.One[string](t, owner, `select id::text from deed.channel_outbox where held_at is not null`)
	return db, run, held
}

// A pause that is waited for says what is still being sent. ^C, and --timeout, leave the run paused and
// say so; it returns when nothing is being sent but what a person has to look at, and names that.
func TestCampaignPause_Waits(t *testing.T) {
	t.Parallel()
	db, run, held := underWay(t)
	owner := db.Pool(pgtest.Owner)
	paused := func(what string) {
		t.Helper()
		if !pgtest.One[bool](t, owner, `select paused_at is not null from deed.campaign_runs`) {
			t.Errorf("%s: the run is not paused", what)
		}
	}
	p := start(t, db.URL(pgtest.Owner), "campaign", "pause", run, "--wait", "--reason", "the wrong price")
	p.prints(&p.errOut, `paused; 1 delivery is being sent\n`)
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit status %d after ^C", code)
	}
	p.prints(&p.errOut, `deed: interrupted: run `+run+` stays paused; at the last look 1 delivery was being sent; deed campaign resume lets it go on\n`)
	paused("after ^C")
	for limit := 500 * time.Millisecond; ; limit *= 2 {
		p = start(t, db.URL(pgtest.Owner), "campaign", "pause", run, "--wait", "--timeout", limit.String())
		if code := p.wait(); code != exitFailed {
			t.Errorf("exit status %d after the timeout", code)
		}
		if strings.Contains(p.errOut.String(), "being sent\n") { // it has looked before that was over
			p.prints(&p.errOut, `--timeout `+limit.String()+` is over: run `+run+` stays paused; `)
			break
		}
	}
	paused("after the timeout")
	p = start(t, db.URL(pgtest.Owner), "campaign", "pause", run, "--wait")
	p.prints(&p.errOut, `1 delivery is being sent\n`)
	db.Exec(t, pgtest.Owner, `select deed.settle(array[c.id], array[c.claim], '{accepted}', '{m}', '{null}', '{null}', 'w') from deed.channel_outbox c where c.status = 'sending' and c.held_at is null`)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit status %d", code)
	}
	if want := run + ": paused; 1 delivery is in doubt, and held for a person: " + held + "\n"; p.out.String() != want {
		t.Errorf("it says %q, want %q", &p.out, want)
	}
	got := deedOK(t, db.URL(pgtest.Owner), "campaign", "pause", run, "--wait", "--json")
	if want := `"did":"paused","sending":0,"held":1,"held_ids":["` + held + `"]`; !strings.Contains(got, want) {
		t.Errorf("as JSON: %s, want %s", got, want)
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.audit_log where action = 'pause' and reason = 'the wrong price'`); n != 1 {
		t.Errorf("%d rows of the audit log say that it was paused, want 1", n)
	}
	p = start(t, db.URL(pgtest.Owner), "campaign", "resume", run)
	if code := p.wait(); code != exitOK || !regexp.MustCompile(`: resumed\n$`).MatchString(p.out.String()) {
		t.Errorf("resumed: %d, %s", code, &p.out)
	}
}

// A cancellation that is waited for says what is still being sent, and that the run stays cancelled where it is given up; it
// returns when nothing is being sent but what a person has to look at, though the run has not ended.
func TestCampaignCancel_Waits(t *testing.T) {
	t.Parallel()
	db, run, held := underWay(t)
	p := start(t, db.URL(pgtest.Owner), "campaign", "cancel", run, "--wait", "--reason", "the wrong price")
	p.prints(&p.errOut, `cancelled; 1 delivery is being sent\n`)
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit status %d after ^C", code)
	}
	p.prints(&p.errOut, `deed: interrupted: run `+run+` stays cancelled; at the last look 1 delivery was being sent; what is being sent ends by itself\n`)
	if got, want := deedOK(t, db.URL(pgtest.Owner), "campaign", "cancel", run), run+": cancelled; 2 deliveries are being sent, and not stopped\n"; got != want {
		t.Errorf("without --wait: %q, want %q", got, want)
	}
	p = start(t, db.URL(pgtest.Owner), "campaign", "cancel", run, "--wait")
	p.prints(&p.errOut, `1 delivery is being sent\n`)
	db.Exec(t, pgtest.Owner, `select deed.settle(array[c.id], array[c.claim], '{accepted}', '{m}', '{null}', '{null}', 'w') from deed.channel_outbox c where c.status = 'sending' and c.held_at is null`)
	if code := p.wait(); code != exitOK {
		t.Errorf("exit status %d", code)
	}
	if want := run + ": cancelled; 1 delivery is in doubt, and held for a person: " + held + "\n"; p.out.String() != want {
		t.Errorf("it says %q, want %q", &p.out, want)
	}
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select r.status || ' ' || (select count(*) from deed.audit_log a where a.action = 'cancel' and a.reason = 'the wrong price') from deed.campaign_runs r where r.cancelled_at is not null`); got != "running 1" {
		t.Errorf("the run is %q", got)
	}
}

// A pause and a cancellation that attempts do not let be confirmed say that they stand, and that they are to be asked again: with --wait they do that themselves.
func TestCampaignPause_StandsWhereItIsNotConfirmed(t *testing.T) {
	t.Parallel()
	db, run, _ := underWay(t)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table deed.provider_lock in row share mode`); err != nil { // as an attempt has it
		t.Fatal(err)
	}
	for _, c := range []struct{ use, is string }{{"pause", "paused"}, {"cancel", "cancelled"}} {
		p := start(t, db.URL(pgtest.Owner), "campaign", c.use, run)
		if code := p.wait(); code != exitFailed {
			t.Errorf("exit status %d, %s", code, &p.errOut)
		}
		p.prints(&p.errOut, `deed: `+c.use+` run: run `+run+` is held and stays so, but attempts that began before have not ended; ask again: nothing begins once that succeeds\n`)
		for limit := 3 * time.Second; ; limit *= 2 {
			p = start(t, db.URL(pgtest.Owner), "campaign", c.use, run, "--wait", "--timeout", limit.String())
			if code := p.wait(); code != exitFailed {
				t.Errorf("exit status %d after the timeout", code)
			}
			if strings.Contains(p.errOut.String(), "attempts that began before") { // it has asked twice before that was over
				p.prints(&p.errOut, `run `+run+` stays `+c.is+`; attempts that began before it had not ended: `+c.use+` it again`)
				break
			}
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := deedOK(t, db.URL(pgtest.Owner), "campaign", "cancel", run), run+": cancelled; 2 deliveries are being sent, and not stopped\n"; got != want {
		t.Errorf("asked again: %q, want %q", got, want)
	}
}
