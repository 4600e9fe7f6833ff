package campaign_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// tested is a request of two variants that are tested on 40 % of n people.
func tested(t testing.TB, db *pgtest.DB, n int, by campaign.By) campaign.Request {
	t.Helper()
	req := request(t, db, n)
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{complained,clicked}'`)
	req.Variants = map[string]string{}
	for _, name := range []string{"A", "B"} {
		content := spring
		content.Variant, content.Subject = name, name+" is here"
		req.Variants[name] = put(t, db, "spring", content).Content
	}
	req.Test = &campaign.Test{Share: 0.4, By: by}
	if by != campaign.ByPerson {
		req.Test.Wait = time.Hour
	}
	return req
}

// anHourAgo has what was called have been called an hour earlier, and every look at a test be due.
func anHourAgo(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Broken() // no ledger has called anybody
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; update deed.channel_outbox set first_called_at = first_called_at - interval '61 minutes';
		alter table deed.channel_outbox enable trigger user; update deed.campaign_runs set decide_at = now() - interval '1 second' where decide_at is not null`)
}

// clicked has n of those of a variant to whom it was sent click in it, or complain of it.
func clicked(t testing.TB, db *pgtest.DB, what, variant string, n int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, `+what+`)
		select c.id, c.tenant_id, now() from deed.channel_outbox c where c.payload ->> 'variant' = $1 and c.status = 'sent' order by c.id limit $2`, variant, n)
}

func decide(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.decide_winners(10, 'w')`)
}

func winnerOf(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	r, err := campaign.Find(t.Context(), db.Pool(pgtest.App), run)
	if err != nil || r.Test == nil {
		t.Fatal(r.Test, err)
	}
	return r.Test.Winner
}

// proved has verify find nothing wrong with a run.
func proved(t testing.TB, db *pgtest.DB, run string) {
	t.Helper()
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 3)
	if err != nil || len(p.Findings) > 0 {
		t.Errorf("verify: %v %+v", err, p.Findings)
	}
	want(t, "violations", pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(v.invariant || ': ' || v.detail, '; '), '') from deed.verify_campaigns() v`), "")
}

// got is which variants how many members have in how many deliveries.
func got(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(name || ' ' || n || ' of ' || people, ', ' order by name), '')
		from (select payload ->> 'variant' as name, count(*) as n, count(distinct contact_id) as people from deed.channel_outbox where run_id = $1::text::uuid group by 1) v`, run)
}

// Of whatever order and however often a run's jobs are expanded, nobody gets two variants: the key holds the
// asset, and each has the variant of the cell that they are in, or the winner.
func TestContract_C4_NobodyGetsTwoVariants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 1500, campaign.ByPerson))
	want(t, "jobs", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(from_n || '-' || upto_n || ' ' || part, ', ' order by from_n, part desc) || ': ' || sum(members) from deed.job_queue`),
		"1-1000 test, 1-1000 rest, 1001-1500 test, 1001-1500 rest: 1500")
	expandAll(t, db)
	test := got(t, db, run)
	var a, b, people int
	if _, err := fmt.Sscanf(test, "A %d of %d, B %d of %d", &a, &people, &b, &people); err != nil || a < 200 || a > 400 || b < 200 || b > 400 {
		t.Fatalf("the cells have %q: want about 300 in each", test)
	}
	if decided, err := campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "B", audit.Act{By: "ann", Reason: "it sells"}); err != nil || !decided {
		t.Fatal(decided, err)
	}
	expandAll(t, db)
	all := fmt.Sprintf("A %d of %[1]d, B %d of %[2]d", a, 1500-a)
	want(t, "the variants", got(t, db, run), all)
	proved(t, db, run)

	// Expanded again, the rest first, and as if the other one had won: nobody gets another.
	db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter table deed.job_queue disable trigger user; alter table deed.campaign_runs disable trigger user;
		update deed.campaign_runs set winner = 'A';
		update deed.job_queue set expanded_at = null, claim = 7, claimed_by = 'w', lease_until = now() + interval '1 minute' where run_id = '%s'`, run))
	db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, 7, 'w') from (select o.id from deed.job_queue o where o.run_id = $1::text::uuid order by o.part, o.from_n desc) j`, run)
	want(t, "the variants, expanded again", got(t, db, run), all)
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 3)
	want(t, "found where the winner was changed", fmt.Sprint(p.Found["other variant"], err), fmt.Sprint(1500-a-b, nil))
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set winner = 'B'; alter table deed.campaign_runs enable trigger user; alter table deed.job_queue enable trigger user`)
	if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.campaign_runs set winner = 'A'`); sqlState(err) != "DDCON" {
		t.Errorf("the winner was changed: %v", err)
	}
}

