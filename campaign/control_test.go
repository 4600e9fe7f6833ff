package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// counter is a provider that counts calls, and notes whether one began after a pause.
type counter struct {
	calls atomic.Int64
}

func (c *counter) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "fake", Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey}
}

func (c *counter) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }

func (c *counter) Send(context.Context, delivery.Reservation) delivery.Outcome {
	c.calls.Add(1)
	return delivery.Accepted("m")
}

// asItIs composes deliveries of their rows' data.
type asItIs struct{}

func (asItIs) Compose(_ context.Context, d delivery.Draft) (json.RawMessage, error) {
	return d.Payload, nil
}

// serve runs n ledgers until the test ends. A statement may take long: what is given up may have been done, and waits for its lease.
func serve(t testing.TB, db *pgtest.DB, p delivery.Provider, n int) (ledgers []*delivery.Ledger) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for range n {
		l, err := delivery.New(ctx, db.Pool(pgtest.Worker), delivery.Options{
			Providers: map[string]delivery.ProviderOptions{"fake": {Provider: p, Concurrency: 4}}, Composer: asItIs{}, PollInterval: 10 * time.Millisecond, ClaimBatch: 20, Deadline: 25 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		ledgers = append(ledgers, l)
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return ledgers
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, cond) {
		t.Fatalf("waited for %s", what)
	}
}

// pauseAgainst pauses a run that is being sent: again, where an attempt takes longer than the two seconds that a pause waits for it.
func pauseAgainst(t testing.TB, db deed.DB, run string) (sending int64, err error) {
	t.Helper()
	pgtest.Wait(pgtest.Patience, func() bool {
		sending, err = campaign.Pause(t.Context(), db, campaign.Scope{}, run, audit.Act{By: "ann"})
		return sqlState(err) != "55P03"
	})
	return sending, err
}

// Once a pause has returned nothing begins any more, though four relays are at it; what was
// held goes on when it is resumed, and everybody gets it once.
func TestPause_NothingBeginsAfterIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	run := deploy(t, db, request(t, db, 400))
	expandAll(t, db)
	c := &counter{}
	ledgers := serve(t, db, c, 4)
	begun := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where first_called_at is not null`)
	}
	for pauses := 1; ; pauses++ {
		before := begun()
		waitFor(t, "something to begin", func() bool { return begun() > before || begun() == 400 })
		if _, err := pauseAgainst(t, app, run); err != nil {
			t.Fatal(err)
		}
		held := begun()
		// What is held is no work: the ledgers come to rest, and nothing has begun by then.
		waitFor(t, "the ledgers to be drained", func() bool {
			ok, err := ledgers[0].Drained(context.Background())
			return err == nil && ok
		})
		want(t, "begun after the pause", begun(), held)
		if _, err := pauseAgainst(t, app, run); err != nil {
			t.Errorf("paused again: %v", err)
		}
		if err := campaign.Resume(t.Context(), app, campaign.Scope{}, run, audit.Act{By: "ann"}); err != nil {
			t.Fatal(err)
		}
		if held == 400 || pauses == 5 {
			break
		}
	}
	waitFor(t, "the rest", func() bool { return begun() == 400 })
	waitFor(t, "the run to end", func() bool {
		rollUp(t, db)
		return states(t, db, run) == "completed: completed 400/0/0/0/0"
	})
	want(t, "calls", c.calls.Load(), 400)
}

// A pause waits for an attempt that has looked before it and is not committed, and one that
// comes after it begins nothing.
func TestPause_WaitsForAttempts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 2))
	expandAll(t, db)
	attempt := `select string_agg(a.status || coalesce(' ' || a.why, ''), ',') from deed.attempt(array(select id from deed.channel_outbox where recipient = $1), array(select claim from deed.channel_outbox where recipient = $1), array['x'::bytea], null, '1 minute', 'w') a`
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
	tx, err := db.Pool(pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var got string
	if err := tx.QueryRow(ctx, attempt, address(campaign.Email, 0)).Scan(&got); err != nil || got != "sending" {
		t.Fatal(got, err)
	}
	paused := make(chan int64, 1)
	conn := db.Conn(t, pgtest.App)
	go func() {
		for {
			n, err := campaign.Pause(ctx, conn, campaign.Scope{}, run, audit.Act{})
			if err == nil {
				paused <- n
				return
			}
		}
	}()
	waitFor(t, "the pause to wait", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')`, int32(conn.PgConn().PID()))
	})
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "sending when it was paused", <-paused, 1)
	want(t, "the attempt after it", pgtest.One[string](t, db.Pool(pgtest.Worker), attempt, address(campaign.Email, 1)), "queued paused")
	db.Exec(t, pgtest.Worker, `select deed.settle(array(select id from deed.channel_outbox where status = 'sending'), array(select claim from deed.channel_outbox where status = 'sending'), '{accepted}', '{m}', '{null}', '{null}', 'w')`)
}

