package campaign_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// keeper is a worker that keeps runs for 48 hours.
func keeper(t testing.TB, db *pgtest.DB) *campaign.Worker {
	t.Helper()
	w, err := campaign.NewWorker(t.Context(), db.Pool(pgtest.Worker), campaign.WorkerOptions{Retention: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// retain has a worker take every step that there is, and returns how many those were.
func retain(t testing.TB, w *campaign.Worker) (steps int) {
	t.Helper()
	for more := true; more; steps++ {
		var err error
		if more, err = w.Retain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return steps - 1
}

// daysAgo has every run that has ended have done so some days ago.
func daysAgo(t testing.TB, db *pgtest.DB, days int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set finished_at = now() - interval '%d days' where finished_at is not null;
		alter table deed.campaign_runs enable trigger user`, days))
}

// looked is all that is said of a run, but for when it was sealed.
func looked(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	r, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
	if err != nil {
		t.Fatal(err)
	}
	s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	var rates campaign.Rates
	if r.Rates != nil {
		rates = *r.Rates
	}
	for i, why := range r.Skipped { // what a person has said stays no longer than their deliveries
		r.Skipped[i].Reason, _, _ = strings.Cut(why.Reason, ":")
	}
	return fmt.Sprint(r.Status, r.Progress, r.Heard, rates, r.Skipped, r.Failed, r.Results, p.Launched(), p.Found, p.Progress, s.Progress, s.Reasons)
}

func deliveriesOf(t testing.TB, db *pgtest.DB, run string) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, run)
}

// endedRun makes a run of n members that has ended in several ways.
func endedRun(t testing.TB, db *pgtest.DB, n int) string {
	t.Helper()
	db.Broken() // no ledger has called anybody
	req := request(t, db, n)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 2))
	run := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "recipient = '"+address(campaign.Email, 0)+"'", "failed", "")
	endAll(t, db, "recipient = '"+address(campaign.Email, 1)+"'", "dead", "")
	endAll(t, db, "true", "sent", "")
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, run_id, delivered_at, clicked_at)
		select c.id, c.tenant_id, c.run_id, now(), now() from deed.channel_outbox c where c.status = 'sent' order by c.id limit 2`)
	rollUp(t, db)
	return run
}

// When a run's retention is over its deliveries go, in bounded steps, and what is said of it stays as
// it was, before, within and after; by a lines' hash a proof that was signed before is known to be of it.
func TestContract_C4_APurgedRunKeepsItsProof(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 2500)
	app := db.Pool(pgtest.App)
	before := looked(t, db, run)
	_, key, _ := ed25519.GenerateKey(nil)
	var proof bytes.Buffer
	if _, err := campaign.Sign(t.Context(), db.Pool(pgtest.Admin), run, key, &proof); err != nil {
		t.Fatal(err)
	}
	w := keeper(t, db)
	daysAgo(t, db, 1)
	want(t, "steps before its time", retain(t, w), 0)
	daysAgo(t, db, 3)
	for step, left := range []int{2500, 1500, 500, 0, 0} {
		if more, err := w.Retain(t.Context()); err != nil || !more {
			t.Fatal(step, more, err)
		}
		want(t, "deliveries", deliveriesOf(t, db, run), left)
		want(t, "what is said", looked(t, db, run), before)
		want(t, "violations of campaigns", pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(v.invariant || ': ' || v.detail, '; '), '') from deed.verify_campaigns() v`), "")
		of := 0
		for after := int64(0); ; {
			list, err := campaign.Members(t.Context(), app, run, after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				after = m.N
				if m.Status == "purged" {
					of++
				} else if m.Delivery == "" {
					t.Fatalf("member %d is %s: %s", m.N, m.Status, m.Reason)
				}
			}
			if len(list) < 1000 {
				break
			}
		}
		want(t, "members whose delivery is purged", of, 2500-left)
	}
	want(t, "steps after it", retain(t, w), 0)
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', (select count(*) from deed.delivery_feedback), (select count(*) from deed.delivery_attempts), (select count(*) from deed.audience_members))`), "0 0 2500")

	p, err := campaign.Verify(t.Context(), app, run, 10)
	if err != nil || p.SealedAt == nil || p.PurgedAt == nil {
		t.Fatal(p.SealedAt, p.PurgedAt, err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(proof.String(), "\n"), "\n")
	sum := sha256.Sum256([]byte(strings.Join(lines[1:len(lines)-1], "")))
	want(t, "the lines of the proof", fmt.Sprintf("%x", p.MembersSHA256), fmt.Sprintf("%x", sum))
	if _, err := campaign.Sign(t.Context(), db.Pool(pgtest.Admin), run, key, &proof); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "purged") {
		t.Errorf("signed of what is purged: %v", err)
	}
	want(t, "addresses in what is kept", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select sealed::text like '%@%' from deed.campaign_runs`), false)
	want(t, "in the audit log", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(action || ' ' || affected, ', ' order by action, affected) from (select action, sum(affected) as affected from deed.campaign_audit_log where action in ('seal', 'purge') group by action) a`), "purge 2500, seal 2500")
	if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.campaign_runs set sealed = '{}'`); sqlState(err) != "DDCON" {
		t.Errorf("what is kept was changed: %v", err)
	}
}

// Why members were skipped stays in the report, however many reasons there were why others failed; of a reason what stands before its first colon.
func TestContract_C4_APurgedRunKeepsWhyMembersWereSkipped(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // no ledger has called anybody
	req := request(t, db, 28)
	for n, why := range []string{"asked", "left"} {
		db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], $2, 'w')`, address(campaign.Email, n), why)
	}
	run := deploy(t, db, req)
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set last_error = 'refused ' || substr(split_part(recipient, '@', 1), 2)::int / 2 where status = 'queued'`)
	endAll(t, db, "true", "failed", "")
	rollUp(t, db)
	summary := func() campaign.Report {
		t.Helper()
		r, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), run)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := summary()
	if len(before.Skipped) != 2 {
		t.Errorf("skipped before it is sealed: %+v", before.Skipped)
	}
	daysAgo(t, db, 3)
	retain(t, keeper(t, db))
	after := summary()
	want(t, "skipped", fmt.Sprint(after.Skipped), "[{skipped suppressed 2}]")
	want(t, "the rest of it", fmt.Sprint(after.Progress, after.Heard, after.Failed), fmt.Sprint(before.Progress, before.Heard, before.Failed))
}

// What was wrong with a run stays wrong; one that has ended with a delivery that has not is left as it is, and holds up no
// other.
func TestContract_C4_APurgedRunKeepsItsFindings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 20)
	req := request(t, db, 21)
	req.ID = "2"
	open := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	db.Exec(t, pgtest.Owner, `delete from deed.channel_outbox where run_id = $1::text::uuid and recipient = $2`, run, address(campaign.Email, 7))
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; update deed.channel_outbox set status = 'sending', sent_at = null, finished_at = null where run_id = '`+open+`' and recipient = '`+address(campaign.Email, 7)+`';
		alter table deed.channel_outbox enable trigger user`)
	daysAgo(t, db, 3)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set finished_at = finished_at - interval '1 day' where id = '`+open+`'; alter table deed.campaign_runs enable trigger user`)
	before := looked(t, db, run)
	retain(t, keeper(t, db))
	want(t, "what is said", looked(t, db, run), before)
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
	if err != nil || p.PurgedAt == nil || p.Launched() || fmt.Sprint(p.Found) != "map[missing:1 other counts:1]" || len(p.Findings) != 2 {
		t.Errorf("of a run that lacked one: %+v %+v %v", p.Found, p.Findings, err)
	}
	want(t, "deliveries of the run that has one open", deliveriesOf(t, db, open), 21)
}

// Of a run that is sealed nobody knows any more who failed: it is not retried, and says so. One that was retried goes after its
// retry, whose expansion asks it whom it has reached.
func TestContract_C7_APurgedRunIsNotRetried(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 10)
	first := retry(t, db, run, campaign.RetryOptions{})
	w := keeper(t, db)
	daysAgo(t, db, 3)
	want(t, "steps while its retry goes on", retain(t, w), 0)
	expandAll(t, db)
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	want(t, "steps while its retry is kept", retain(t, w), 0)
	daysAgo(t, db, 3)
	want(t, "steps", retain(t, w), 6)
	want(t, "what was kept last", pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.campaign_runs order by sealed_at desc limit 1`), run)
	for _, id := range []string{run, first.Run} {
		p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), id, 10)
		if err != nil || !p.Launched() || p.PurgedAt == nil {
			t.Errorf("run %s: %+v %v", id, p.Found, err)
		}
	}
	again := retry(t, db, run, campaign.RetryOptions{})
	want(t, "the request of before", again.Run, first.Run)
	if _, err := campaign.Retry(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, first.Run, campaign.RetryOptions{}, audit.Act{}); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "purged") {
		t.Errorf("a retry of what is purged: %v", err)
	}
}

