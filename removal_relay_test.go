package deed_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
)

// unhurried is a deadline of statements for who looks at all that a log warns of: a
// busy machine is nothing to warn of there.
const unhurried = pgtest.Patience

// warnings are the log's lines of that level and above, but for what they are
// about.
func warnings(text string) map[string]int {
	lines := map[string]int{}
	for line := range strings.Lines(text) {
		if m := regexp.MustCompile(`level=(WARN|ERROR) msg=("[^"]*"|\S+)`).FindString(line); m != "" {
			lines[m]++
		}
	}
	return lines
}

// A relay stops working on what was removed, says so once, records nothing of what
// it had in hand, and goes on with the others.
func TestRemove_RelaysStopAndGoOnWithOthers(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.ModeQueue, deed.ModeStream} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprint(mode, " whole ", whole), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				var text syncBuilder
				held, release := make(chan struct{}, 10), make(chan struct{})
				slow := sinkFunc(func(_ context.Context, ms []deed.Message) []error {
					held <- struct{}{}
					<-release
					return nil
				})
				jobs := &recorder{}
				c, stop := run(t, db, deed.Options{
					Logger: slog.New(slog.NewTextHandler(&text, nil)), Deadline: unhurried,
					Topics: []deed.Topic{{Name: "orders", Mode: mode, Lanes: 1}},
					Subscriptions: []deed.Subscription{
						{Topic: "orders", Name: "s", Sink: slow, Concurrency: 1}, {Topic: "jobs", Name: "s", Sink: jobs},
					},
				})
				eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
				publish(t, db, keyed("a", 1))
				<-held
				publish(t, db, keyed("a", 2), keyed("b", 1))

				name := "s"
				if whole {
					name = ""
				}
				if _, err := operator(t, db).Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: "x"}, Topic: "orders", Subscription: name}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the relay to notice", func() bool {
					return strings.Contains(text.String(), "the subscription was removed: this process stops")
				})
				close(release)
				eventually(t, "its figures to be gone", func() bool { return len(c.Stats()) == 1 })
				publish(t, db, message("jobs", 1), keyed("a", 3))
				eventually(t, "the other to be worked on", func() bool { n, _ := jobs.counts(); return n == 1 })
				if err := c.Ready(t.Context()); err != nil {
					t.Errorf("not ready: %v", err)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				lines := warnings(text.String())
				delete(lines, `level=WARN msg="finish refused: the subscription was removed meanwhile"`)
				delete(lines, `level=WARN msg="claims lost: the subscription was removed meanwhile"`)
				want := map[string]int{`level=WARN msg="the subscription was removed: this process stops working on it; if it is declared again it begins as a new one"`: 1}
				if !maps.Equal(lines, want) {
					t.Errorf("the log warns of %v", lines)
				}
				if n := len(held); n > 0 {
					t.Errorf("%d calls were begun afterwards", n)
				}
				clearAway(t, db)
				same(t, "rows of what was removed", pgtest.One[int](t, db.Pool(pgtest.Worker), `
					select count(*) from deed.pending p where p.subscription in (select r.subscription from deed.removals r where r.name is not null)`), 0)
				verified(t, db)
			})
		}
	}
}

