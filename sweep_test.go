package deed_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed"
	draining "github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/pgtest"
)

// Claims go on while a look over what is finished takes longer than a statement
// may: what comes is delivered at once, and what lies before, among and after the
// finished is found.
func TestClaim_GoesOnWhereASweepOutlastsTheDeadline(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	var list []deed.Message
	for i := range 60 {
		list = append(list, keyed("", i))
	}
	publish(t, db, list...)
	// Of one moment, as the test may take minutes.
	at := pgtest.One[string](t, db.Pool(pgtest.Owner), `select quote_literal(clock_timestamp()) || '::timestamptz'`)
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = `+at+` - interval '20 minutes' - interval '1 minute' * (id % 3) * 10`)
	// As if before, after and among them there were so many finished ones, kept by an
	// old snapshot, that no claim gets over them.
	db.Exec(t, pgtest.Owner, `alter function deed.claim(text, text, int, text, uuid, interval, timestamptz) rename to claim_swiftly`)
	db.Exec(t, pgtest.Owner, `
		create function deed.claim(
		  p_topic text, p_worker text, p_limit int default 100, p_subscription text default 'default',
		  p_tenant uuid default null, p_lease interval default null, p_floor timestamptz default '-infinity'
		) returns table (
		  subscription int, id bigint, message_id uuid, claim bigint, attempts int, lost_claims int,
		  tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, payload bytea,
		  created_at timestamptz, ord timestamptz
		) language plpgsql security definer as $$
		begin
		  perform pg_sleep(60)
		  from (values (35, 31), (29, 25), (15, 10)) m(low, high)
		  cross join lateral (select `+at+` - m.low * interval '1 minute' as low, `+at+` - m.high * interval '1 minute' as high) v
		  where p_floor < v.high and p_limit > (
		    select count(*) from deed.pending p
		    where p.ord >= p_floor and p.ord < v.low and (p.lease_until is null or p.lease_until < now())
		  );
		  return query select * from deed.claim_swiftly(p_topic, p_worker, p_limit, p_subscription, p_tenant, p_lease, p_floor);
		end $$`)
	sink := &recorder{}
	run(t, db, deed.Options{
		Deadline:      2 * time.Second,
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: sink}},
	})
	publish(t, db, keyed("", 100))
	eventually(t, "what lay there and what came", func() bool { n, _ := sink.counts(); return n == 61 })
}

// What is scheduled further ahead than a time.Duration reaches is not due now: an idle queue would
// ask again and again.
func TestClaim_ScheduledForTheYear9999(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := draining.New(draining.Options{Topic: "orders", Name: "s"})
	s.ID, s.DB = subscribe(t, db, "orders", "s"), db.Pool(pgtest.Worker)
	m := message("orders", 1)
	m.ProcessAfter = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	publish(t, db, m)
	if in, ok, err := s.NextDue(t.Context()); in < time.Minute || in > 24*time.Hour || !ok || err != nil {
		t.Errorf("it is due in %s, %t, %v", in, ok, err)
	}
}