// The cells are the request's: the same one makes the same run, and one that was taken back makes the same cells
// again; another one makes others.
func TestContract_C1_CellsAreFixedAtDeploy(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	req := tested(t, db, 300, campaign.ByPerson)
	cells := func(db deed.DB, run string) string {
		list, err := campaign.Members(t.Context(), db, run, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for _, m := range list {
			text += m.Variant + "."
		}
		return text
	}
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := campaign.Deploy(t.Context(), tx, campaign.Scope{}, req)
	if err != nil {
		t.Fatal(err)
	}
	first := cells(tx, d.Run)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	run := deploy(t, db, req)
	want(t, "the cells of a deployment that was taken back", cells(app, run), first)
	want(t, "the run of the same request", deploy(t, db, req), run)
	req.ID = "2"
	if cells(app, deploy(t, db, req)) == first {
		t.Error("another request divides people alike")
	}
	req.ID, req.Test = "3", nil
	run = deploy(t, db, req)
	expandAll(t, db)
	if all := cells(app, run); strings.Count(all, "A") < 100 || strings.Count(all, "A")+strings.Count(all, "B") != 300 {
		t.Errorf("without a test: %s", all)
	}
	proved(t, db, run)
}

// However many decide at once, persons and relays, one winner is written, and the rest gets that.
func TestContract_C1_TwoWinnersAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	anHourAgo(t, db)
	var deciding sync.WaitGroup
	begin := make(chan struct{})
	results := make(chan string, 6)
	for i := range 4 {
		deciding.Go(func() {
			<-begin
			decided, err := campaign.Winner(context.Background(), db.Pool(pgtest.App), campaign.Scope{}, run, []string{"A", "B"}[i%2], audit.Act{By: "ann"})
			if err != nil && deed.CodeOf(err) != deed.Conflict {
				t.Error(err)
			}
			results <- fmt.Sprint(decided)
		})
	}
	for range 2 {
		deciding.Go(func() {
			<-begin
			var n int
			if err := db.Pool(pgtest.Worker).QueryRow(context.Background(), `select deed.decide_winners(10, 'w')`).Scan(&n); err != nil {
				t.Error(err)
			}
			results <- fmt.Sprint(n == 1)
		})
	}
	close(begin)
	deciding.Wait()
	close(results)
	n := 0
	for r := range results {
		if r == "true" {
			n++
		}
	}
	want(t, "those who have decided", n, 1)
	want(t, "in the audit log", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_audit_log where action = 'decide'`), 1)
	winner := winnerOf(t, db, run)
	expandAll(t, db)
	want(t, "those of the rest with another one", pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*) from deed.channel_outbox c join deed.job_queue j on j.id = c.job_id where j.part = 'rest' and c.payload ->> 'variant' <> $1`, winner), 0)
	proved(t, db, run)
}

// Who decides while another one's decision is not committed waits for it, and is refused then; a relay leaves it.
func TestContract_C1_ASecondWinnerWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	anHourAgo(t, db)
	tx, err := app.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if decided, err := campaign.Winner(t.Context(), tx, campaign.Scope{}, run, "B", audit.Act{}); err != nil || !decided {
		t.Fatal(decided, err)
	}
	want(t, "decided by a relay meanwhile", decide(t, db), 0)
	second := make(chan error, 1)
	go func() {
		_, err := campaign.Winner(context.Background(), app, campaign.Scope{}, run, "A", audit.Act{})
		second <- err
	}()
	waitFor(t, "the second one to wait", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks l where not l.granted and l.pid in (select a.pid from pg_stat_activity a where a.datname = current_database()))`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-second; deed.CodeOf(err) != deed.Conflict {
		t.Errorf("the second one: %v", err)
	}
	want(t, "the winner", winnerOf(t, db, run), "B")
}

// What one relay has decided before it was killed the next one expands, whatever is said and clicked meanwhile.
func TestContract_C5_KilledBetweenDecisionAndExpansion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	clicked(t, db, "clicked_at", "B", 3)
	anHourAgo(t, db)
	want(t, "decided", decide(t, db), 1) // and it is gone
	clicked(t, db, "clicked_at", "A", 30)
	anHourAgo(t, db)
	want(t, "decided again", decide(t, db), 0)
	if _, err := campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "A", audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("another winner: %v", err)
	}
	if again, err := campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "B", audit.Act{}); again || err != nil {
		t.Errorf("the same winner: %v %v", again, err)
	}
	expandAll(t, db)
	want(t, "the rest", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(distinct c.payload ->> 'variant', ', ') from deed.channel_outbox c join deed.job_queue j on j.id = c.job_id where j.part = 'rest'`), "B")
	endAll(t, db, "true", "sent", "")
	rollUp(t, db)
	r, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), run)
	if err != nil || len(r.Results) != 3 || r.Status != campaign.Completed {
		t.Fatalf("%v %s %+v", err, r.Status, r.Results)
	}
	want(t, "the parts", fmt.Sprint(r.Results[0].Name, r.Results[0].Part, r.Results[1].Name, r.Results[1].Part, r.Results[2].Name, r.Results[2].Part), "AtestBtestBrest")
	want(t, "clicks", fmt.Sprint(r.Results[0].Clicked > 3, r.Results[1].Clicked, r.Results[0].Members+r.Results[1].Members+r.Results[2].Members), "true 3 60")
	proved(t, db, run)
}

