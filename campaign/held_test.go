package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// away composes nothing until it is back.
type away struct{ back atomic.Bool }

func (a *away) Compose(_ context.Context, d delivery.Draft) (json.RawMessage, error) {
	if !a.back.Load() {
		return nil, errors.New("nothing can be made now")
	}
	return d.Payload, nil
}

// A delivery of which nothing can be made now is not claimed again at once, says why, and is
// made when it can be; it has cost no attempt.
func TestCompose_WhatCannotBeMadeNowWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	run := deploy(t, db, request(t, db, 1))
	expandAll(t, db)
	ctx, cancel := context.WithCancel(context.Background())
	a, c := &away{}, &counter{}
	l, err := delivery.New(ctx, db.Pool(pgtest.Worker), delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"fake": {Provider: c}}, Composer: a, PollInterval: 10 * time.Millisecond, Deadline: 25 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the delivery to be put off", func() bool {
		return pgtest.One[bool](t, owner, `select claim is null and process_after > created_at + interval '4 seconds' and coalesce(last_error, '') like '%nothing can be made now%' from deed.channel_outbox`)
	})
	want(t, "attempts", pgtest.One[int](t, owner, `select attempts from deed.channel_outbox`), 0)
	a.back.Store(true)
	waitFor(t, "the run to end", func() bool {
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() where status = 'queued' and lease_until is null`)
		rollUp(t, db)
		return states(t, db, run) == "completed: completed 1/0/0/0/0"
	})
	want(t, "calls", c.calls.Load(), 1)
}

// A job one of whose contacts somebody keeps locked goes back without an attempt, however often,
// holds up no other, and is expanded once it can be (C5).
func TestContract_C5_ALockedContactIsNoAttempt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	req := request(t, db, 2)
	held := deploy(t, db, req)
	tx, err := owner.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select from deed.contacts c where c.id = (select m.contact_id from deed.audience_members m where m.n = 1 and m.audience_id = $1::text::uuid) for update`, req.Audience); err != nil {
		t.Fatal(err)
	}
	w := worker(t, db)
	for range 2 {
		begun := pgtest.One[time.Time](t, owner, `select clock_timestamp()`)
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		// By when it went back, and not by when it is looked at: a busy machine may take as long to come to that.
		want(t, "the job", pgtest.One[string](t, owner, `select concat_ws(' ', status, attempts, expanded_at, process_after >= $1::timestamptz + interval '2 seconds') from deed.job_queue`, begun), "queued 0 t")
		db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = clock_timestamp() - interval '1 second'`)
	}
	want(t, "why", pgtest.One[bool](t, owner, `select last_error like '%lock timeout%' from deed.job_queue`), true)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = clock_timestamp() + interval '1 hour'`)
	req.ID, req.Audience = "2", people(t, db, "others", campaign.Social, 1).ID
	req.Channel, req.Campaign, req.From = campaign.Social, put(t, db, "post", campaign.Content{Text: "hello", Post: "p1"}).ID, ""
	other := deploy(t, db, req)
	expandAll(t, db)
	want(t, "another run", states(t, db, other), "running: locked")
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = clock_timestamp() - interval '1 second' where status = 'queued'`)
	expandAll(t, db)
	want(t, "the run", states(t, db, held), "running: locked")
	want(t, "its deliveries", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, held), 2)
}

// A job that is being expanded when its worker is asked to stop goes back at once, and that is no attempt: nobody waits for its lease.
func TestContract_C5_AStopGivesTheJobBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	req := request(t, db, 2)
	run := deploy(t, db, req)
	tx, err := owner.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from deed.contacts c where c.id = $1::text::uuid for update`, contactOf(t, db, req, 1)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w, ended := worker(t, db), make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	waitFor(t, "the job to wait for the contact", func() bool {
		return pgtest.One[bool](t, owner, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%deed.expand_job%' and pid <> pg_backend_pid())`)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want(t, "the job", pgtest.One[string](t, owner, `select concat_ws(' ', status, attempts, claim is null, expanded_at) from deed.job_queue`), "queued 0 t")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '1 second'`)
	expandAll(t, db)
	want(t, "the run", states(t, db, run), "running: locked")
}

// Nor does whoever is locked of a test's cells hold up the rest of their range, which is not about them.
func TestContract_C5_ALockedContactOfTheTest(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 60, campaign.ByPerson))
	expandAll(t, db)
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select from deed.contacts c where c.id in (select o.contact_id from deed.channel_outbox o) for update`); err != nil {
		t.Fatal(err)
	}
	if _, err := campaign.Winner(ctx, db.Pool(pgtest.App), campaign.Scope{}, run, "B", audit.Act{}); err != nil {
		t.Fatal(err)
	}
	expandAll(t, db)
	want(t, "the jobs", states(t, db, run), "running: locked, locked")
	want(t, "deliveries", deliveriesOf(t, db, run), 60)
}

// A job that goes back again and again is tried ever less often, up to once a minute, by how long ago it was due first: the
// rest of a test by when that was decided.
func TestContract_C5_WhatGoesBackOftenWaitsLonger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1))
	now := func() time.Time { return pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select clock_timestamp()`) }
	for _, c := range []struct {
		due, decided string // ago
		rest         bool
		seconds      int
	}{
		{"-1 hour", "", false, 2},
		{"4 seconds", "", false, 2},
		{"40 seconds", "", false, 10},
		{"10 minutes", "", false, 60},
		{"10 minutes", "40 seconds", true, 10},
	} {
		for range 2 { // the first time changes nothing for the second
			set := now()
			db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; alter table deed.job_queue disable trigger user`)
			db.Exec(t, pgtest.Owner, `update deed.campaign_runs set scheduled_for = now() - $2::text::interval, winner = case when $3 <> '' then 'A' end, winner_at = now() - nullif($3::text, '')::interval where id = $1::text::uuid`, run, c.due, c.decided)
			db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now(), part = case when $1 then 'rest' end, members = case when $1 then 1 end`, c.rest)
			db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger user; alter table deed.job_queue enable trigger user`)
			before := now()
			db.Exec(t, pgtest.Worker, `select deed.put_back_job(j.id, j.claim, 'somebody holds it', 'w') from deed.claim_queued_jobs('w', 1) j`)
			after := now()
			// It went back between the two, and may have been due for longer by then: as long as this took.
			until := pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select process_after from deed.job_queue where status = 'queued'`)
			least, most := before.Add(time.Duration(c.seconds)*time.Second), after.Add(time.Duration(c.seconds)*time.Second+after.Sub(set)/4)
			if until.Before(least) || until.After(most) {
				t.Errorf("it waits until %s, want from %s to %s: %+v", until, least, most, c)
			}
		}
	}
	want(t, "told of", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'put back'`), 10)
	db.Broken() // no test was decided
}

// Settling touches no row of a campaign that somebody else has ended: it is not waited for, and
// stays as it is.
func TestSettle_LeavesWhatAnotherHasEnded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	deploy(t, db, request(t, db, 2))
	expandAll(t, db)
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
	db.Exec(t, pgtest.Worker, `
		select deed.attempt(array_agg(id order by id), array_agg(claim order by id), array['x'::bytea, 'y'::bytea], null, '1 minute', 'w') from deed.channel_outbox`)
	const of = `(select id from deed.channel_outbox where recipient = 'p1@d1.example')`
	db.Exec(t, pgtest.Worker, `select deed.prove_delivery(`+of+`, 'proved', 'w')`)
	tx, err := owner.Begin(ctx) // as who settles it, and waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select from deed.channel_outbox where id = `+of+` for update`); err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.Worker)
	if _, err := conn.Exec(ctx, `set lock_timeout = '1s'`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `
		select deed.settle(array_agg(id), array_agg(claim), '{accepted,accepted}', '{m,n}', '{null,null}', '{null,null}', 'w') from deed.channel_outbox`); err != nil {
		t.Fatalf("beside one that another has ended: %v", err)
	}
	want(t, "what they are", pgtest.One[string](t, owner, `
		select string_agg(concat_ws(' ', status, provider_message_id, 'with bytes: ' || (request is not null)), ', ' order by recipient) from deed.channel_outbox`),
		"sent m with bytes: false, sent proved with bytes: false")
}

