package deed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// standing is what status tells of a topic's subscription.
type standing struct {
	Topic, Subscription                                         string
	Pending, Due, Claimed, Parked, BlockedKeys, Dead, Delivered int64
}

// countOneByOne counts what the tables have, row by row.
func countOneByOne(t *testing.T, db *pgtest.DB) []standing {
	t.Helper()
	rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `
		with had as (
			select slot, id, topic from deed.log union all select slot, id, topic from deed.kept
		),
		each as (
			select p.subscription, l.topic, p.dead_at is null as waits, p.parked, p.dead_at is null and p.lease_until > now() as held,
				p.dead_at is null and not p.parked and p.ord <= now() and coalesce(p.lease_until <= now(), true) as due,
				p.key_hash is not null and not p.parked as blocks, 0 as delivered
			from deed.pending p
			join had l on l.slot = p.slot and l.id = p.id
			union all
			select r.subscription, l.topic, false, false, false, false, false, 1
			from deed.receipts r
			cross join unnest(r.ids) i(id)
			join had l on l.id = i.id
			where r.outcome = 'delivered'
		)
		select coalesce(s.topic, e.topic), coalesce(s.name, 'default'), count(*) filter (where waits), count(*) filter (where due), count(*) filter (where held),
			count(*) filter (where waits and parked), count(*) filter (where blocks), count(*) filter (where not waits and delivered = 0), sum(delivered)
		from each e
		left join deed.subscriptions s on s.id = e.subscription and s.id <> 0
		group by 1, 2
		order by 1, 2`)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[standing])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// told is what status says, without subscriptions that have nothing.
func told(t *testing.T, c *admin.Client) (list []standing) {
	t.Helper()
	topics, err := c.StatusOf(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		for _, s := range topic.Subscriptions {
			if s.AtLeast || s.DeadAtLeast || s.DeliveredAtLeast {
				t.Errorf("%s/%s is not counted to the end: %+v", topic.Topic, s.Subscription, s)
			}
			if s.Pending+s.Dead+s.Delivered > 0 {
				list = append(list, standing{topic.Topic, s.Subscription, s.Pending, s.Due, s.Claimed, s.Parked, s.BlockedKeys, s.Dead, s.Delivered})
			}
		}
	}
	return list
}

// tally adds up all there is, once the transactions of others have ended.
func tally(t *testing.T, db *pgtest.DB) {
	t.Helper()
	eventuallyWithin(t, 3*time.Minute, "receipts to be added up", func() bool {
		pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.tally(7)`)
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select upto_n >= (select coalesce(max(n), 0) from deed.receipts) from deed.tallied`)
	})
}

// deliver claims n messages, for long, and finishes as many of them as it is to.
func deliver(t *testing.T, db *pgtest.DB, topic, name string, n, finished int) {
	t.Helper()
	pgtest.One[int](t, db.Pool(pgtest.Worker), `
		select deed.finish(c.subscription, c.claim, (array_agg(c.id))[:$4])
		from deed.claim($1, 'w', $3, $2, p_lease => '1 hour') c
		group by c.subscription, c.claim`, topic, name, n, finished)
}

// What status says is what counting row by row gives, before and after what was
// delivered is added up, for declared topics and others, and with receipts of an
// older program, which do not say of which topic they are.
func TestStatus_IsWhatOneByOneGives(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	c := operator(t, db)
	for _, of := range []string{"orders", "jobs", ""} {
		name := "s"
		if of == "" {
			name = "default"
		}
		for range 5 {
			deliver(t, db, of, name, 9, 7)
		}
	}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(countOneByOne(t, db), told(t, c)); diff != "" {
			t.Errorf("%s (-one by one +status):\n%s", when, diff)
		}
	}
	check("not added up")
	tally(t, db)
	check("added up")
	db.Exec(t, pgtest.Owner, `truncate deed.delivered; update deed.tallied set upto_n = 0, noted_n = 0, noted_xid = null; update deed.receipts set topics = null`)
	tally(t, db)
	check("receipts of an older program")
	deliver(t, db, "jobs", "s", 1, 1)
	db.Exec(t, pgtest.Owner, `update deed.tallied set noted_n = (select max(n) from deed.receipts), noted_xid = '99999999999'`) // as in a restored copy
	tally(t, db)
	check("in another cluster")
}