// An attempt that takes longer than it is waited for undoes no pause and no cancellation, that of a paused run neither: the error says that they stand,
// and asking again waits for it. In a transaction nothing is waited for, so nothing is undone.
func TestPause_StandsWhereItIsNotConfirmed(t *testing.T) {
	t.Parallel()
	type control = func(context.Context, deed.DB, campaign.Scope, string, audit.Act) (int64, error)
	for name, c := range map[string]struct {
		first, control control
		state          string
	}{
		"pause":                  {nil, campaign.Pause, "paused"},
		"pause again":            {campaign.Pause, campaign.Pause, "paused"},
		"cancel":                 {nil, campaign.Cancel, "cancelled"},
		"cancel a paused run":    {campaign.Pause, campaign.Cancel, "cancelled"},
		"cancel a cancelled run": {campaign.Cancel, campaign.Cancel, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := deploy(t, db, request(t, db, 1))
			pool := db.Pool(pgtest.App)
			if c.first != nil {
				if _, err := c.first(t.Context(), pool, campaign.Scope{}, run, audit.Act{}); err != nil {
					t.Fatal(err)
				}
			}
			attempt, err := db.Pool(pgtest.Owner).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = attempt.Rollback(context.Background()) }()
			if _, err := attempt.Exec(t.Context(), `lock table deed.provider_lock in row share mode`); err != nil { // as one has it (deed.attempt)
				t.Fatal(err)
			}
			if c.first == nil { // a transaction of the caller's: it is not undone, and commits
				if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					_, err := c.control(t.Context(), tx, campaign.Scope{}, run, audit.Act{})
					return err
				}); err != nil {
					t.Errorf("in a transaction: %v", err)
				}
			}
			_, err = c.control(t.Context(), pool, campaign.Scope{}, run, audit.Act{})
			if !errors.Is(err, campaign.ErrUnconfirmed) || sqlState(err) != "55P03" {
				t.Errorf("it says %v, want that it is not confirmed", err)
			}
			want(t, "the run", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select concat_ws(' ', case when r.cancelled_at is not null then 'cancelled' when r.paused_at is not null then 'paused' end, (select count(*) from deed.delivery_holds))
				from deed.campaign_runs r`), c.state+" 1")
			if err := attempt.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.control(t.Context(), pool, campaign.Scope{}, run, audit.Act{}); err != nil {
				t.Errorf("asked again: %v", err)
			}
		})
	}
}

// Nothing is said to stand where the caller's session has waited for the run's row in vain.
func TestPause_OfALockedRunSaysNothingOfAHold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1))
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	pgtest.One[string](t, tx, `select id::text from deed.campaign_runs for update`)
	conn := db.Conn(t, pgtest.App)
	if _, err := conn.Exec(t.Context(), `set lock_timeout = '10ms'`); err != nil {
		t.Fatal(err)
	}
	if _, err := campaign.Pause(t.Context(), conn, campaign.Scope{}, run, audit.Act{}); sqlState(err) != "55P03" || errors.Is(err, campaign.ErrUnconfirmed) {
		t.Errorf("it says %v, want that the row is locked alone", err)
	}
}

// Who pauses or cancels a run and leaves the transaction open holds up nobody's deliveries.
func TestPause_LeftOpenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, control := range map[string]func(context.Context, deed.DB, campaign.Scope, string, audit.Act) (int64, error){"pause": campaign.Pause, "cancel": campaign.Cancel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := request(t, db, 2)
			held := deploy(t, db, req)
			req.ID = "2"
			other := deploy(t, db, req)
			expandAll(t, db)
			tx, err := db.Pool(pgtest.App).Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(ctx) }()
			if _, err := control(ctx, tx, campaign.Scope{}, held, audit.Act{}); err != nil {
				t.Fatal(err)
			}
			serve(t, db, &counter{}, 1)
			waitFor(t, "the other run's deliveries", func() bool {
				return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid and status = 'sent'`, other) == 2
			})
			if err := tx.Commit(ctx); err != nil {
				t.Errorf("the transaction that was left open: %v", err)
			}
		})
	}
}

