package campaign_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

func retry(t testing.TB, db *pgtest.DB, run string, opts campaign.RetryOptions) campaign.Retried {
	t.Helper()
	r, err := campaign.Retry(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, opts, audit.Act{By: "ann", Reason: "again"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mixed makes a run of ten that has ended in every way that there is, and returns it: the
// first two of them failed and are dead.
func mixed(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	req := request(t, db, 10)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 9))
	run := deploy(t, db, req)
	expandAll(t, db)
	of := func(n int) string { return "recipient = '" + address(campaign.Email, n) + "'" }
	endAll(t, db, of(0), "failed", "")
	endAll(t, db, of(1), "dead", "")
	for _, n := range []int{2, 3, 4} {
		endAll(t, db, of(n), "failed", "")
	}
	endAll(t, db, of(5), "skipped", "cancelled")
	endAll(t, db, of(6), "skipped", "expired; an earlier call may have been accepted")
	endAll(t, db, of(7), "skipped", "they have opted out, says fake")
	endAll(t, db, "true", "sent", "")
	for n, change := range map[int]string{
		2: `insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, at, worker, outcome) select id, tenant_id, 1, 1, now(), 'w', 'bad address' from deed.channel_outbox where `,
		3: `update deed.channel_outbox set proved_at = now() where `,
		4: `update deed.channel_outbox set unsettled_since = now() where `,
	} {
		db.Exec(t, pgtest.Owner, change+of(n))
	}
	rollUp(t, db)
	want(t, "the run", states(t, db, run), "partial: completed 1/2/2/4/1")
	db.Broken() // the test's own changes stand in no audit row
	// Of the one who has got it somebody has lost the row: that is no reason to do it again.
	db.Exec(t, pgtest.Owner, `delete from deed.channel_outbox where `+of(8))
	return run
}

func audienceOf(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(m.n || ' ' || m.address, ', ' order by m.n), '') from deed.campaign_runs r join deed.audience_members m on m.audience_id = r.audience_id where r.id = $1::text::uuid`, run)
}

// A retry is a linked run of those who failed and may be tried again, and of nobody else; the
// old run stays as it was.
func TestContract_C7_OnlyWhatFailed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts campaign.RetryOptions
		want string
	}{
		"what failed":         {campaign.RetryOptions{}, "1 p0@d0.example, 2 p1@d1.example"},
		"and what was missed": {campaign.RetryOptions{Missed: true}, "1 p0@d0.example, 2 p1@d1.example, 3 p5@d5.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := mixed(t, db)
			const row = `select (select r::text from deed.campaign_runs r where r.id = $1::text::uuid) || (select string_agg(j::text, '') from deed.job_queue j where j.run_id = $1::text::uuid) || (select string_agg(c::text, '' order by c.id) from deed.channel_outbox c where c.run_id = $1::text::uuid)`
			before := pgtest.One[string](t, db.Pool(pgtest.Owner), row, run)
			r := retry(t, db, run, c.opts)
			want(t, "who is tried again", audienceOf(t, db, r.Run), c.want)
			want(t, "new", r.New, true)
			want(t, "members", int(r.Members), strings.Count(c.want, "@"))
			expandAll(t, db)
			endAll(t, db, "true", "sent", "")
			rollUp(t, db)
			want(t, "the retry", states(t, db, r.Run), fmt.Sprintf("completed: completed %d/0/0/0/0", r.Members))
			got, err := campaign.Find(t.Context(), db.Pool(pgtest.App), r.Run)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "what it retries", got.RetryOf, run)
			want(t, "the old run", pgtest.One[string](t, db.Pool(pgtest.Owner), row, run), before)
			p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), r.Run, 10)
			if err != nil || !p.Launched() {
				t.Errorf("the retry is not launched: %v %v", p.Findings, err)
			}
		})
	}
}

// The same request is the same run, and a run is retried once: what failed of its retry is
// tried again by retrying that one.
func TestContract_C7_RetriedOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	open := deploy(t, db, request(t, db, 2))
	if _, err := campaign.Retry(t.Context(), app, campaign.Scope{}, open, campaign.RetryOptions{}, audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("of a run that has not ended: %v", err)
	}
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	db.Broken()
	first := retry(t, db, open, campaign.RetryOptions{})
	again := retry(t, db, open, campaign.RetryOptions{})
	want(t, "again", again, campaign.Retried{Run: first.Run, New: false, Members: 2})
	for what, opts := range map[string]campaign.RetryOptions{"another request": {RequestID: "x"}, "the request with anything else": {Missed: true}, "a request of something else": {RequestID: "1"}} {
		if _, err := campaign.Retry(t.Context(), app, campaign.Scope{}, open, opts, audit.Act{}); deed.CodeOf(err) != deed.Conflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	expandAll(t, db)
	endAll(t, db, "recipient = 'p0@d0.example'", "sent", "")
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	second := retry(t, db, first.Run, campaign.RetryOptions{})
	want(t, "who is tried a third time", audienceOf(t, db, second.Run), "1 p1@d1.example")
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	if _, err := campaign.Retry(t.Context(), app, campaign.Scope{}, second.Run, campaign.RetryOptions{}, audit.Act{}); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "empty_audience") {
		t.Errorf("where nobody failed: %v", err)
	}
}

// Of two that retry a run at once one makes it, and both get it.
func TestContract_C7_TwoAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 2))
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	db.Broken()
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	first, err := campaign.Retry(ctx, tx, campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		campaign.Retried
		err error
	}
	second := make(chan answer, 1)
	conn := db.Conn(t, pgtest.App)
	pid := int32(conn.PgConn().PID())
	go func() {
		r, err := campaign.Retry(ctx, conn, campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
		second <- answer{r, err}
	}()
	waitFor(t, "the second to wait", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select cardinality(pg_blocking_pids($1)) > 0`, pid)
	})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	got := <-second
	if got.err != nil || got.Run != first.Run || got.New {
		t.Errorf("the second: %+v", got)
	}
	want(t, "runs that retry it", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs where retry_of is not null`), 1)
}

// Who is known to have got it by the time that the retry's job is expanded does not get it
// again: by a late proof, or under another name of theirs.
func TestContract_C7_WhoHasGotItMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 4)
	run := deploy(t, db, req)
	expandAll(t, db)
	for n := range 3 {
		endAll(t, db, "recipient = '"+address(campaign.Email, n)+"'", "dead", "")
	}
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	db.Broken()
	r := retry(t, db, run, campaign.RetryOptions{})
	db.Exec(t, pgtest.Worker, `select deed.prove_delivery(c.id, 'm', 'w') from deed.channel_outbox c where c.recipient = $1`, address(campaign.Email, 0))
	merge(t, db, req, 2, 4)
	expandAll(t, db)
	want(t, "the retry", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(recipient || ' ' || coalesce(skip_reason, status), ', ' order by recipient) from deed.channel_outbox where run_id = $1::text::uuid`, r.Run),
		"p0@d0.example sent before, p1@d1.example sent before, p2@d2.example queued")
}

