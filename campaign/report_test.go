package campaign_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// ended makes a run of eight that has ended: five were sent, one skipped, one failed and one
// is dead.
func ended(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	req := request(t, db, 8)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 0))
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "recipient = '"+address(campaign.Email, 1)+"'", "failed", "")
	endAll(t, db, "recipient = '"+address(campaign.Email, 2)+"'", "dead", "")
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	want(t, "the run", states(t, db, run), "partial: completed 5/1/0/1/1")
	db.Broken() // the test's own changes stand in no audit row
	return run
}

// A look at a run counts the deliveries of jobs that are open: what became of the others stands on them.
func TestShow_CountsWhatIsOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := ended(t, db)
	db.Exec(t, pgtest.Owner, `delete from deed.channel_outbox where status = 'sent'`)
	s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "progress", s.Progress, campaign.Progress{Sent: 5, Skipped: 1, Failed: 1, Dead: 1})
	want(t, "reasons", len(s.Reasons), 3)
}

// A report has what became of everybody, with what was said of those that went out.
func TestReport_WhatBecameOfEach(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := ended(t, db)
	say := func(n int, what string) {
		db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, `+what+` from deed.channel_outbox c where c.recipient = $1`, address(campaign.Email, n))
	}
	say(3, `delivered_at, opened_at) select c.id, c.tenant_id, now(), now()`)
	say(4, `delivered_at, complained_at, unsubscribed_at) select c.id, c.tenant_id, now(), now(), now()`)
	say(5, `bounced_at, bounce, bounce_since) select c.id, c.tenant_id, now(), 'hard', now()`)
	say(6, `bounced_at, bounce, bounce_since) select c.id, c.tenant_id, now(), 'soft', now()`)
	for n, attempt := range map[int]string{1: "'refused', '550'", 2: "'not now', '429'"} {
		db.Exec(t, pgtest.Owner, `
			insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, at, worker, outcome, code)
			select c.id, c.tenant_id, 1, 1, now(), 'w', `+attempt+` from deed.channel_outbox c where c.recipient = $1`, address(campaign.Email, n))
	}
	r, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "progress", r.Progress, campaign.Progress{Sent: 5, Skipped: 1, Failed: 1, Dead: 1})
	want(t, "heard", r.Heard, campaign.Heard{Delivered: 2, Bounced: 1, SoftBounced: 1, Complained: 1, Unsubscribed: 1, Opened: 1})
	want(t, "rates", *r.Rates, campaign.Rates{Delivered: 0.4, Bounced: 0.2, Complained: 0.2, Unsubscribed: 0.2, Opened: 0.2})
	want(t, "skipped", fmt.Sprint(r.Skipped), "[{skipped suppressed: asked 1}]")
	want(t, "failed", fmt.Sprint(r.Failed), "[{dead not now 429 1} {failed refused 550 1}]")
	if _, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), "01a1fe76-14ee-7f1b-b119-532699ab7d4c"); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("of no run: %v", err)
	}
}

// Every member is listed once, whatever the pages, and those that nobody has reserved yet, too.
func TestMembers_EachOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1003))
	if _, err := worker(t, db).Step(t.Context()); err != nil { // the first job
		t.Fatal(err)
	}
	var statuses []string
	for after := int64(0); ; {
		list, err := campaign.Members(t.Context(), db.Pool(pgtest.App), run, after, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			want(t, "place", m.N, after+1)
			want(t, "address", m.Address, address(campaign.Email, int(after)))
			after = m.N
			statuses = append(statuses, m.Status)
		}
		if len(list) < 7 {
			break
		}
	}
	want(t, "members", len(statuses), 1003)
	want(t, "the last ones", strings.Join(statuses[998:], " "), "queued queued waiting waiting waiting")

	// A page reads the deliveries of its members, with tables that were never analysed, too.
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
		read := func() int { // by what of this session was not told yet
			return pgtest.One[int](t, tx, `
				select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_all_tables where relid = 'deed.channel_outbox'::regclass`)
		}
		before := read()
		if _, err := campaign.Members(t.Context(), tx, run, 500, 7); err != nil {
			return err
		}
		want(t, "deliveries read", read()-before, 7)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Whatever is not as C4 has it is found, by its kind, in the run and by deed.verify; a run
// that has ended well is launched.
func TestContract_C4_VerifyFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	const third, fourth = `(select id from deed.channel_outbox where recipient = 'p2@d2.example')`, `(select id from deed.channel_outbox where recipient = 'p3@d3.example')`
	for name, c := range map[string]struct {
		change string
		want   string // kinds, and how many of each
		verify string // what deed.verify says, among other things; "": it is not a matter of its rows
	}{
		"nothing":                     {`select`, "", ""},
		"a delivery is gone":          {`delete from deed.channel_outbox where id = ` + third, "1 missing, 1 other counts", "job of a campaign has other deliveries than members"},
		"of another member":           {`update deed.channel_outbox set contact_id = (select contact_id from deed.channel_outbox where id = ` + third + `) where id = ` + fourth, "1 missing, 1 other key, 2 twice", "member of a campaign has two deliveries of a run"},
		"of nobody in the audience":   {`update deed.channel_outbox set contact_id = deed.new_id() where id = ` + third, "1 missing, 1 stranger", "delivery of a campaign is for nobody whom its job is for"},
		"it was never ended":          {`update deed.channel_outbox set status = 'queued', sent_at = null, finished_at = null where id = ` + fourth, "1 open, 1 other counts", "job of a campaign has ended, and its deliveries have not"},
		"another key":                 {`update deed.channel_outbox set idempotency_key = sha256('x') where id = ` + fourth, "1 other key", ""},
		"accepted by another claim":   {`insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, at, worker, outcome, late, provider_message_id) select id, tenant_id, 99, 1, now(), 'w', 'accepted', true, 'other' from deed.channel_outbox where id = ` + fourth, "1 accepted twice", ""},
		"its bytes and hash":          {`update deed.channel_outbox set request = null, request_sha256 = null where id = ` + fourth, "1 no hash", ""},
		"what is said was changed":    {`update deed.campaign_contents set subject = 'other'`, "1 other content", ""},
		"a member was added":          {`insert into deed.audience_members (audience_id, n, tenant_id, contact_id, data) select audience_id, 9, tenant_id, deed.new_id(), '{}' from deed.audience_members where n = 1`, "1 missing, 1 other audience", "members of an audience are missing"},
		"a count is another":          {`update deed.job_queue set sent = 6, failed = 0`, "1 other counts", ""},
		"a failure became a skip":     {`update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = 'suppressed: asked' where status = 'failed'`, "1 other counts", ""},
		"what is dead has failed":     {`update deed.channel_outbox set status = 'failed' where status = 'dead'`, "1 other counts", ""},
		"a skip became a failure":     {`update deed.channel_outbox set status = 'dead', skipped = false, skip_reason = null where status = 'skipped'`, "1 other counts", ""},
		"a skip is counted as missed": {`update deed.job_queue set skipped = 0, missed = 1`, "1 other counts", ""},
		"its job is dead, not begun":  {`delete from deed.channel_outbox; update deed.job_queue set status = 'dead', expanded_at = null, last_error = 'the provider is gone', sent = null, skipped = null, missed = null, failed = null, dead = null`, "8 missing", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := ended(t, db)
			const tables = "channel_outbox campaign_contents audience_members job_queue"
			for _, table := range strings.Fields(tables) {
				db.Exec(t, pgtest.Owner, `alter table deed.`+table+` disable trigger user`)
			}
			for _, change := range strings.Split(c.change, "; ") {
				db.Exec(t, pgtest.Owner, change)
			}
			p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 3)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kind := range slices.Sorted(maps.Keys(p.Found)) {
				got = append(got, fmt.Sprint(p.Found[kind], " ", kind))
			}
			want(t, "found", strings.Join(got, ", "), c.want)
			want(t, "launched", p.Launched(), c.want == "")
			if c.verify != "" && !pgtest.One[bool](t, db.Pool(pgtest.Admin), `select exists (select from deed.verify() v where v.invariant = $1)`, c.verify) {
				t.Errorf("deed.verify does not say %q", c.verify)
			}
		})
	}
}

// A run that goes on is not launched, and nothing is wrong with it.
func TestContract_C4_NotLaunchedBeforeItsEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1001))
	check := func(when string, launched bool) {
		t.Helper()
		p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 1)
		if err != nil {
			t.Fatal(err)
		}
		if p.Launched() != launched || len(p.Findings) > 0 {
			t.Errorf("%s: launched is %t, and found is %v", when, p.Launched(), p.Findings)
		}
	}
	check("queued", false)
	if _, err := worker(t, db).Step(t.Context()); err != nil { // the first job
		t.Fatal(err)
	}
	check("half of it", false)
	expandAll(t, db)
	check("reserved", false)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	check("ended", true)
	db.Broken()
}

// A delivery that is gone is missing, whatever its job was once put back for, and so is who has no job; lost is who was never
// reserved, and is said why.
func TestContract_C4_MissingIsNotLost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what is missing
	run := deploy(t, db, request(t, db, 3))
	putBack := func(why string) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select deed.put_back_job(j.id, j.claim, $1, 'w') from deed.claim_queued_jobs('w', 1) j`, why)
	}
	said := func() string {
		t.Helper()
		list, err := campaign.Members(t.Context(), db.Pool(pgtest.App), run, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range list {
			all = append(all, strings.TrimSuffix(fmt.Sprintf("%d %s: %s", m.N, m.Status, m.Reason), ": "))
		}
		for _, f := range p.Findings {
			if f.Kind == "missing" {
				all = append(all, fmt.Sprintf("found %d: %s", f.N, f.Detail))
			}
		}
		return strings.Join(all, ", ")
	}
	putBack("lock timeout")
	want(t, "put back", said(), "2 waiting: lock timeout, 3 waiting: lock timeout")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now()`)
	expandAll(t, db)
	want(t, "expanded", said(), "2 queued, 3 queued")
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; delete from deed.channel_outbox where recipient = '`+address(campaign.Email, 1)+`'; alter table deed.channel_outbox enable trigger user`)
	db.Exec(t, pgtest.Owner, `alter table deed.audience_members disable trigger user;
		insert into deed.audience_members (audience_id, n, tenant_id, contact_id, data) select audience_id, 4, tenant_id, deed.new_id(), '{}' from deed.audience_members where n = 1;
		alter table deed.audience_members enable trigger user`)
	missing := "2 missing, 3 %s, 4 missing, found 2: there is no delivery for it, found 4: there is no job for it"
	want(t, "one is gone, and one has come", said(), fmt.Sprintf(missing, "queued"))
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	want(t, "ended", said(), fmt.Sprintf(missing, "sent"))
	again := request(t, db, 2)
	again.ID = "2"
	run = deploy(t, db, again)
	putBack("lock timeout")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where status = 'queued'`)
	db.Exec(t, pgtest.Worker, `select deed.claim_queued_jobs('w', 1)`)
	db.Exec(t, pgtest.Owner, `select deed.fail_job(j.id, 'no provider', true, 'w') from deed.job_queue j where j.status = 'locked'`)
	want(t, "dead", said(), "2 lost: no provider, found 1: nobody has reserved it: no provider, found 2: nobody has reserved it: no provider")
}