// What decides: clicks, complaints, of equal ones and without any data the first by name; and nothing
// before its time, nor while somebody of the test waits for their call; a doubt holds up nobody.
func TestContract_C3_WhatDecidesATest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by               campaign.By
		ends             map[string]string // of variants; sent if it is not said
		clicks, displeas map[string]int
		winner           string
	}{
		// The cells' sizes go by chance, and the shares with them: one has none.
		"clicks":         {by: campaign.ByClicks, clicks: map[string]int{"B": 3}, winner: "B"},
		"complaints":     {by: campaign.ByComplaints, clicks: map[string]int{"A": 3}, displeas: map[string]int{"A": 2}, winner: "B"},
		"equal":          {by: campaign.ByComplaints, winner: "A"},
		"nothing is out": {by: campaign.ByClicks, ends: map[string]string{"A": "failed", "B": "failed"}, winner: "A"},
		"one is out":     {by: campaign.ByComplaints, ends: map[string]string{"A": "failed"}, displeas: map[string]int{"B": 1}, winner: "B"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := deploy(t, db, tested(t, db, 60, c.by))
			expandAll(t, db)
			anHourAgo(t, db)
			want(t, "decided before anybody was called", decide(t, db), 0)
			doubt := `id = (select id from deed.channel_outbox where status = 'queued' and payload ->> 'variant' = 'A' order by id limit 1)`
			for _, v := range []string{"A", "B"} {
				to := c.ends[v]
				if to == "" {
					to = "sent"
				}
				endAll(t, db, `payload ->> 'variant' = '`+v+`' and not coalesce(`+doubt+`, false)`, to, "")
			}
			for v, n := range c.clicks {
				clicked(t, db, "clicked_at", v, n)
			}
			for v, n := range c.displeas {
				db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback as f (delivery_id, tenant_id, complained_at)
					select c.id, c.tenant_id, now() from deed.channel_outbox c where c.payload ->> 'variant' = $1 and c.status = 'sent' order by c.id limit $2
					on conflict (delivery_id) do update set complained_at = now()`, v, n)
			}
			anHourAgo(t, db)
			want(t, "decided while one waits for its call", decide(t, db), 0)
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'sending', request = payload::text::bytea, claim = 1, attempts = 1, first_called_at = now(), called_at = now() where status = 'queued'`)
			db.Exec(t, pgtest.Owner, `update deed.campaign_runs set decide_at = now() - interval '1 second'`)
			want(t, "decided before its time", decide(t, db), 0)
			anHourAgo(t, db)
			tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `insert into deed.tenant_removals (tenant_id, name, actor, reason, made_by, taken) select r.tenant_id, 'x', 'ann', 'x', pg_current_xact_id(), '{}' from deed.campaign_runs r`); err != nil {
				t.Fatal(err)
			}
			want(t, "decided of a tenant that was removed", pgtest.One[int](t, tx, `select deed.decide_winners(10, 'w')`), 0)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			want(t, "decided", decide(t, db), 1)
			want(t, "the winner", winnerOf(t, db, run), c.winner)
		})
	}
}

