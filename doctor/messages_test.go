package doctor_test

import (
	"slices"
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

func topicUnread(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.publish('forgotten', '{}') from generate_series(1, 3)`)
	find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "topic-unread", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = now() - interval '2 hours'`)
	says(t, find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "topic-unread", doctor.Warn, "forgotten"), "3 messages", "2h")
	// Nor is it forgotten when retention has moved them out of the log.
	db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = now() - interval '25 hours' where n = 0`)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`)
	db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = opened_at - interval '9 days' where opened_at is not null`)
	eventually(t, "they to be kept apart", func() bool {
		db.Exec(t, pgtest.Worker, `select deed.retention_step()`)
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`) == 3
	})
	says(t, find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "topic-unread", doctor.Warn, "forgotten"), "3 messages", "2h")
}

func subscriptionUnattended(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	const name = "subscription-unattended"
	look := func(level doctor.Level, subject string) doctor.Finding {
		t.Helper()
		return find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), name, level, subject)
	}
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('events', 'stream'), deed.subscribe('events', 'index')`)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'crm')`)
	db.Exec(t, pgtest.App, `select deed.publish(topic, '{}') from unnest('{orders,events}'::text[]) topic, generate_series(1, 3)`)
	look(doctor.OK, "") // nothing has been due for long
	// An hour later, in which nobody asked.
	hour := func() {
		t.Helper()
		db.Exec(t, pgtest.Owner, `update deed.attended set asked_at = asked_at - interval '1 hour'`)
		db.Exec(t, pgtest.Owner, `update deed.subscriptions set created_at = created_at - interval '1 hour'`)
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = now() - interval '2 hours'`)
	db.Exec(t, pgtest.Owner, `update deed.log set created_at = now() - interval '2 hours'`)
	look(doctor.OK, "") // and the subscriptions are new
	hour()
	says(t, look(doctor.Warn, "orders/crm"), "3 messages", "2h")
	says(t, look(doctor.Warn, "events/index"), "3 messages", "2h")

	// Whoever reads the stream, takes one of the queue's and ends it, or pauses.
	db.Exec(t, pgtest.Worker, `
		select from deed.subscriptions s, lateral deed.take_lanes(gen_random_uuid(), 'w', array[s.id], p_take => true, p_protocol => 2, p_leases => array[interval '1 day']) where s.topic = 'events'`)
	claimed := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim('orders', 'w', 1, 'crm')`)
	look(doctor.OK, "")
	db.Exec(t, pgtest.Worker, `
		select deed.finish(p.subscription, p.claim, array[p.id]) from deed.pending p where p.claim is not null`)
	look(doctor.OK, "")
	hour()
	says(t, look(doctor.Warn, "orders/crm"), "2 messages", "2h")
	fail := `select deed.fail(c.subscription, c.claim, array[c.id], array['no'], array[interval '1 hour']) from deed.claim('orders', 'w', 1, 'crm') c`
	db.Exec(t, pgtest.Worker, fail)
	look(doctor.OK, "") // it fails, but somebody works
	hour()
	says(t, look(doctor.Warn, "orders/crm"), "1 message is due", "2h") // the other one waits
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = now() - interval '2 hours', process_after = null`)
	db.Exec(t, pgtest.Owner, `update deed.subscriptions set max_attempts = 1`)
	db.Exec(t, pgtest.Worker, fail)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is not null`); n != 1 {
		t.Fatalf("%d are dead", n)
	}
	look(doctor.OK, "") // it has let one die
	hour()
	says(t, look(doctor.Warn, "orders/crm"), "1 message is due", "2h")
	db.Exec(t, pgtest.Worker, `
		select deed.report_pauses(gen_random_uuid(), 'w1', array[s.id], array['Status 503'], array[interval '20 minutes'])
		from deed.subscriptions s where s.topic = 'orders'`)
	look(doctor.OK, "")
	if claimed != 1 {
		t.Errorf("%d were claimed", claimed)
	}
}

func deadLettersOld(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 's', p_max_attempts => 1)`)
	db.Exec(t, pgtest.App, `select deed.publish('orders', '{}') from generate_series(1, 2)`)
	db.Exec(t, pgtest.Worker, `
		select deed.fail(c.subscription, c.claim, array[c.id], array['no'], array[interval '0'], array['discard'])
		from deed.claim('orders', 'w', 10, 's') c`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pending where dead_at is not null`); n != 2 {
		t.Fatalf("%d are dead", n)
	}
	find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "dead-letters-old", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now() - interval '8 days'`)
	says(t, find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "dead-letters-old", doctor.Warn, "orders/s"), "2 dead letters", "8 days")
	// Those of topics that nobody declared are found once.
	db.Exec(t, pgtest.App, `select deed.publish('forgotten', '{}')`)
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now() - interval '8 days', last_error = 'no' where subscription = 0`)
	var names []string
	for _, f := range examine(t, db.Pool(pgtest.Admin), doctor.Options{}) {
		if f.Name == "dead-letters-old" {
			names = append(names, f.Subject)
		}
	}
	slices.Sort(names)
	if want := []string{"orders/s", "topics that nobody declared"}; !slices.Equal(names, want) {
		t.Errorf("old dead letters are found of %q, want %q", names, want)
	}
}
