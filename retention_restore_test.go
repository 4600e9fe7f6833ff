package deed_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// restored makes of the database what a dump brings into a cluster whose
// transaction ids are far lower: rows with ids that are still to come here.
func restored(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		update deed.windows set system_identifier = system_identifier - 1,
		  cur = case when n = 0 then cur else (pg_snapshot_xmin(cur)::text::bigint + 1000000 || ':' || pg_snapshot_xmax(cur)::text::bigint + 1000000 || ':')::pg_snapshot end,
		  h = case when n = 0 then h else (h::text::bigint + 1000000)::text::xid8 end;
		update deed.log set xid = (xid::text::bigint + 1000000)::text::xid8;
		update deed.partitions set moving = (pg_snapshot_xmin(moving)::text::bigint + 1000000 || ':' || pg_snapshot_xmax(moving)::text::bigint + 1000000 || ':')::pg_snapshot
		where moving is not null`)
}

// Partitions that a restore brought leave as others do, whatever has read them,
// and also if they had begun to in the other cluster.
func TestContract_O11_RestoredPartitionsLeave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ streams, begun bool }{
		"queues":                 {},
		"queues that had begun":  {begun: true},
		"streams":                {streams: true},
		"streams that had begun": {streams: true, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			sink := &recorder{fail: func(m deed.Message) error {
				if string(m.Payload) == `{"n":1}` {
					return deed.AfterError(0, errors.New("cannot be"))
				}
				return nil
			}}
			opts := stream(sink, func(o *deed.Options) { o.Subscriptions[0].MaxAttempts = 1 })
			if !c.streams {
				opts.Topics = nil
			}
			step := func() string {
				return pgtest.One[string](t, db.Pool(pgtest.Worker), `select coalesce((select n || ' ' || did || ' ' || messages from deed.retention_step()), 'nothing')`)
			}
			for day := range 2 {
				client, stop := runStream(t, db, opts)
				publish(t, db, keyed("a", 1), keyed("b", 2), keyed("c", 3))
				drained(t, client)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if day == 0 {
					nextDay(t, db)
				}
			}
			nextDay(t, db)
			older(t, db)
			db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
			if c.begun {
				same(t, "step before the dump", step(), "0 began 0")
			}
			restored(t, db)
			// Published here, in a partition that is to go, by one who comes late.
			id := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select max(id) + 5 from deed.log where id < 68719476736`)
			late := func() {
				db.Exec(t, pgtest.Owner, `
					insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, content_type, payload)
					select $1::bigint, pg_current_xact_id(), 1, 0, '00000000-0000-0000-0000-000000000000', now(), 'undeclared', 'application/json', '{"n":7}'`, id)
				db.Exec(t, pgtest.Owner, `
					insert into deed.pending (subscription, slot, id, tenant_id, ord_at)
					values (0, 1, $1::bigint, '00000000-0000-0000-0000-000000000000', now())`, id)
			}
			late()
			emptied, dropped := map[string]bool{}, map[string]bool{}
			for until := time.Now().Add(time.Minute); time.Now().Before(until) && len(dropped) < 2; {
				switch did := step(); did {
				case "0 emptied 0", "1 emptied 0":
					emptied[did[:1]] = true
				case "0 dropped 0", "1 dropped 0":
					dropped[did[:1]] = true
				case "nothing":
					onPartitions(t, db, `set tried_at = null`)
				}
			}
			if len(emptied) != 2 || len(dropped) != 2 {
				t.Errorf("emptied %v, dropped %v", emptied, dropped)
			}
			same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 3)
			same(t, "without content", pgtest.One[int](t, db.Pool(pgtest.Worker), `
				select count(*) from deed.pending p
				where not exists (select from deed.kept k where (k.slot, k.id) = (p.slot, p.id)) and not exists (select from deed.log l where (l.slot, l.id) = (p.slot, p.id))`), 0)
		})
	}
}