// Who is refused a finish or a renewal before the process has noticed the removal
// says that it was this, and not that another worker took the claim. With eight in
// hand for four calls, what one call finishes is recorded without a claim beside
// it: it is the finish that meets the removal first.
func TestRemove_ARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	const call, claims = 4, 8
	refused := func(t *testing.T, lease time.Duration, calls int, want string) {
		t.Parallel()
		db := pgtest.New(t)
		var text syncBuilder
		held, release := make(chan struct{}, claims), make(chan struct{}, claims)
		slow := sinkFunc(func(context.Context, []deed.Message) []error {
			held <- struct{}{}
			<-release
			return nil
		})
		c, stop := run(t, db, deed.Options{
			Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn})), Deadline: unhurried, Grace: unhurried,
			Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: slow, Concurrency: call, Lease: lease}},
		})
		eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
		var owed []deed.Message
		for i := range claims {
			owed = append(owed, message("orders", i))
		}
		publish(t, db, owed...)
		for range call {
			<-held
		}
		eventually(t, "the rest to be in hand", func() bool { return c.Stats()[0].Claimed == claims })
		// Its rows go at once. That nothing late is to come is not waited for: the calls would be abandoned meanwhile.
		if _, err := operator(t, db).Remove(t.Context(), admin.Removal{Act: audit.Act{Reason: "x"}, Topic: "orders", Subscription: "s"}); err != nil {
			t.Fatal(err)
		}
		for range calls {
			release <- struct{}{}
		}
		eventually(t, "the refusal", func() bool { return strings.Contains(text.String(), want) })
		for range claims - calls {
			release <- struct{}{}
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for line, n := range warnings(text.String()) {
			if !strings.Contains(line, "removed") {
				t.Errorf("the log warns %d times of %s", n, line)
			}
		}
	}
	t.Run("finish", func(t *testing.T) {
		refused(t, time.Minute, 1, "finish refused: the subscription was removed meanwhile")
	})
	t.Run("renewal", func(t *testing.T) { // with a lease that does not run out before it
		refused(t, 10*time.Second, 0, "claims lost: the subscription was removed meanwhile")
	})
}

// pgWait is long enough for a process to do something now and then.
const pgWait = time.Minute

type sinkFunc func(context.Context, []deed.Message) []error

func (f sinkFunc) Deliver(ctx context.Context, ms []deed.Message) []error { return f(ctx, ms) }

