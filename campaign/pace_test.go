package campaign_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// claimed are how many of what a claim of up to n takes is of a run, and how many is not. The
// leases outlast any test: what is claimed stays so.
func claimed(t testing.TB, db *pgtest.DB, run string, n int) (of, others int) {
	t.Helper()
	err := db.Pool(pgtest.Worker).QueryRow(context.Background(), `
		select count(*) filter (where c.run_id = $1::text::uuid), count(*) filter (where c.run_id is distinct from $1::text::uuid)
		from deed.claim_deliveries('fake', 'w', $2, '1 hour', p_runs => true) c`, run, n).Scan(&of, &others)
	if err != nil {
		t.Fatal(err)
	}
	return of, others
}

// passes has time go by for the rate of a run.
func passes(t testing.TB, db *pgtest.DB, run, how string) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.rate_limits set at = at - $2::text::interval where run_id = $1::text::uuid`, run, how)
}

// tokens has a run's rate have so many, until something is taken.
func tokens(t testing.TB, db *pgtest.DB, run string, n float64) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.rate_limits set tokens = $2, at = now() + interval '1 hour' where run_id = $1::text::uuid`, run, n)
}

// A run goes as fast as it says, whoever claims and however often; what else its tenant has
// goes as if it was not there, and pays nothing for it.
func TestRate_OfARun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	req := request(t, db, 60)
	req.Rate = "300/min"
	run := deploy(t, db, req)
	req.ID, req.Rate = "2", ""
	deploy(t, db, req)
	expandAll(t, db)
	db.Exec(t, pgtest.App, `select deed.reserve('{email}', '{fake}', '{reset@d.example}', '{"{}"}', array[sha256('x')])`)
	const register = `select deed.register_provider('fake', 'fake', 'domain', null, false, '{"",d1.example}', '{1000,1000}', '{1000,1000}', 'w')`
	db.Exec(t, pgtest.Worker, register)
	db.Exec(t, pgtest.Worker, `select deed.register_provider('fake', 'fake', 'domain', null, false, '{""}', '{1000}', '{1000}', 'w')`) // a limit is gone, and the run's stays

	want(t, "tokens at first", pgtest.One[float64](t, owner, `select tokens from deed.rate_limits where run_id = $1::text::uuid`, run), 1)
	tokens(t, db, run, 1)
	of, others := claimed(t, db, run, 1000)
	want(t, "at first, of the run", of, 1)
	want(t, "and of what else there is", others, 61)
	want(t, "what the provider's limit has paid for", pgtest.One[bool](t, owner, `select tokens between 937 and 939 from deed.rate_limits where provider = 'fake' and lane = ''`), true)
	tokens(t, db, run, 0.5)
	of, others = claimed(t, db, run, 1000)
	want(t, "at once again", of+others, 0)
	want(t, "the wait", pgtest.One[bool](t, db.Pool(pgtest.Worker), `select (c.walk ->> 'wait')::float8 between 0.09 and 0.11 from deed.claim_deliveries('fake', 'w', 1000, '1 minute', p_places => '{}', p_runs => true) c`), true)
	tokens(t, db, run, 2.9)
	of, _ = claimed(t, db, run, 1000)
	want(t, "of nearly three", of, 2)
	passes(t, db, run, "1 hour") // no more than a second's are saved up
	of, _ = claimed(t, db, run, 1000)
	want(t, "after an hour", of, 5)
	want(t, "its time", pgtest.One[bool](t, owner, `select abs(spent - (select count(*) from deed.channel_outbox where run_id = b.run_id and claim is not null) / 5.0) < 0.001 from deed.rate_limits b where run_id = $1::text::uuid`, run), true)
}