// Nor does it keep others' runs from beginning and ending: of a run that is not begun, and of one
// whose last job is over.
func TestPause_LeftOpenKeepsNoOtherRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	req := request(t, db, 2)
	over := deploy(t, db, req)
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	req.ID = "2"
	queued := deploy(t, db, req)
	req.ID = "3"
	other := deploy(t, db, req)
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for _, held := range []string{over, queued} {
		if _, err := campaign.Pause(ctx, tx, campaign.Scope{}, held, audit.Act{}); err != nil {
			t.Fatal(err)
		}
	}
	step := func() {
		t.Helper()
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := worker(t, db).Step(bounded); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, "the other run to be expanded", func() bool {
		step()
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, other) == 2
	})
	endAll(t, db, "run_id = '"+other+"'", "sent", "")
	waitFor(t, "the other run to end", func() bool { step(); return states(t, db, other) == "completed: completed 2/0/0/0/0" })
	want(t, "the run that is not begun", pgtest.One[string](t, db.Pool(pgtest.Owner), `select status from deed.campaign_runs where id = $1::text::uuid`, queued), "queued")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the first run to end", func() bool { step(); return states(t, db, over) == "completed: completed 2/0/0/0/0" })
	waitFor(t, "the second run to be expanded", func() bool {
		step()
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, queued) == 2
	})
	db.Broken() // what endAll did stands in no audit row
}

// A cancelled run ends: what is queued or was not expanded is skipped, what is being sent
// ends by itself, and the run is not completed.
func TestCancel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	req := request(t, db, 1001)
	run := deploy(t, db, req)
	if _, err := worker(t, db).Step(t.Context()); err != nil { // the first job
		t.Fatal(err)
	}
	endAll(t, db, "recipient = 'p0@d0.example'", "sent", "")
	if _, err := campaign.Cancel(t.Context(), app, campaign.Scope{}, run, audit.Act{By: "ann", Reason: "the wrong price"}); err != nil {
		t.Fatal(err)
	}
	w := worker(t, db)
	waitFor(t, "the run to end", func() bool {
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		return states(t, db, run) == "partial: completed 1/0/999/0/0, failed 0/0/1/0/0"
	})
	want(t, "holds", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_holds`), 0)
	for what, err := range map[string]error{
		"pause": func() error {
			_, err := campaign.Pause(t.Context(), app, campaign.Scope{}, run, audit.Act{})
			return err
		}(),
		"cancel": func() error {
			_, err := campaign.Cancel(t.Context(), app, campaign.Scope{}, run, audit.Act{})
			return err
		}(),
		"resume": campaign.Resume(t.Context(), app, campaign.Scope{}, run, audit.Act{}),
	} {
		if deed.CodeOf(err) != deed.Conflict {
			t.Errorf("%s a run that has ended: %v", what, err)
		}
	}
	// One that is to begin next week ends now.
	req.ID, req.ScheduledFor = "2", time.Now().Add(7*24*time.Hour)
	run = deploy(t, db, req)
	if _, err := campaign.Cancel(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the scheduled run to end", func() bool {
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		return states(t, db, run) == "failed: failed 0/0/1000/0/0, failed 0/0/1/0/0"
	})
	db.Broken()
}

// What has not begun when a run expires is skipped; the time in which it was paused does not
// count.
func TestExpires_PausedTimeDoesNotCount(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	run := deploy(t, db, request(t, db, 2))
	expandAll(t, db)
	if _, err := campaign.Pause(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	// It was deployed 25 hours ago, and paused for 24 of them.
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set scheduled_for = scheduled_for - interval '25 hours', expires_at = expires_at - interval '25 hours', paused_at = paused_at - interval '24 hours'; alter table deed.campaign_runs enable trigger user`)
	want(t, "skipped while it is paused", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 0)
	if err := campaign.Resume(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	want(t, "skipped when it goes on", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 0)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set expires_at = now() - interval '1 second'`)
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 1, '1 minute', p_runs => true)`)
	want(t, "an attempt of what has expired", pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select a.why from deed.channel_outbox c, deed.attempt(array[c.id], array[c.claim], array['x'::bytea], null, '1 minute', 'w') a where c.claim is not null`), "expired")
	want(t, "skipped when it has expired", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 1)
	rollUp(t, db)
	want(t, "the run", states(t, db, run), "failed: failed 0/0/2/0/0")
	db.Broken()
}

// A pause in which the winner of a test is written counts once for when the run expires.
func TestExpires_APauseBeforeTheWinnerCountsOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, app := db.Pool(pgtest.Owner), db.Pool(pgtest.App)
	run := deploy(t, db, tested(t, db, 60, campaign.ByPerson))
	expandAll(t, db)
	if _, err := campaign.Pause(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	// It began ten hours ago, and has been paused since.
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set scheduled_for = scheduled_for - interval '10 hours', expires_at = expires_at - interval '10 hours', paused_at = paused_at - interval '10 hours'; alter table deed.campaign_runs enable trigger user`)
	if decided, err := campaign.Winner(t.Context(), app, campaign.Scope{}, run, "B", audit.Act{}); err != nil || !decided {
		t.Fatal(decided, err)
	}
	before := pgtest.One[time.Time](t, owner, `select clock_timestamp()`)
	if err := campaign.Resume(t.Context(), app, campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	want(t, "whether the rest has a day since it went on", pgtest.One[bool](t, owner, `select expires_at between $1::timestamptz + interval '24 hours' and clock_timestamp() + interval '24 hours' from deed.campaign_runs`, before), true)
	db.Broken() // its keys were made of another scheduled_for
}