// They go, too, where a person or a proof ends it as sent, and stay where a person says that it failed.
func TestSettle_DropsTheBytesOfWhatIsDecided(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct{ end, want string }{
		"a person: sent":   {`select deed.settle_delivery(id, 'sent', 'looked', 'ann') from deed.channel_outbox`, "sent t t"},
		"a person: failed": {`select deed.settle_delivery(id, 'failed', 'looked', 'ann') from deed.channel_outbox`, "failed f"},
		"a proof":          {`select deed.prove_delivery(id, 'm', 'w') from deed.channel_outbox`, "sent t t"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			deploy(t, db, request(t, db, 1))
			expandAll(t, db)
			db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
			db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id), array_agg(claim), array['x'::bytea], null, '1 minute', 'w') from deed.channel_outbox`)
			db.Exec(t, pgtest.Worker, `select deed.settle(array_agg(id), array_agg(claim), '{unknown}', '{null}', '{null}', '{null}', 'w') from deed.channel_outbox`)
			db.Exec(t, pgtest.Owner, c.end)
			want(t, "it", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', status, request is null, request_sha256 = sha256('x')) from deed.channel_outbox`), c.want)
		})
	}
}

// The bytes of what is called for a campaign go in the statement that ends it as sent, which keeps their hash, and in no other.
func TestSettle_DropsTheBytesAsItEndsIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	deploy(t, db, request(t, db, 1))
	expandAll(t, db)
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
	db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id), array_agg(claim), array['x'::bytea], null, '1 minute', 'w') from deed.channel_outbox`)
	for name, change := range map[string]string{
		"not ended":          `request = null, request_sha256 = sha256('x')`,
		"ended otherwise":    `status = 'failed', finished_at = now(), claimed_at = null, claimed_by = null, lease_until = null, request = null, request_sha256 = sha256('x')`,
		"no hash":            `status = 'sent', sent_at = now(), finished_at = now(), claimed_at = null, claimed_by = null, lease_until = null, request = null`,
		"another hash":       `status = 'sent', sent_at = now(), finished_at = now(), claimed_at = null, claimed_by = null, lease_until = null, request = null, request_sha256 = sha256('y')`,
		"other bytes":        `status = 'sent', sent_at = now(), finished_at = now(), claimed_at = null, claimed_by = null, lease_until = null, request = 'y', request_sha256 = sha256('x')`,
		"erased as it ended": `status = 'sent', sent_at = now(), finished_at = now(), claimed_at = null, claimed_by = null, lease_until = null, request = null, recipient = null, erased_at = now()`,
	} {
		if _, err := owner.Exec(ctx, `update deed.channel_outbox set `+change); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v, not DDCON", name, err)
		}
	}
	db.Exec(t, pgtest.Worker, `select deed.settle(array_agg(id), array_agg(claim), '{accepted}', '{m}', '{null}', '{null}', 'w') from deed.channel_outbox`)
	want(t, "it", pgtest.One[string](t, owner, `select concat_ws(' ', status, request is null, request_sha256 = sha256('x'), provider_message_id) from deed.channel_outbox`), "sent t t m")
}