// Who has begun to seal before a retry was committed does not see it, and seals nothing: the next one does.
func TestRetain_RetriedMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 10)
	daysAgo(t, db, 3)
	tx, err := db.Pool(pgtest.Worker).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select count(*) from deed.campaign_runs`); err != nil { // from here on it sees what there was
		t.Fatal(err)
	}
	retry(t, db, run, campaign.RetryOptions{})
	var sealed *string
	if err := tx.QueryRow(t.Context(), `select deed.run_to_seal('2 days')::text`).Scan(&sealed); sqlState(err) != "40001" {
		t.Errorf("the run is there to be sealed: %v, want 40001", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "steps while its retry goes on", retain(t, keeper(t, db)), 0)
}

// Whoever is killed while he seals has sealed nothing, and while he removes removed nothing; the next one goes on.
func TestContract_C4_KilledWhilePurging(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 1500)
	before := looked(t, db, run)
	daysAgo(t, db, 3)
	w := keeper(t, db)
	ctx := t.Context()
	killed(t, db, pgtest.Worker, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select deed.seal_run(deed.run_to_seal('2 days'), '{"found": {"missing": 7}}', 'w')`)
		return err
	})
	want(t, "what is said after a seal that was killed", looked(t, db, run), before)
	if _, err := w.Retain(ctx); err != nil {
		t.Fatal(err)
	}
	killed(t, db, pgtest.Worker, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select deed.purge_run(1000, 'w')`)
		return err
	})
	want(t, "deliveries after a step that was killed", deliveriesOf(t, db, run), 1500)
	if _, err := w.Retain(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "within", looked(t, db, run), before)
	want(t, "steps of another one", retain(t, keeper(t, db)), 2)
	want(t, "after", looked(t, db, run), before)
	want(t, "deliveries", deliveriesOf(t, db, run), 0)
}

// Of two workers one has a run, and the other does nothing with it meanwhile.
func TestContract_C4_TwoPurgeAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := endedRun(t, db, 10)
	daysAgo(t, db, 3)
	before := looked(t, db, run)
	tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select deed.run_to_seal('2 days')`); err != nil {
		t.Fatal(err)
	}
	want(t, "steps of the second", retain(t, keeper(t, db)), 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "steps then", retain(t, keeper(t, db)), 3)
	want(t, "what is said", looked(t, db, run), before)
}

