package deed_test

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// Status is linear in the topics and lists no more than a hundred: those that
// need attention first, by name; the others are one line. Of those that nobody
// declared it counts thirty thousand messages, or if there are more, ten thousand,
// and says so.
func TestStatus_IsLinearAndBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "one")
	invent := func(from, upto int) {
		db.Exec(t, pgtest.App, `
			select count(*) from deed.publish_many(
				array(select 'invented-' || n from generate_series($1::int, $2::int) n), array(select '1'::bytea from generate_series($1::int, $2::int)))`, from, upto)
	}
	const invented = 20_000
	invent(1, invented)
	publish(t, db, message("orders", 1))
	db.Exec(t, pgtest.Owner, `analyze`)
	db.Exec(t, pgtest.Owner, `
		update deed.pending p set dead_at = now(), last_error = 'no such account'
		from deed.log l where l.slot = p.slot and l.id = p.id and l.topic in ('invented-77', 'invented-19999')`)
	c := operator(t, db)
	check := func(waiting int64, atLeast bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second) // quadratic, it takes a minute of an idle machine
		defer cancel()
		topics, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(topics) != 101 {
			t.Fatalf("%d topics are listed", len(topics))
		}
		var pending, dead int64
		shown := map[string]int64{}
		for _, topic := range topics {
			pending, dead = pending+topic.Pending, dead+topic.Dead
			shown[topic.Topic] = topic.Dead
		}
		if pending != waiting+1 || dead != 2 {
			t.Errorf("in all %d are pending and %d dead", pending, dead)
		}
		if shown["invented-77"] != 1 || shown["invented-19999"] != 1 {
			t.Error("a topic with a dead message is not listed")
		}
		if last := topics[100]; last.Topic != "(others)" || last.Pending != waiting+1-98 || last.AtLeast != atLeast || len(last.Subscriptions) != 1 {
			t.Errorf("the last one is %+v", last)
		}
	}
	check(invented-2, false)
	invent(invented+1, 30_003)
	check(10_000, true)
}