// Above the bound each kind is counted up to it, and it is said.
func TestStatus_SaysWhereItStoppedCounting(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	exact := map[string]int64{}
	for _, c := range countOneByOne(t, db) {
		if c.Subscription == "s" {
			exact[c.Topic+" waiting"], exact[c.Topic+" dead"] = c.Pending, c.Dead
		}
	}
	for _, most := range []int64{1, 10, 60, 100, 200, 500} {
		rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `
			select s.topic, c.pending, c.dead, c.at_least, c.dead_at_least
			from deed.count_pending($1) c join deed.subscriptions s on s.id = c.subscription where s.id <> 0`, most)
		if err != nil {
			t.Fatal(err)
		}
		var topic string
		var pending, dead int64
		var waitMore, deadMore bool
		n := 0
		_, err = pgx.ForEachRow(rows, []any{&topic, &pending, &dead, &waitMore, &deadMore}, func() error {
			n++
			for _, x := range []struct {
				kind string
				got  int64
				more bool
			}{{"waiting", pending, waitMore}, {"dead", dead, deadMore}} {
				want := exact[topic+" "+x.kind]
				if x.got > want || x.got < min(want, most) || (x.got < want && !x.more) || (x.more && want < most) {
					t.Errorf("up to %d %s of %s: %d, more: %t; there are %d", most, x.kind, topic, x.got, x.more, want)
				}
			}
			return nil
		})
		if err != nil || n != 2 {
			t.Fatalf("%d subscriptions, %v", n, err)
		}
	}
}