// twoEnded are two runs whose retention is over, that which is sealed first before the other.
func twoEnded(t testing.TB, db *pgtest.DB) (first, second string) {
	t.Helper()
	first = endedRun(t, db, 20)
	req := request(t, db, 21)
	req.ID = "2"
	second = deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	daysAgo(t, db, 3)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set finished_at = finished_at - interval '1 day' where id = '`+first+`'; alter table deed.campaign_runs enable trigger user`)
	return first, second
}

// A run of which somebody has a delivery in hand holds up no other one; it goes once that is over.
func TestContract_C4_ADeliveryInHandHoldsUpNoOtherRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := twoEnded(t, db)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `select id from deed.channel_outbox where run_id = $1::text::uuid limit 1 for update`, first); err != nil {
		t.Fatal(err)
	}
	w := keeper(t, db)
	retain(t, w)
	want(t, "deliveries of the run that somebody has one of", deliveriesOf(t, db, first), 1)
	want(t, "deliveries of the one behind", deliveriesOf(t, db, second), 0)
	purged := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(id::text, ' ' order by purged_at), '') from deed.campaign_runs where purged_at is not null`)
	}
	want(t, "the runs that are purged", purged(), second)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "steps then", retain(t, w), 2)
	want(t, "the runs that are purged then", purged(), second+" "+first)
}

// A run that cannot be sealed holds up no other one, and is tried again after them.
func TestContract_C4_ASealThatFailsHoldsUpNoOtherRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, second := twoEnded(t, db)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs add constraint refused check (id <> '`+first+`' or sealed is null)`)
	w := keeper(t, db)
	// tried is how often it fails until there is nothing to do.
	tried := func() (failed int) {
		t.Helper()
		for range 20 {
			more, err := w.Retain(t.Context())
			if err != nil && !strings.Contains(err.Error(), first) {
				t.Errorf("it does not say which run: %v", err)
			} else if err != nil {
				failed++
			} else if !more {
				return failed
			}
		}
		t.Fatal("it does not come to an end")
		return 0
	}
	want(t, "failures", tried(), 1)
	want(t, "deliveries of the one behind", deliveriesOf(t, db, second), 0)
	want(t, "failures of the next look", tried(), 1)
	want(t, "deliveries of the one that fails", deliveriesOf(t, db, first), 20)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs drop constraint refused`)
	want(t, "failures once it can be sealed", tried(), 0)
	want(t, "deliveries of it then", deliveriesOf(t, db, first), 0)
}

// Once a run is purged of which some were sent and some have failed, the ledger and its audit log still add up;
// and what is missing afterwards is found.
func TestContract_C4_APurgedRunAddsUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 3)
	ended := func(id string) {
		t.Helper()
		req.ID = id
		deploy(t, db, req)
		expandAll(t, db)
		db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 hour', p_runs => true)`)
		db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id), array_agg(claim), array_fill('x'::bytea, array[3]), null, '1 hour', 'w') from deed.channel_outbox`)
		db.Exec(t, pgtest.Worker, `
			select deed.settle(array_agg(id), array_agg(claim), '{accepted,refused,accepted}', '{m-1,null,m-3}', '{null,no,null}', '{null,null,null}', 'w') from deed.channel_outbox`)
		rollUp(t, db)
	}
	missing := func() string {
		t.Helper()
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(string_agg(detail, '; ' order by detail), '') from deed.verify_deliveries() where invariant = 'deliveries are missing'`)
	}
	ended("1")
	daysAgo(t, db, 3)
	want(t, "steps", retain(t, keeper(t, db)), 3)
	want(t, "deliveries", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`), 0)
	want(t, "what is missing of a run that is purged", missing(), "")
	ended("2")
	db.Broken()
	db.Exec(t, pgtest.Owner, `delete from deed.channel_outbox where provider_message_id = 'm-1'`)
	want(t, "what is missing of another", missing(), "1 are ended well, and by the audit log 2")
}