// A relay whose subscription was removed, and made anew by another relay, leaves
// the new one's messages to that.
func TestRemove_AnOldRelayLeavesTheNewOneAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var text syncBuilder
	before, after := &recorder{}, &recorder{}
	subscribed := func(sink deed.Sink, logger *slog.Logger) deed.Options {
		return deed.Options{Logger: logger, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: sink}}}
	}
	old, _ := run(t, db, subscribed(before, nil))
	publish(t, db, message("orders", 1))
	eventually(t, "the first message", func() bool { n, _ := before.counts(); return n == 1 })
	drained(t, old)
	tx, err := db.Pool(pgtest.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{`select deed.remove_subscription('orders', 's', 'x')`, `select deed.subscribe('orders', 's')`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil { // there is no moment without a subscription of the name
		t.Fatal(err)
	}
	publish(t, db, message("orders", 2), message("orders", 3))
	c, _ := run(t, db, subscribed(after, slog.New(slog.NewTextHandler(&text, nil))))
	eventually(t, "the new relay to have it all", func() bool { n, _ := after.counts(); return n == 2 })
	drained(t, c)
	if n, _ := before.counts(); n != 1 {
		t.Errorf("the old relay delivered %d messages, want 1", n)
	}
	clearAway(t, db)
	verified(t, db)

	// A relay that makes it anew says that this is what it does.
	remove(t, db, "orders", "s")
	run(t, db, subscribed(&recorder{}, slog.New(slog.NewTextHandler(&text, nil))))
	eventually(t, "the relay to say so", func() bool {
		return strings.Contains(text.String(), "one of this name was removed: this is a new subscription")
	})
}

// What was put aside, blocked or dead goes with its subscription; a redrive that
// is under way, and the door, end well.
func TestRemove_WhateverStateItIsIn(t *testing.T) {
	t.Parallel()
	db := owing(t)
	admin := db.Pool(pgtest.Admin)
	db.Exec(t, pgtest.Admin, `select deed.set_door('jobs', 's'), deed.subscribe('jobs', 'other')`)
	jobs := pgtest.One[int](t, admin, `select id from deed.subscriptions where topic = 'jobs' and name = 's'`)
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), last_error = 'x', claim = null, claimed_at = null, claimed_by = null, lease_until = null
		where subscription = $1`, jobs)
	db.Exec(t, pgtest.Admin, `select deed.redrive('r', 'jobs', 's', p_rate => 1)`)
	for _, s := range pgtest.One[[]string](t, admin, `select array_agg(topic || '/' || name order by id) from deed.subscriptions where id <> 0`) {
		topic, name, _ := strings.Cut(s, "/")
		n := pgtest.One[int64](t, admin, `select deed.remove_subscription($1, $2, 'x')`, topic, name)
		for {
			verified(t, db)
			if state := pgtest.One[string](t, admin, `select state from deed.remove_step($1, 1)`, n); state != "going" {
				break
			}
		}
	}
	same(t, "the doors that are left", pgtest.One[[]int](t, admin, `select deed.doors()`), []int{0})
	same(t, "the redrive", pgtest.One[string](t, admin, `select state from deed.redrive('r', 'jobs', 's', p_rate => 1000)`), "done")
	remove(t, db, "orders", "")
	remove(t, db, "jobs", "")
	remove(t, db, "past", "")
	clearAway(t, db)
	same(t, "what is left", pgtest.One[[]int](t, admin, `
		select array[(select count(*) from deed.pending where subscription <> 0), (select count(*) from deed.topics where not own), (select count(*) from deed.lanes),
			(select count(*) from deed.relanings), (select count(*) from deed.backfills)]`), []int{0, 0, 0, 0, 0})
	verified(t, db)
	retain(t, db, pgtest.Worker)
}

// Publishers, relays and removals at once: nothing of what was removed is left,
// nothing of the others is lost, and nobody meets an error.
func TestRemove_RaceWithPublishersAndRelays(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.ModeQueue, deed.ModeStream} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var text syncBuilder
			logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
			steady := &recorder{}
			topics := []deed.Topic{{Name: "orders", Mode: mode}}
			c, _ := run(t, db, deed.Options{
				Logger: logger, Deadline: unhurried, Topics: topics, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "steady", Sink: steady}},
			})
			eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
			var ended atomic.Bool
			var published atomic.Int64
			var publishers sync.WaitGroup
			for p := range 3 {
				publishers.Go(func() {
					pace := time.NewTicker(20 * time.Millisecond)
					defer pace.Stop()
					for i := 0; !ended.Load(); i++ {
						<-pace.C
						opts := pgx.TxOptions{IsoLevel: []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead}[i%2]}
						err := pgx.BeginTxFunc(t.Context(), db.Pool(pgtest.App), opts, func(tx pgx.Tx) error {
							_, err := deed.Publish(t.Context(), tx, keyed(fmt.Sprint(p), i), keyed(fmt.Sprint(i%20), i), deed.Message{Topic: "passing", Value: i})
							return err
						})
						if err == nil {
							published.Add(2)
						} else if sqlState(err) != "40001" {
							t.Errorf("publishing: %v", err)
							return
						}
					}
				})
			}
			for range 3 {
				sink := &recorder{}
				passing, stop := run(t, db, deed.Options{Logger: logger, Deadline: unhurried, Topics: topics, Subscriptions: []deed.Subscription{
					{Topic: "orders", Name: "passing", Sink: sink}, {Topic: "passing", Name: "s", Sink: sink},
				}})
				eventually(t, "some to be delivered", func() bool { n, _ := sink.counts(); return passing.Ready(t.Context()) == nil && n > 20 })
				operator := operator(t, db)
				for _, r := range []admin.Removal{{Topic: "orders", Subscription: "passing", Act: audit.Act{Reason: "x"}}, {Topic: "passing", Act: audit.Act{Reason: "x"}}} {
					if _, err := operator.Remove(t.Context(), r); err != nil {
						t.Errorf("removing %s: %v", r.Topic, err)
					}
				}
				eventually(t, "the relay to notice", func() bool { return len(passing.Stats()) == 0 })
				if err := stop(); err != nil {
					t.Error(err)
				}
			}
			ended.Store(true)
			publishers.Wait()
			drained(t, c)
			clearAway(t, db)
			if n, _ := steady.counts(); int64(n) != published.Load() {
				t.Errorf("the other was given %d of %d messages", n, published.Load())
			}
			same(t, "rows of what was removed", pgtest.One[int](t, db.Pool(pgtest.Worker), `
				select count(*) from deed.pending p where p.subscription <> 0`), 0)
			verified(t, db)
			for line, n := range warnings(text.String()) {
				if !strings.Contains(line, "removed") {
					t.Errorf("the log warns %d times of %s", n, line)
				}
			}
		})
	}
}

// A process that is killed between two steps leaves a removal that another relay
// ends.
func TestCrash_RemovalIsKilledAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, pgtest.New(t))
	id := subscribe(t, s.db, "many", "s")
	pgtest.One[int](t, s.db.Pool(pgtest.App), `
		select count(*) from deed.publish_many(array_fill('many'::text, array[22000]), array_fill('{}'::bytea, array[22000]))`)
	s.db.Exec(t, pgtest.Admin, `select deed.remove_subscription('many', 's', 'x')`)
	left := func() int {
		return pgtest.One[int](t, s.db.Pool(pgtest.Worker), `select count(*) from deed.pending where subscription = $1`, id)
	}
	v := s.start("clearing:2", patient) // a step that runs out of time is taken again a minute later
	v.Crashed(t, "clearing:2", 2*pgWait)
	same(t, "rows that are left", left(), 12000)
	verified(t, s.db)
	rest := s.start("", patient)
	eventuallyWithin(t, 2*pgWait, "the rest to be taken away", func() bool { return left() == 0 })
	rest.Stop()
	if err := rest.Wait(t, pgWait); err != nil {
		t.Errorf("the second worker ended with %v", err)
	}
	clearAway(t, s.db)
	same(t, "given up in all", pgtest.One[int](t, s.db.Pool(pgtest.Worker), `select taken from deed.removals`), 22000)
	verified(t, s.db)
}

// A removal that is left open in a transaction holds up nobody: what is being
// removed goes on too, until it is committed.
func TestRemove_LeftOpenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	orders, events, jobs := &recorder{}, &recorder{}, &recorder{}
	c, _ := run(t, db, deed.Options{
		Topics: []deed.Topic{{Name: "orders", Mode: deed.ModeStream}, {Name: "events", Mode: deed.ModeStream}},
		Subscriptions: []deed.Subscription{
			{Topic: "orders", Name: "s", Sink: orders, Lease: time.Second}, {Topic: "events", Name: "s", Sink: events, Lease: time.Second}, {Topic: "jobs", Name: "s", Sink: jobs},
		},
	})
	given := func(what string, r *recorder, n int) {
		t.Helper()
		eventually(t, what, func() bool { got, _ := r.counts(); return got == n })
	}
	publish(t, db, keyed("a", 1), deed.Message{Topic: "events", Value: 1})
	given("the first order", orders, 1)
	given("the first event", events, 1)

	tx, err := db.Pool(pgtest.Admin).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	for _, sql := range []string{`select deed.remove_subscription('orders', 's', 'x')`, `select deed.remove_topic('jobs', 'x')`} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	renewed := pgtest.One[time.Time](t, db.Pool(pgtest.Worker), `select max(lease_until) from deed.lanes`)
	eventually(t, "the leases to be renewed, over and over", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select min(lease_until) > $1::timestamptz + interval '3 seconds' from deed.lanes`, renewed)
	})
	publish(t, db, keyed("a", 2), deed.Message{Topic: "events", Value: 2}, message("jobs", 1))
	given("the second order", orders, 2)
	given("the second event", events, 2)
	given("the job", jobs, 1)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the relay to notice", func() bool { return len(c.Stats()) == 1 })
	clearAway(t, db)
	publish(t, db, keyed("a", 3), deed.Message{Topic: "events", Value: 3})
	given("the third event", events, 3)
	given("no third order", orders, 2)
	verified(t, db)
}