// A member whose erasure is under way while a run is retried is in its audience without an
// address, or not at all.
func TestContract_C7_ErasedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	req := request(t, db, 2)
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	db.Broken()
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select deed.erase_contact(m.contact_id, 'they asked') from deed.audience_members m where m.n = 1`); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	conn := db.Conn(t, pgtest.App)
	pid := int32(conn.PgConn().PID())
	go func() {
		_, err := campaign.Retry(ctx, conn, campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
		made <- err
	}()
	waitFor(t, "the retry to wait for the erasure, or to be made", func() bool {
		return len(made) > 0 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select cardinality(pg_blocking_pids($1)) > 0`, pid)
	})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	want(t, "addresses of the erased in audiences", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audience_members where address = $1`, address(campaign.Email, 0)), 0)
}

// A retry needs of its provider what the run did: what it has lost since then is named, as at a deployment.
func TestRetry_NamesWhatTheProviderHasLost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // what has ended was never called
	req := request(t, db, 2)
	req.PauseOn = &campaign.PauseOn{Complained: "0.3%"}
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{complained}', verified_domains = '{example.com}'`)
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{}', verified_domains = '{example.org}'`)
	_, err := campaign.Retry(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "no_complaints: ") || !strings.Contains(err.Error(), "unverified_domain: 'fake' has not verified example.com") {
		t.Errorf("it says %v", err)
	}
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{complained}', verified_domains = '{example.com}'`)
	want(t, "tried again", retry(t, db, run, campaign.RetryOptions{}).Members, 2)
}