// What had begun to be sent when its run expires is not skipped: what was refused for now is tried by its own
// schedule and is dead after that (D6), and what a person has sent again goes. What nobody took is skipped, also where the
// provider was away when it was called.
func TestContract_D6_AnExpiredRunEndsWhatHasBegun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	run := deploy(t, db, request(t, db, 5))
	expandAll(t, db)
	const of = `(select array_agg(id order by recipient) from deed.channel_outbox where claim is not null), (select array_agg(claim order by recipient) from deed.channel_outbox where claim is not null)`
	attempt := func() string {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 4, '1 minute', p_runs => true)`)
		return pgtest.One[string](t, worker, `
			select coalesce(string_agg(left(c.recipient, 2) || ' ' || coalesce(a.why, a.status), ', ' order by c.recipient), '')
			from deed.attempt(`+of+`, (array['x', 'x', 'x', 'x']::bytea[])[:(select count(*) from deed.channel_outbox where claim is not null)], null, '1 minute', 'w') a join deed.channel_outbox c on c.id = a.id`)
	}
	settle := func(kinds string) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `
			select deed.settle(`+of+`, u.kinds, array_fill(null::text, n), array_fill('451'::text, n), array_fill(null::float8, n), 'w')
			from (select $1::text[] as kinds, array[cardinality($1::text[])] as n) u`, kinds)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() + interval '1 hour' where recipient = $1`, address(campaign.Email, 4))
	want(t, "at first", attempt(), "p0 sending, p1 sending, p2 sending, p3 sending")
	settle(`{deferred,later,unknown,outage}`)
	db.Exec(t, pgtest.Admin, `select deed.settle_delivery(id, 'send_again', 'it is not there', 'ann') from deed.channel_outbox where status = 'sending'`)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set expires_at = now() - interval '1 second'`)
	for what, n := range []int{1, 1, 0} { // what is due comes first
		want(t, fmt.Sprint("skipped by sweep ", what), pgtest.One[int](t, worker, `select deed.sweep_runs(100, 'w')`), n)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	want(t, "attempts of the rest", attempt(), "p0 sending, p1 sending, p2 sending")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = now() - interval '24 hours'`)
	settle(`{deferred,accepted,accepted}`)
	want(t, "how they ended", pgtest.One[string](t, owner, `select string_agg(left(recipient, 2) || ' ' || coalesce(skip_reason, status), ', ' order by recipient) from deed.channel_outbox`),
		"p0 dead, p1 sent, p2 sent, p3 expired, p4 expired")
	rollUp(t, db)
	want(t, "the run", states(t, db, run), "partial: completed 2/0/2/0/1")
	db.Broken() // it was as if a day had gone by
}

// A campaign never delays its tenant's password resets, nor does one that is held: a reset
// that is reserved behind it begins with the next claim, which leaves a held run out whole.
func TestWalk_AResetBehindACampaign(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 10_000))
	expandAll(t, db)
	reset := delivery.Delivery{Channel: delivery.Email, Provider: "fake", Recipient: "carol@d1.example", Payload: json.RawMessage(`{}`)}
	for _, held := range []bool{false, true} {
		if held {
			if _, err := campaign.Pause(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
				t.Fatal(err)
			}
		}
		reset.Key = delivery.NewKey("reset", map[bool]string{true: "held"}[held])
		made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), reset)
		if err != nil {
			t.Fatal(err)
		}
		claimed := pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(distinct coalesce(run_id::text, id::text), ' ') from deed.claim_deliveries('fake', 'w', 20, '1 minute', p_runs => true)`)
		if held {
			want(t, "claimed while the run is held", claimed, made[0].ID)
		} else if claimed != made[0].ID+" "+run && claimed != run+" "+made[0].ID {
			t.Errorf("claimed %s, want the reset %s and some of the run %s", claimed, made[0].ID, run)
		}
	}
	if walk := pgtest.One[string](t, db.Pool(pgtest.Worker), `select coalesce(walk ->> 'wait', 'none') from deed.claim_deliveries('fake', 'w', 20, '1 minute', p_runs => true, p_places => '{}') where id is null`); walk != "none" {
		t.Errorf("a claim is to be repeated in %s, though all that is due is held", walk)
	}
}