// Who is paying from a run's rate is not waited for.
func TestRate_NobodyWaits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	req := request(t, db, 20)
	req.Rate = "10/s"
	run := deploy(t, db, req)
	expandAll(t, db)
	tokens(t, db, run, 10)
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select from deed.rate_limits where run_id is not null for update`); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `select deed.reserve('{email}', '{fake}', '{reset@d.example}', '{"{}"}', array[sha256('x')])`)
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var of, others int
	if err := db.Pool(pgtest.Worker).QueryRow(bounded, `select count(c.run_id), count(*) - count(c.run_id) from deed.claim_deliveries('fake', 'w', 100, '1 minute', p_runs => true) c`).Scan(&of, &others); err != nil {
		t.Fatal(err)
	}
	want(t, "of the run beside who pays", of, 0)
	want(t, "of others", others, 1)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	of, _ = claimed(t, db, run, 100)
	want(t, "afterwards", of, 10)
}

// More runs that are held up by their rates than a claim looks at keep nothing of their tenant
// waiting, and cost no look after the other.
func TestRate_ManyRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 2)
	req.Rate = "1/h"
	for range 30 {
		req.ID += "x"
		deploy(t, db, req)
	}
	req.ID, req.Rate = "fast", ""
	run := deploy(t, db, req)
	expandAll(t, db)
	for range 4 {
		claimed(t, db, run, 1000)
	}
	want(t, "claimed of each", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(distinct n::text, ',') from (select count(*) as n from deed.channel_outbox where claim is not null and run_id <> $1::text::uuid group by run_id) c`, run), "1")
	want(t, "claimed of the other", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where claim is not null and run_id = $1::text::uuid`, run), 2)
	want(t, "the wait", pgtest.One[bool](t, db.Pool(pgtest.Worker), `select (c.walk ->> 'wait')::float8 > 3000 from deed.claim_deliveries('fake', 'w', 1000, '1 minute', p_places => '{}', p_runs => true) c`), true)
}

// A ramp's rates follow each other by the time in which the run goes.
func TestRate_Ramp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	for options, steps := range map[string]string{
		`{"rate": "10/s"}`: "{0,10}",
		`{"rate": "10/s", "ramp": {"from": "1/s", "every": "1h"}}`:                                             "{0,1,3600,2,7200,4,10800,8,14400,10}",
		`{"rate": "8/s", "ramp": {"from": "1/s", "every": "1h"}}`:                                              "{0,1,3600,2,7200,4,10800,8}",
		`{"rate": "1/s", "ramp": {"from": "2/s", "every": "1h"}}`:                                              "{0,2,3600,1}",
		`{"rate": "3600/h", "ramp": [{"rate": "6/min", "for": "1 minute"}, {"rate": "0.5/s", "for": "90 s"}]}`: "{0,0.1,60,0.5,150,1}",
		`{"rate": null, "ramp": {"from": "1/s", "every": "1h"}}`:                                               "a ramp leads up to a rate, and there is none",
	} {
		want(t, options, pgtest.One[string](t, owner, `select coalesce(problem, ramp::text) from deed.pace_of($1::text::jsonb)`, options), steps)
	}
	req := request(t, db, 60)
	req.Rate, req.Ramp = "20/s", &campaign.Ramp{From: "2/s", Every: 5 * time.Second}
	run := deploy(t, db, req)
	expandAll(t, db)
	rate := func() float64 {
		return pgtest.One[float64](t, owner, `select rate from deed.rate_limits where run_id = $1::text::uuid`, run)
	}
	want(t, "at first", rate(), 2)
	for range 9 {
		tokens(t, db, run, 1)
		claimed(t, db, run, 10)
	}
	passes(t, db, run, "10 hours") // in which nothing goes
	want(t, "after 9 of 10", rate(), 2)
	claimed(t, db, run, 1)
	want(t, "after 10, which take 5 s", rate(), 4)
	for range 5 {
		tokens(t, db, run, 4)
		claimed(t, db, run, 10)
	}
	want(t, "after 20 more, which take 5 s", rate(), 8)
	s, err := campaign.Show(t.Context(), db.Pool(pgtest.App), run)
	if err != nil || len(s.Waits) != 1 || s.Waits[0].Why != "rate" || s.Waits[0].Rate != 8 || s.Rate != "20/s" {
		t.Errorf("shown: %+v %+v, %v", s.Waits, s.Window, err)
	}
}

// The time in which its rate held a run up does not count for when it expires; any other does.
func TestRate_ExpiresLater(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 20)
	req.Rate, req.ExpiresAfter = "1/min", 2*time.Minute
	run := deploy(t, db, req)
	expandAll(t, db)
	ago := func(how string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger campaign_runs_transition`)
		db.Exec(t, pgtest.Owner, `update deed.campaign_runs set scheduled_for = scheduled_for - $1::text::interval, expires_at = expires_at - $1::text::interval`, how)
		db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger campaign_runs_transition`)
		passes(t, db, run, how)
	}
	attempt := `with c as (select id, claim from deed.channel_outbox where claim is not null and status = 'queued')
		select a.status || coalesce(' ' || a.why, '') from c, deed.attempt(array[c.id], array[c.claim], array['x'::bytea], null, '1 minute', 'w') a`
	for i := range 5 { // a minute after the other
		of, _ := claimed(t, db, run, 1000)
		want(t, "claimed", of, 1)
		want(t, "the attempt", pgtest.One[string](t, db.Pool(pgtest.Worker), attempt), "sending")
		if i == 4 {
			break
		}
		ago("1 minute")
		want(t, "swept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 0)
	}
	accept(t, db)
	ago("4 minutes") // the relays were down
	of, _ := claimed(t, db, run, 1)
	want(t, "claimed late", of, 1)
	want(t, "an attempt that comes late", pgtest.One[string](t, db.Pool(pgtest.Worker), attempt), "skipped expired")
	want(t, "swept late", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 14)
	db.Broken()
}

// Two relays do not take more together than the rate, also when they are started again: it is
// in the database.
func TestRate_HoldsAcrossRelays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 60)
	req.Rate = "30/s"
	run := deploy(t, db, req)
	expandAll(t, db)
	c := &counter{}
	serve(t, db, c, 2)
	waitFor(t, "half of them", func() bool { return c.calls.Load() >= 30 })
	serve(t, db, c, 2)
	waitFor(t, "the run to end", func() bool {
		rollUp(t, db)
		return states(t, db, run) == "completed: completed 60/0/0/0/0"
	})
	// One token is there at first; so the last was paid for that much later at the least.
	want(t, "it took its time", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select max(first_called_at) - min(r.created_at) >= interval '1.96 seconds' from deed.channel_outbox c join deed.campaign_runs r on r.id = c.run_id`), true)
	want(t, "calls", c.calls.Load(), 60)
	want(t, "limits of runs that have ended", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.rate_limits where run_id is not null`), 0)
}

// Nights of a run that has a rate count no more for when it expires than the time in which the rate held it up:
// not where its jobs are expanded, where it is swept, or at an attempt. What else kept it from
// going does.
func TestRate_NightsDoNotCount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate string
		busy time.Duration // of the 42 hours by day
		want string
	}{
		"by day its rate was all that held it up": {"1/h", 42 * time.Hour, "reserved queued, swept 0, attempted sending"},
		"relays were down for a while":            {"1/h", 17 * time.Hour, "reserved expired, swept 1, attempted expired"},
		"and for less":                            {"1/h", 19 * time.Hour, "reserved queued, swept 0, attempted sending"},
		"it has no rate":                          {"", 0, "reserved expired, swept 1, attempted expired"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
			req := zoned(t, db, "Etc/GMT-3")
			req.Rate = c.rate
			there := time.Now().UTC().Add(3 * time.Hour)
			req.QuietHours = there.Add(2*time.Hour).Format("15:04") + "-" + there.Add(12*time.Hour).Format("15:04")
			// It was deployed three days ago: ten hours of each are night.
			ago := func(run string) {
				t.Helper()
				db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger campaign_runs_transition`)
				db.Exec(t, pgtest.Owner, `update deed.campaign_runs set created_at = created_at - interval '72 hours', scheduled_for = scheduled_for - interval '72 hours', expires_at = expires_at - interval '72 hours', last_due = last_due - interval '72 hours' where id = $1::text::uuid`, run)
				db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger campaign_runs_transition`)
				db.Exec(t, pgtest.Owner, `update deed.rate_limits set spent = $2 where run_id = $1::text::uuid`, run, c.busy.Seconds())
			}
			ago(deploy(t, db, req))
			expandAll(t, db)
			got := "reserved " + pgtest.One[string](t, owner, `select coalesce(skip_reason, status) from deed.channel_outbox`)

			req.ID = "2"
			run := deploy(t, db, req)
			expandAll(t, db)
			ago(run)
			// Each of the two as if the other one had not looked.
			tx, err := worker.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			var swept int
			if err := tx.QueryRow(t.Context(), `select deed.sweep_runs(100, 'w')`).Scan(&swept); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			of, _ := claimed(t, db, run, 10)
			want(t, "claimed", of, 1)
			attempted := pgtest.One[string](t, worker, `
				select coalesce(a.why, a.status) from deed.channel_outbox c, deed.attempt(array[c.id], array[c.claim], array['x'::bytea], null, '1 minute', 'w') a where c.run_id = $1::text::uuid`, run)
			want(t, "three days later", fmt.Sprintf("%s, swept %d, attempted %s", got, swept, attempted), c.want)
		})
	}
}

// A night in which a run with a rate was paused does not make it expire later twice.
func TestRate_ANightOfAPauseCountsOnce(t *testing.T) {
	t.Parallel()
	for rate, hours := range map[string]int{"1/h": 14, "": 24} {
		t.Run("rate "+rate, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			app := db.Pool(pgtest.App)
			req := zoned(t, db, "Etc/GMT-3")
			req.Rate, req.QuietHours = rate, "22:00-08:00"
			run := deploy(t, db, req)
			if _, err := campaign.Pause(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
				t.Fatal(err)
			}
			db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set scheduled_for = now() - interval '24 hours', paused_at = now() - interval '24 hours'; alter table deed.campaign_runs enable trigger user`)
			const expires = `select expires_at from deed.campaign_runs`
			before := pgtest.One[time.Time](t, db.Pool(pgtest.Owner), expires)
			if err := campaign.Resume(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
				t.Fatal(err)
			}
			want(t, "hours by which it expires later", pgtest.One[int](t, db.Pool(pgtest.Owner), `select round(extract(epoch from expires_at - $1::timestamptz) / 3600)::int from deed.campaign_runs`, before), hours)
		})
	}
}