// Whoever finishes, however long its transaction takes, and whoever adds up: of
// each snapshot what was added up is what its receipts say up to there, and what
// comes later is above.
func TestTally_AddsUpEachReceiptOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "jobs", "s")
	const each = 60
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var finishers, others sync.WaitGroup
	for range 4 {
		finishers.Go(func() {
			for range each {
				finishSlowly(t, db, sub)
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for ctx.Err() == nil {
				pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.tally(3)`)
			}
		})
	}
	others.Go(func() {
		for ctx.Err() == nil {
			var added, receipts int64
			err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `
				select coalesce((select sum(delivered) from deed.delivered), 0)::bigint,
					coalesce((select sum(r.finished) from deed.receipts r, deed.tallied t where r.n <= t.upto_n), 0)::bigint`).Scan(&added, &receipts)
			if err != nil || added != receipts {
				t.Errorf("%d were added up, and the receipts say %d: %v", added, receipts, err)
				return
			}
		}
	})
	finishers.Wait()
	cancel()
	others.Wait()
	tally(t, db)
	added := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select coalesce(sum(delivered), 0)::bigint from deed.delivered`)
	all := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select sum(finished)::bigint from deed.receipts`)
	if added != all || all < 2*each {
		t.Errorf("%d of %d were added up", added, all)
	}
}

// finishSlowly publishes a few messages and delivers them in a transaction that
// takes its time, and now and then is rolled back.
func finishSlowly(t *testing.T, db *pgtest.DB, sub int) {
	rolledBack := errors.New("rolled back")
	publish(t, db, message("jobs", 1), message("jobs", 2), message("jobs", 3))
	err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
		for range 1 + rand.N(2) {
			if _, err := tx.Exec(t.Context(), `
				select deed.finish($1, c.claim, array_agg(c.id)) from deed.claim('jobs', 'w', 2, 's') c group by c.claim`, sub); err != nil {
				return err
			}
			<-time.After(rand.N(4 * time.Millisecond))
		}
		if rand.N(6) == 0 {
			return rolledBack
		}
		return nil
	})
	if err != nil && !errors.Is(err, rolledBack) {
		t.Error(err)
	}
}

// What retention forgets was delivered all the same, whether it was added up before
// or not. A subscription that is removed takes its sum along.
func TestTally_OutlivesTheReceipts(t *testing.T) {
	t.Parallel()
	for _, addedUp := range []bool{true, false} {
		t.Run(fmt.Sprint("added up ", addedUp), func(t *testing.T) {
			t.Parallel()
			outlivesTheReceipts(t, addedUp)
		})
	}
}

func outlivesTheReceipts(t *testing.T, addedUp bool) {
	db := pgtest.New(t)
	sub := subscribe(t, db, "jobs", "s")
	worker := db.Pool(pgtest.Worker)
	backfill(t, db, sub)
	for i := range 3 {
		publish(t, db, message("jobs", i), message("loose", i))
		deliver(t, db, "jobs", "s", 10, 10)
		deliver(t, db, "", "default", 10, 10)
	}
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '30 days'`)
	if addedUp {
		tally(t, db)
	}
	retain(t, db, pgtest.Worker)
	if left := pgtest.One[int](t, worker, `select count(*) from deed.receipts`); left != 0 {
		t.Fatalf("%d receipts are left", left)
	}
	tally(t, db)
	want := []standing{{Topic: "jobs", Subscription: "s", Delivered: 3}}
	got := told(t, operator(t, db))
	if fmt.Sprint(got) != fmt.Sprint(want) { // nobody publishes to loose any more
		t.Errorf("%+v", got)
	}
	remove(t, db, "jobs", "")
	clearAway(t, db)
	if left := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivered where subscription = $1`, sub); left != 0 {
		t.Error("the sum of a subscription that was removed is kept")
	}
	publish(t, db, deed.Message{Topic: "jobs", Value: 1})
}

// What a snapshot calls its xmax is one past the highest id that has ended: above it
// others may run. One of those has a receipt below the highest number that is seen.
func TestTally_WaitsForWhoRunsAboveTheSnapshot(t *testing.T) {
	t.Parallel()
	// By itself: another test's transaction would keep the sum back, or move the xmax.
	db := pgtest.Private(t, pgembed.Options{}).DB(t)
	sub := subscribe(t, db, "jobs", "s")
	publish(t, db, message("jobs", 1), message("jobs", 2))
	begin := func() pgx.Tx {
		tx, err := db.Conn(t, pgtest.Owner).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback(context.Background()) })
		pgtest.One[string](t, tx, `select pg_current_xact_id()::text`)
		return tx
	}
	finishOne := func(tx pgx.Tx) {
		pgtest.One[int](t, tx, `select deed.finish($1, c.claim, array_agg(c.id)) from deed.claim('jobs', 'w', 1, 's') c group by c.claim`, sub)
	}
	earlier := begin()
	later := begin() // has the higher id, and the lower number
	finishOne(later)
	finishOne(earlier)
	if err := earlier.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.tally()`)
	}
	if upto := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select upto_n from deed.tallied`); upto != 0 {
		t.Errorf("it has come to %d beside a finish that has not ended", upto)
	}
	if err := later.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	tally(t, db)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select delivered from deed.delivered where subscription = $1`, sub); n != 2 {
		t.Errorf("%d of 2 were added up", n)
	}
}