// A test that cannot be decided holds up no other run: its jobs are expanded, and it ends. It is decided when it can be.
func TestContract_C3_ATestThatIsNotDecidedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	anHourAgo(t, db)
	as := pgtest.One[string](t, owner, `select pg_get_functiondef('deed.count_variants(uuid)'::regprocedure)`)
	db.Exec(t, pgtest.Owner, `create or replace function deed.count_variants(in p_run uuid, out winner text, out details jsonb) language plpgsql stable
		as $$ begin raise exception 'it cannot be counted'; end $$`)
	req := request(t, db, 2500)
	req.ID, req.Content = "2", put(t, db, "spring", spring).Content
	other := deploy(t, db, req)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w, ended := worker(t, db), make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	waitFor(t, "the other run to be expanded", func() bool { return deliveriesOf(t, db, other) == 2500 })
	endAll(t, db, "run_id = '"+other+"'", "sent", "")
	waitFor(t, "the other run to end", func() bool {
		return states(t, db, other) == "completed: completed 1000/0/0/0/0, completed 1000/0/0/0/0, completed 500/0/0/0/0"
	})
	want(t, "the winner", winnerOf(t, db, run), "")
	db.Exec(t, pgtest.Owner, as)
	waitFor(t, "the test to be decided", func() bool { return winnerOf(t, db, run) != "" })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A run that is cancelled before its test is decided has a row for everybody, and ends; what a retry brings to
