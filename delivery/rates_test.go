package delivery_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// took puts deliveries that provider took, ago and until ago + n × every, one after another,
// of domains a.example to the tenth. Every tenth has bounced, every hundredth was complained about.
func took(t testing.TB, db *pgtest.DB, provider string, n int, ago, every string) {
	t.Helper()
	db.ExecSteps(t, pgtest.Owner, n, fmt.Sprintf(`
		with quiet as (select set_config('session_replication_role', 'replica', true)),
		made as (
		  insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, status, created_at, updated_at, finished_at, sent_at)
		  select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('%[1]s' || n, 'UTF8')), 'email', '%[1]s', 'x', 'u@' || n %% 10 || '.example', '{}', 'sent', w.at, w.at, w.at, w.at
		  from quiet cross join generate_series($1::int, $2::int) n cross join lateral (select now() - interval '%[2]s' - n * interval '%[3]s' as at) w
		  returning id, tenant_id, finished_at, recipient
		)
		insert into deed.delivery_feedback (delivery_id, tenant_id, delivered_at, bounced_at, complained_at)
		select m.id, m.tenant_id, m.finished_at, case when m.recipient = 'u@3.example' then m.finished_at end, case when m.recipient = 'u@7.example' then m.finished_at end from made m`, provider, ago, every))
	db.Broken() // nothing recorded how they were sent
}

// Rates are of what was taken in the last hour and day, by provider, and by the domains to
// which most went; what was refused, went to the sandbox or is older is in none.
func TestRates(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	took(t, db, "mail", 100, "1 minute", "1 second")
	took(t, db, "text", 100, "2 hours", "1 second")
	took(t, db, "old", 10, "25 hours", "1 second")
	took(t, db, "tried", 10, "1 minute", "1 second")
	took(t, db, "full", 100, "3 hours", "1 second")
	db.Exec(t, pgtest.Owner, `
		update deed.delivery_feedback f set bounce = case when c.provider = 'full' then 'soft' else 'hard' end, bounce_since = f.bounced_at
		from deed.channel_outbox c where c.id = f.delivery_id and f.bounced_at is not null and c.provider in ('full', 'mail')`)
	for _, set := range []string{
		`sandbox = true from quiet where provider = 'tried' and recipient <> 'u@3.example'`,
		`status = 'failed', sent_at = null, last_error = 'refused' from quiet where provider = 'tried' and not sandbox`,
		`recipient = 'u@5.example' from quiet where provider = 'mail' and recipient in ('u@1.example', 'u@2.example')`,
	} {
		db.Exec(t, pgtest.Owner, `with quiet as (select set_config('session_replication_role', 'replica', true)) update deed.channel_outbox set `+set)
	}
	l := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	rates := func(provider string, domains, each int) []delivery.Rates {
		t.Helper()
		list, err := l.Rates(t.Context(), provider, domains, each)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	all := delivery.Taken{Accepted: 100, Delivered: 100, Bounced: 10, Complained: 10}
	soft := delivery.Taken{Accepted: 100, Delivered: 100, Complained: 10}
	want := []delivery.Rates{{Provider: "full", Whole: true, Day: soft}, {Provider: "mail", Whole: true, Hour: all, Day: all}, {Provider: "text", Whole: true, Day: all}}
	if diff := cmp.Diff(want, rates("", 0, delivery.RatesQuick)); diff != "" {
		t.Error(diff)
	}
	five, zero, others := delivery.Taken{Accepted: 30, Delivered: 30}, delivery.Taken{Accepted: 10, Delivered: 10}, delivery.Taken{Accepted: 60, Delivered: 60, Bounced: 10, Complained: 10}
	want = []delivery.Rates{
		{Provider: "mail", Whole: true, Hour: others, Day: others},
		{Provider: "mail", Domain: "5.example", Whole: true, Hour: five, Day: five},
		{Provider: "mail", Domain: "0.example", Whole: true, Hour: zero, Day: zero},
	}
	if diff := cmp.Diff(want, rates("mail", 2, delivery.RatesQuick)); diff != "" {
		t.Error(diff)
	}
	// An hour of which there is more than is read says so; the other hours are told.
	for _, r := range rates("", 0, 110) {
		if r.Whole || r.Day.Accepted == 0 {
			t.Errorf("%+v", r)
		}
	}
	if _, err := l.Rates(t.Context(), "", -1, 1); err == nil {
		t.Error("-1 domains are taken")
	}
}

// Rates read a bounded number of rows, however much has ended, with tables that were never
// analysed and autovacuum off.
func TestPlan_Rates(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	n := 200_000
	if testing.Short() {
		n = 40_000
	}
	took(t, db, "mail", n, "1 second", fmt.Sprintf("%d milliseconds", 24*3600*1000/n))
	conn := db.Conn(t, pgtest.Admin)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if _, err := conn.Exec(t.Context(), "set plan_cache_mode = "+mode); err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{`select * from deed.look_at_rates(100)`, `select * from deed.look_at_rates(100, 20)`, `select * from deed.look_at_rates(100, 20, 'mail')`} {
			pgtest.Measure(t, conn, pgtest.Any, q)
			// A row and its feedback, of 24 hours, are up to six pages each.
			const most = 24 * 100 * 7
			if c := pgtest.Measure(t, conn, most, q); c.Buffers > most || c.Rows == 0 {
				t.Errorf("%s: %s: %d buffers, %d rows", mode, q, c.Buffers, c.Rows)
			}
		}
	}
}