// Where all that is counted is claimed, or of other topics, what is behind is not
// said to be nothing.
func TestStatus_BehindWhatIsCounted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "jobs", "s")
	many := func(topic string, n int) {
		db.Exec(t, pgtest.App, `select count(*) from deed.publish_many(array_fill($1::text, array[$2::int]), array_fill('1'::bytea, array[$2::int]))`, topic, n)
	}
	many("jobs", 10_050)
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim('jobs', 'w', 10000, 's', p_lease => '1 hour')`)
	publish(t, db, message("late", 0))
	deliver(t, db, "", "default", 1, 1)
	many("early", 30_001)
	publish(t, db, message("late", 1))
	topics, err := operator(t, db).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, topic := range topics {
		switch topic.Topic {
		case "jobs":
			seen++
			if !topic.AtLeast || topic.Claimed != 10_000 || topic.OldestDue <= 0 {
				t.Errorf("behind those that are claimed: %+v", topic.Counts)
			}
		case "late":
			seen++
			if topic.Delivered != 1 || !topic.AtLeast {
				t.Errorf("behind those of another topic: %+v", topic.Counts)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%+v", topics)
	}
}

// While a transaction stays open nothing is added up: what lies above is counted, up
// to a bound, and then it is said that there may be more.
func TestStatus_SaysWhatIsNotAddedUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sub := subscribe(t, db, "jobs", "s")
	db.Broken() // nobody delivered these
	for _, test := range []struct {
		more, delivered int64
		atLeast         bool
	}{{29_999, 29_999, false}, {1, 30_000, true}, {10_000, 30_000, true}} {
		db.Exec(t, pgtest.Owner, `
			insert into deed.receipts (subscription, claim, worker, finished_at, min_id, max_id, ids, finished, failed, lost)
			select $1, 1, 'w', now(), n, n, array[n], 1, 0, 0 from generate_series(1, $2::bigint) n`, sub, test.more)
		topics, err := operator(t, db).Status(t.Context())
		if err != nil || len(topics) != 1 {
			t.Fatalf("%+v, %v", topics, err)
		}
		if got := topics[0]; got.Delivered != test.delivered || got.DeliveredAtLeast != test.atLeast {
			t.Errorf("with %d more: %+v", test.more, got.Counts)
		}
	}
}

// What has been due for long and nobody works on is said: of a queue, a stream and what
// nobody declared; not of what is summed up, and not where somebody does.
func TestStatus_NamesWhatNobodyWorksOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := operator(t, db)
	subscribe(t, db, "orders", "crm")
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('events', 'stream')`)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('events', 'index')`)
	publish(t, db, message("orders", 1), message("orders", 2), message("events", 1), message("nobody", 1))
	unattended := func(most int) (names []string) {
		t.Helper()
		list, err := c.StatusOf(t.Context(), most)
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range list {
			for _, s := range topic.Subscriptions {
				if s.Unattended {
					names = append(names, topic.Topic+"/"+s.Subscription)
				}
			}
		}
		return names
	}
	if got := unattended(100); got != nil {
		t.Errorf("at once: %v", got)
	}
	later := func() {
		t.Helper()
		db.Exec(t, pgtest.Owner, `
			update deed.pending set ord_at = ord_at - interval '2 minutes', process_after = process_after - interval '2 minutes';
			update deed.log set created_at = created_at - interval '2 minutes';
			update deed.attended set asked_at = asked_at - interval '2 minutes'`)
	}
	later()
	db.Exec(t, pgtest.Owner, `update deed.subscriptions set created_at = clock_timestamp()`) // that of undeclared topics is the template's
	if got := unattended(100); got != nil {
		t.Errorf("of subscriptions that were made a moment ago: %v", got)
	}
	db.Exec(t, pgtest.Owner, `update deed.subscriptions set created_at = created_at - interval '1 hour'`)
	if got, want := unattended(100), []string{"events/index", "nobody/default", "orders/crm"}; !slices.Equal(got, want) {
		t.Errorf("after two minutes: %v, want %v", got, want)
	}
	if got := unattended(1); len(got) > 1 {
		t.Errorf("with one listed: %v", got)
	}
	// Those that work: one claims and ends, and others live.
	db.Exec(t, pgtest.Worker, `select deed.finish(c.subscription, c.claim, array[c.id]) from deed.claim('orders', 'w', 1, 'crm') c`)
	db.Exec(t, pgtest.Worker, `select from deed.subscriptions s, lateral deed.take_lanes(gen_random_uuid(), 'w', array[s.id], p_protocol => 2, p_leases => array[interval '1 hour']) where s.topic = 'events'`)
	if got, want := unattended(100), []string{"nobody/default"}; !slices.Equal(got, want) {
		t.Errorf("with workers: %v, want %v", got, want)
	}
	later()
	if got, want := unattended(100), []string{"nobody/default", "orders/crm"}; !slices.Equal(got, want) {
		t.Errorf("once nobody asks any more: %v, want %v", got, want)
	}
}

// Who asks for a subscription's messages works on it, whatever comes of them: they fail
// and are due in a day, the sink is away, or others are so many; and once nobody asks,
// that one of them waits for a day hides nothing.
func TestStatus_WhoAsksWorks(t *testing.T) {
	t.Parallel()
	fail := func(kind string) string {
		return `select deed.fail(c.subscription, c.claim, array[c.id], array['no'], array[interval '1 day'], array['` + kind + `']) from deed.claim('orders', 'w', 1, 's') c`
	}
	for name, did := range map[string]string{
		"fails": fail("release"), "is told of an outage": fail("outage"), "lets one die": fail("discard"),
		"finds nothing that is due": `select count(*) from deed.claim('orders', 'w', 1, 's', p_floor => 'infinity')`,
		"claims through a door":     `select count(*) from deed.claim_doors('w', 1, null)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Broken()
			subscribe(t, db, "orders", "s")
			if strings.Contains(name, "door") {
				db.Exec(t, pgtest.Admin, `select deed.set_door('orders', 's')`)
			}
			publish(t, db, message("orders", 1), message("orders", 2))
			db.Exec(t, pgtest.Owner, `update deed.subscriptions set created_at = created_at - interval '1 day'`)
			age := func(by string) {
				t.Helper()
				db.Exec(t, pgtest.Owner, `update deed.attended set asked_at = asked_at - $1::text::interval`, by)
				db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = ord_at - $1::text::interval, process_after = process_after - $1::text::interval`, by)
			}
			is := func(want bool) {
				t.Helper()
				list, err := operator(t, db).Status(t.Context())
				if err != nil || len(list) != 1 || list[0].Subscriptions[0].Unattended != want {
					t.Errorf("%+v, %v; want unattended %v", list, err, want)
				}
			}
			age("1 hour")
			is(true)
			tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), did); err != nil {
				t.Fatal(err)
			}
			is(false) // though nobody sees it yet, or that others ask meanwhile
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			is(true)
			db.Exec(t, pgtest.Owner, `update deed.attended set asked_at = clock_timestamp() + interval '1 day'`) // before the clock was set back
			db.Exec(t, pgtest.Worker, did)
			db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = clock_timestamp(), claimed_at = clock_timestamp() - interval '1 hour' where claim is not null and lease_until is not null`)
			is(false)
			age("30 seconds")
			is(false)
			age("1 hour")
			is(true)
		})
	}
}

// A topic's own subscription "default" is not taken for what was published before
// anybody declared the topic.
func TestStatus_DefaultIsNotTheUndeclared(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	publish(t, db, message("orders", 1))
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'default', 'now')`)
	id := pgtest.One[int](t, db.Pool(pgtest.Owner), `select id from deed.subscriptions where topic = 'orders'`)
	scan(t, db, id)
	db.Exec(t, pgtest.Owner, `
		update deed.pending set ord_at = now() - interval '2 hours';
		update deed.subscriptions set created_at = now() - interval '3 hours';
		update deed.attended set asked_at = now() - interval '3 hours'`)
	list, err := operator(t, db).Status(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Subscriptions) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, s := range list[0].Subscriptions {
		if own := s.Subscription == "default"; s.Unattended == own || (s.Pending == 0) != own {
			t.Errorf("%+v", s)
		}
	}
}