// those is asked for then.
func TestContract_C4_CancelledBeforeTheWinner(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	first := got(t, db, run)
	if _, err := campaign.Cancel(t.Context(), app, campaign.Scope{}, run, audit.Act{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	anHourAgo(t, db)
	want(t, "decided", decide(t, db), 0)
	if _, err := campaign.Winner(t.Context(), app, campaign.Scope{}, run, "A", audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a winner of what is being cancelled: %v", err)
	}
	expandAll(t, db)
	rollUp(t, db)
	r, err := campaign.Show(t.Context(), app, run)
	if err != nil || r.Status != campaign.Partial || r.Progress.Sent+r.Progress.Missed != 60 || r.Progress.Missed < 10 {
		t.Fatalf("%v %s %+v", err, r.Status, r.Progress)
	}
	proved(t, db, run)
	if _, err := campaign.Retry(t.Context(), app, campaign.Scope{}, run, campaign.RetryOptions{Missed: true}, audit.Act{}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("a retry without a winner: %v", err)
	}
	if decided, err := campaign.Winner(t.Context(), app, campaign.Scope{}, run, "B", audit.Act{}); err != nil || !decided {
		t.Fatal(decided, err)
	}
	again, err := campaign.Retry(t.Context(), app, campaign.Scope{}, run, campaign.RetryOptions{Missed: true}, audit.Act{})
	if err != nil || again.Members != r.Progress.Missed {
		t.Fatal(again, err)
	}
	expandAll(t, db)
	want(t, "what the retry brings", got(t, db, again.Run), fmt.Sprintf("B %d of %[1]d", again.Members))
	if again := got(t, db, run); !strings.HasPrefix(again, strings.Split(first, ",")[0]) {
		t.Errorf("the run has changed: %s, it had %s", again, first)
	}
	proved(t, db, again.Run)
}

// Whose delivery failed gets the same variant of a retry, in a test's cell and without one.
func TestContract_C7_RetriedByTheSameVariant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 60, campaign.ByPerson))
	if _, err := campaign.Winner(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, "A", audit.Act{}); err != nil {
		t.Fatal(err)
	}
	expandAll(t, db)
	db.Broken() // no ledger has called anybody
	endAll(t, db, "true", "dead", "")
	rollUp(t, db)
	again, err := campaign.Retry(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, campaign.RetryOptions{}, audit.Act{})
	if err != nil {
		t.Fatal(err)
	}
	expandAll(t, db)
	want(t, "members with another variant", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select count(*) || ' of ' || count(*) filter (where a.payload ->> 'variant' <> b.payload ->> 'variant')
		from deed.channel_outbox a join deed.channel_outbox b on b.contact_id = a.contact_id where a.run_id = $1::text::uuid and b.run_id = $2::text::uuid`, run, again.Run), "60 of 0")
	proved(t, db, again.Run)
}

// What a test waits for is no lateness of the rest; but a decision that comes late, as of a copy that is
// restored, brings nobody last week's.
func TestContract_C4_TheRestExpiresAfterItsOwnTime(t *testing.T) {
	t.Parallel()
	for late, outcome := range map[string]string{"90 minutes": "queued", "3 hours": "expired"} {
		t.Run(late, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := tested(t, db, 60, campaign.ByClicks)
			req.ExpiresAfter = time.Hour
			run := deploy(t, db, req)
			expandAll(t, db)
			endAll(t, db, "true", "sent", "")
			db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox disable trigger user; alter table deed.campaign_runs disable trigger user;
				update deed.channel_outbox set first_called_at = first_called_at - interval '`+late+`';
				update deed.campaign_runs set scheduled_for = scheduled_for - interval '`+late+`', expires_at = expires_at - interval '`+late+`', decide_at = now() - interval '1 second';
				alter table deed.channel_outbox enable trigger user; alter table deed.campaign_runs enable trigger user`)
			want(t, "decided", decide(t, db), 1)
			expandAll(t, db)
			want(t, "the rest", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(distinct coalesce(c.skip_reason, c.status), ', ') from deed.channel_outbox c join deed.job_queue j on j.id = c.job_id where j.part = 'rest' and c.run_id = $1::text::uuid`, run), outcome)
			db.Broken() // its keys were made of another scheduled_for
		})
	}
}

// What keeps a test from being deployed is named.
func TestContract_C8_Variants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := tested(t, db, 3, campaign.ByClicks)
	for problem, change := range map[string]func(*campaign.Request){
		"no_clicks: 'fake' does not report": func(*campaign.Request) {
			db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{complained}'`)
		},
		"no_complaints: 'fake' does not report": func(r *campaign.Request) {
			r.Test.By = campaign.ByComplaints
			db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{}'`)
		},
		"no_unsubscribe_url: variant B: ": func(r *campaign.Request) {
			r.Variants["B"] = put(t, db, "spring", campaign.Content{Asset: "spring", Variant: "B", Subject: "x", Text: "y"}).Content
		},
		"variants are of one asset": func(r *campaign.Request) {
			r.Variants["B"] = put(t, db, "spring", campaign.Content{Asset: "other", Variant: "B", Subject: "x", Text: "y"}).Content
		},
		"the content of variant 'C' is of":     func(r *campaign.Request) { r.Variants["C"] = r.Variants["B"] },
		"variants are an object of two to ten": func(r *campaign.Request) { delete(r.Variants, "B") },
		"the share of a test":                  func(r *campaign.Request) { r.Test.Share = 1 },
		"wait is how long":                     func(r *campaign.Request) { r.Test.Wait = 0 },
		"the wait of a test must be":           func(r *campaign.Request) { r.Test.Wait = time.Second },
		"a test is decided by clicks":          func(r *campaign.Request) { r.Test.By = "votes" },
		"cannot begin at each one's own time":  func(r *campaign.Request) { r.LocalTime = "2026-12-20T09:00" },
		"one content or variants":              func(r *campaign.Request) { r.Content = r.Variants["A"] },
	} {
		req, test := good, *good.Test
		req.Test, req.Variants = &test, map[string]string{"A": good.Variants["A"], "B": good.Variants["B"]}
		change(&req)
		if _, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
		db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{complained,clicked}'`)
	}
	// No relay would ever decide it.
	if said := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(deed.variants_problem('{"variants": {"A": "1", "B": "2"}, "test": {"share": 0.1, "by": "clicks", "wait": null}}'), '')`); !strings.Contains(said, "the wait of a test must be") {
		t.Errorf("a wait that is null: %q", said)
	}
}

// as is a template that says its source.
type as string

func (s as) Render(context.Context, map[string]any) (string, error) { return string(s), nil }

// What somebody gets is their variant's.
func TestCompose_ByVariant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 3, campaign.ByPerson))
	c := campaign.NewComposer(db.Pool(pgtest.Worker), func(_ campaign.Kind, source string, _ []string) (campaign.Template, error) { return as(source), nil })
	for _, name := range []string{"A", "B", "A"} {
		made, err := c.Compose(t.Context(), delivery.Draft{Run: run, Payload: json.RawMessage(`{"contact": {}, "variant": "` + name + `"}`), Unsubscribe: "https://example.com/u/x"})
		var e delivery.EmailPayload
		if err == nil {
			err = json.Unmarshal(made, &e)
		}
		want(t, "the subject", e.Subject, name+" is here")
		want(t, "the error", err, nil)
	}
	if _, err := c.Compose(t.Context(), delivery.Draft{Run: run, Payload: json.RawMessage(`{"contact": {}}`), Unsubscribe: "x"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("without a variant: %v", err)
	}
}

// Templates that cannot be read are read once, however many deliveries there are: a run's content never changes.
func TestCompose_WhatCannotBeReadIsReadOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 3, campaign.ByPerson))
	read := 0
	c := campaign.NewComposer(db.Pool(pgtest.Worker), func(campaign.Kind, string, []string) (campaign.Template, error) {
		read++
		return nil, errors.New("no template")
	})
	first := 0
	for range 3 {
		_, err := c.Compose(t.Context(), delivery.Draft{Run: run, Payload: json.RawMessage(`{"contact": {}, "variant": "A"}`), Unsubscribe: "https://example.com/u/x"})
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "no template") {
			t.Errorf("composed: %v", err)
		}
		first = cmp.Or(first, read)
	}
	want(t, "templates that were read", read, first)
}
