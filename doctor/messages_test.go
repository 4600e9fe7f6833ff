package doctor_test

import (
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
}