// One partition that cannot leave never keeps the next from leaving.
func TestContract_O11_OnePartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
	nextDay(t, db)
	publish(t, db, message("orders", 4), message("orders", 5), message("orders", 6))
	nextDay(t, db)
	older(t, db)
	gone := false
	for i := range 12 {
		// Always one more that was not there when moving began.
		db.Exec(t, pgtest.Owner, `
			insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, topic, payload)
			select 1000 + $1::int, pg_current_xact_id(), 1, 0, '00000000-0000-0000-0000-000000000000', now(), 'orders', '{}'`, i)
		gone = gone || pgtest.One[bool](t, db.Pool(pgtest.Worker), `select coalesce((select n = 1 and did = 'emptied' from deed.retention_step()), false)`)
	}
	if !gone {
		t.Error("partition 1 was not reached")
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select restarts from deed.partitions where n = 0`); n < 1 {
		t.Errorf("partition 0 began anew %d times: the test shows nothing", n)
	}
	db.Broken() // rows by hand, of which nobody is owed anything
}

// Nor does one that the database refuses to drop, as a view of somebody's stands on it: it
// is said, and tried again in a minute.
func TestContract_O11_AViewOnAPartitionHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	backfill(t, db, id)
	for range 2 {
		publish(t, db, message("orders", 1), message("orders", 2), message("orders", 3))
		nextDay(t, db)
	}
	got := claim(t, db.Pool(pgtest.Worker), "orders", "w", 9)
	finish(t, db.Pool(pgtest.Worker), id, got[0].Claim, ids(got)...)
	older(t, db)
	db.Exec(t, pgtest.Owner, `create schema theirs; create view theirs.first as select * from deed.log_p0;
		update deed.receipts set finished_at = finished_at - interval '40 days'`)
	c, err := admin.New(t.Context(), db.Pool(pgtest.Worker), admin.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	run := func() (steps []string, err error) {
		err = c.Retain(t.Context(), func(s admin.RetentionStep) {
			if s.Partition == nil {
				steps = append(steps, s.Did)
			} else {
				steps = append(steps, fmt.Sprintf("%d %s", *s.Partition, s.Did))
			}
		})
		return steps, err
	}
	steps, err := run()
	same(t, "steps", steps, []string{"0 began", "0 moved", "0 emptied", "0 failed", "1 began", "1 moved", "1 emptied", "1 dropped", "removed receipts"})
	if err == nil || strings.Count(err.Error(), "partition 0") != 1 || !strings.Contains(err.Error(), "theirs.first") {
		t.Errorf("it is not said why partition 0 is still there: %v", err)
	}
	steps, err = run() // in the minute after that
	if len(steps) > 0 || err != nil {
		t.Errorf("within a minute: %v, %v", steps, err)
	}
	db.Exec(t, pgtest.Owner, `drop view theirs.first`)
	onPartitions(t, db, `set tried_at = null`)
	steps, err = run()
	same(t, "steps", steps, []string{"0 dropped"})
	if err != nil {
		t.Error(err)
	}
}

// A stream that had not read all before the dump stands, in a cluster whose transaction
// ids are far lower, among ids that are still to come: what is published there
// before it goes on counts as unread, keeps its partition, and comes.
func TestContract_O11_UnreadAfterARestoreStays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var sink recorder
	client, stop := runStream(t, db, stream(&sink))
	publish(t, db, keyed("a", 1), keyed("b", 2), keyed("c", 3))
	drained(t, client)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	restored(t, db)
	publish(t, db, keyed("a", 4), keyed("b", 5))
	worker := db.Pool(pgtest.Worker)
	unread := func() string {
		return pgtest.One[string](t, worker, `
			select concat_ws(' ', u.behind, u.oldest is not null) from deed.count_unread(array(select s.id from deed.subscriptions s where s.topic = 'orders'), 100, false) u`)
	}
	same(t, "unread", unread(), "2 t")
	same(t, "the last message", pgtest.One[string](t, worker, `select state from deed.stream_states((select max(id) from deed.log))`), "waiting")
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	same(t, "steps before it is read", retain(t, db, pgtest.Worker), []string{})
	same(t, "unread", unread(), "2 t")
	// Or the relay takes the steps itself, at any moment of its first minute.
	held := openTx(t, db, pgtest.Owner, `lock table deed.retention_lock in share update exclusive mode`)
	client, stop = runStream(t, db, stream(&sink))
	drained(t, client)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, _ := sink.counts(); n != 5 {
		t.Errorf("%d messages came, want 5", n)
	}
	same(t, "unread", unread(), "0 f")
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 0", "0 emptied 0", "0 dropped 0"})
}

// Nor does one whose messages are so large that the server would be long about a
// thousand of them: a step moves some MiB.
func TestContract_O11_LargeMessagesMoveInSmallSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "orders", "s")
	subscribe(t, db, "orders", "t")
	for i := range 22 {
		topic := "undeclared"
		if i%2 == 0 && i < 20 {
			topic = "orders"
		}
		publish(t, db, deed.Message{Topic: topic, Payload: []byte(`"` + strings.Repeat("x", 1e6-2) + `"`)})
	}
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 17", "0 moved 5", "0 emptied 0", "0 dropped 0"})
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.kept`), 22)
}

// A step that is cut off keeps nothing else: what is old of the history goes.
func TestContract_O11_AStepCutOffHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	id := subscribe(t, db, "orders", "s")
	publish(t, db, message("orders", 1))
	got := claim(t, db.Pool(pgtest.Worker), "orders", "w", 9)
	finish(t, db.Pool(pgtest.Worker), id, got[0].Claim, ids(got)...)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = now()`)
	nextDay(t, db)
	older(t, db)
	retain(t, db, pgtest.Worker)
	db.Exec(t, pgtest.Owner, `update deed.receipts set finished_at = finished_at - interval '40 days'`)
	patch{"retention_step", "  begin\n    lock table deed.retention_lock", "  raise query_canceled;\n  begin\n    lock table deed.retention_lock"}.apply(t, db)
	c, err := admin.New(t.Context(), db.Pool(pgtest.Worker), admin.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	err = c.Retain(t.Context(), func(s admin.RetentionStep) { steps = append(steps, s.Did) })
	same(t, "steps", steps, []string{"removed receipts"})
	if sqlState(err) != "57014" {
		t.Errorf("it is not said what was cut off: %v", err)
	}
}
