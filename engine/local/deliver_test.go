package local_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// post is a provider that counts what it was given, by key. It refuses who begins with "refused", and holds back who
// begins with "later" until let is closed.
type post struct {
	let   chan struct{}
	mu    sync.Mutex
	calls map[string]int // by key
}

func (*post) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "post", Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey}
}

func (*post) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }

func (p *post) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	switch {
	case strings.HasPrefix(r.Recipient(), "refused"):
		return delivery.Refused(errors.New("no such mailbox"))
	case strings.HasPrefix(r.Recipient(), "later"):
		select {
		case <-p.let:
		case <-ctx.Done():
			return delivery.NotNow(ctx.Err(), 0)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[r.Key()]++
	return delivery.Accepted("m-" + r.Recipient())
}

func (p *post) counts() (keys, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.calls {
		calls += n
	}
	return len(p.calls), calls
}

// mails serves the provider "mail" until the test ends.
func mails(t *testing.T, db *pgtest.DB) *post {
	t.Helper()
	p := &post{let: make(chan struct{}), calls: map[string]int{}}
	db.Providers(t, "post", "mail")
	l, err := delivery.New(t.Context(), db.NewPool(pgtest.Worker, 4), delivery.Options{
		Providers:    map[string]delivery.ProviderOptions{"mail": {Provider: p}},
		PollInterval: 10 * time.Millisecond, BaseRetry: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

const deliverPlan = `
plan: p
version: "1"
steps:
  note: {kind: deliver, channel: email, provider: mail, to: "${input.to}", payload: {subject: "${input.subject}"}}
  mail: {kind: deliver, after: [note], channel: email, provider: mail, to: "${input.to}", payload: {subject: Paid}, wait: sent}
  told: {kind: publish, after: [mail], topic: told, payload: {status: "${steps.mail.output.status}", by: "${steps.mail.output.provider_message_id}"}}
`

// A step of kind deliver owes a delivery from the transaction of its end on; one that waits for it ends when that has,
// as that has. What was refused or skipped fails its step and says why.
func TestEngine_Delivers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	post := mails(t, db)
	put(t, db, deliverPlan)
	e, _ := serve(t, db, local.Options{})
	begin := func(id, to string) string {
		return start(t, db, id, map[string]string{"to": to, "subject": "hello " + id})
	}
	owner := db.Pool(pgtest.Owner)

	id := begin("a", "a@example.com")
	want(t, "the run", ended(t, db, id), "COMPLETED")
	eventually(t, "the delivery that no step waits for", func() bool { keys, _ := post.counts(); return keys == 2 })
	_, calls := post.counts()
	want(t, "calls", calls, 2)
	want(t, "what later steps see", pgtest.One[string](t, owner, `select convert_from(payload, 'UTF8') from deed.log where topic = 'told'`), `{"by":"m-a@example.com","status":"sent"}`)
	want(t, "a delivery's key and correlation", pgtest.One[int](t, owner, `
		select count(*) from deed.channel_outbox c
		where c.correlation_id = $1 and c.idempotency_key in (deed.idempotency_key($1, 'note', '1'), deed.idempotency_key($1, 'mail', '1'))`, id), 2)
	want(t, "the payload", pgtest.One[string](t, owner, `select payload ->> 'subject' from deed.channel_outbox where idempotency_key = deed.idempotency_key($1, 'note', '1')`, id), "hello a")

	for _, test := range []struct{ id, to, code, category, log string }{
		{"b", "refused@example.com", "DELIVERY_FAILED", "provider", "StepCompleted note#1, StepStarted mail#1, StepFailed mail#1, StepSkipped told#1, RunFailed"},
		{"c", "", "DELIVERY_SKIPPED", "user", "StepFailed note#1, StepSkipped mail#1, StepSkipped told#1, RunFailed"},
		{"d", "no address", "DELIVERY_REFUSED", "user", "StepFailed note#1, StepSkipped mail#1, StepSkipped told#1, RunFailed"},
	} {
		id := begin(test.id, test.to)
		want(t, "run "+test.id, ended(t, db, id), "FAILED")
		has(t, logOf(t, db, id), test.log)
		want(t, "why", pgtest.One[string](t, owner, `
			select concat_ws(' ', l.event_data -> 'error' ->> 'code', l.event_data -> 'error' ->> 'category') from deed.run_log l
			where l.run_id = $1::text::uuid and l.event_type = 'StepFailed'`, id), test.code+" "+test.category)
	}
	eventually(t, "three failures to be counted", func() bool { return e.Stats().Failed == 3 })
	keys, _ := post.counts()
	want(t, "who was written to", keys, 2)
}

// While a delivery is on its way its step waits and costs nothing; it wakes whichever way that ends, and however many
// wait beside it. What was cancelled is not written to the run.
func TestEngine_WaitsForDeliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	post := mails(t, db)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {mail: {kind: deliver, channel: email, provider: mail, to: "${input.to}", payload: {subject: Paid}, wait: sent}}}`)
	e, _ := serve(t, db, local.Options{})
	owner := db.Pool(pgtest.Owner)
	var runs []string
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		runs = append(runs, start(t, db, id, map[string]string{"to": "later-" + id + "@example.com"}))
	}
	const waiting = `select count(*) from deed.run_steps s where s.parked and not s.ready and s.process_after = 'infinity'`
	eventually(t, "all to wait", func() bool { return pgtest.One[int](t, owner, waiting) == 5 })
	list, err := run.Due(t.Context(), db.Pool(pgtest.Worker), runs[0])
	if err != nil || len(list) != 1 || list[0].State != run.StepWaiting || list[0].DueAt != nil {
		t.Errorf("%+v, %v", list, err)
	}
	// A look sees as many as it is told to, goes on behind them, and wakes none whose delivery is on its way.
	var at any
	var place any
	for range 3 {
		var woken int
		var nextRun *string
		var nextPlace *int
		if err := owner.QueryRow(t.Context(), `select woken, next_run::text, next_place from deed.wake_steps($1::text::uuid, $2::int, 2)`, at, place).Scan(&woken, &nextRun, &nextPlace); err != nil {
			t.Fatal(err)
		}
		want(t, "woken", woken, 0)
		if at, place = nil, nil; nextRun != nil {
			at, place = *nextRun, *nextPlace
		}
	}
	want[any](t, "after the last of them", at, nil)
	if cancelled, err := run.Cancel(t.Context(), db.Pool(pgtest.Admin), runs[4], audit.Act{Reason: "test"}); !cancelled || err != nil {
		t.Fatal(cancelled, err)
	}
	done := e.Stats().Completed
	want(t, "ends", done, 0)
	close(post.let)
	for _, id := range runs[:4] {
		want(t, "run", ended(t, db, id), "COMPLETED")
		want(t, "events", logOf(t, db, id), "RunApproved, RunStarted, StepStarted mail#1, StepCompleted mail#1, RunCompleted")
	}
	eventually(t, "the cancelled one's delivery to be made", func() bool { keys, _ := post.counts(); return keys == 5 })
	want(t, "steps that are left", pgtest.One[int](t, owner, `select count(*) from deed.run_steps`), 0)
}

// A delivery that is there no more when its step wakes, since retention has removed it, is not made again: nobody knows
// whether it was sent.
func TestEngine_ADeliveryThatIsGoneIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	db.Providers(t, "post", "mail") // which nobody serves
	put(t, db, `{plan: p, version: "1", steps: {mail: {kind: deliver, channel: email, provider: mail, to: a@example.com, payload: {subject: Paid}, retry: {attempts: 3}, wait: sent}}}`)
	serve(t, db, local.Options{})
	id := start(t, db, "a", nil)
	eventually(t, "the step to wait", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps s where s.parked and not s.ready`) == 1
	})
	db.Exec(t, pgtest.Owner, `do $$ begin
		update deed.channel_outbox set status = 'failed', last_error = 'test', finished_at = now();
		delete from deed.channel_outbox;
	end $$`)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "mail"), "DELIVERY_GONE")
	want(t, "deliveries", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`), 0)
}

// What has failed and is tried again by a person is another delivery, unless it may have been sent: a refused one
// was not.
func TestEngine_ARefusedDeliveryIsTriedAgainAnew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	post := mails(t, db)
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {mail: {kind: deliver, channel: email, provider: mail, to: "${input.to}", payload: {subject: Paid}, wait: sent}}}`)
	serve(t, db, local.Options{})
	id := start(t, db, "a", map[string]string{"to": "a@example.com"})
	want(t, "the run", ended(t, db, id), "COMPLETED")
	held := func() bool {
		list, err := run.Due(t.Context(), db.Pool(pgtest.Worker), id)
		return err == nil && len(list) == 1 && list[0].State == run.StepHeld
	}
	db.Exec(t, pgtest.Owner, `select from deed.suppress('email', array['b@example.com'], 'test', 'test', '00000000-0000-0000-0000-000000000000')`)
	id = start(t, db, "b", map[string]string{"to": "b@example.com"})
	eventually(t, "the step to be held", held)
	want(t, "why", errorOf(t, db, id, "mail"), "DELIVERY_SKIPPED")
	db.Exec(t, pgtest.Owner, `select from deed.unsuppress('email', array['b@example.com'], 'test', 'test', '00000000-0000-0000-0000-000000000000')`)
	if n, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "mail", false, audit.Act{Reason: "test"}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
	keys, calls := post.counts()
	want(t, "deliveries", keys, 2)
	want(t, "calls", calls, 2)
}

// What has failed or is dead may be put back, and be sent then: an attempt of the step after it is for the same delivery,
// unless a person wants another one. So nobody is written to twice (R5).
func TestContract_R5_AStepHasOneDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()                     // the test's own changes stand in no audit row
	db.Providers(t, "post", "mail") // which nobody serves yet
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {mail: {kind: deliver, channel: email, provider: mail, to: a@example.com, payload: {subject: Paid}, retry: {attempts: 3, backoff: 1ms}, wait: sent}}}`)
	serve(t, db, local.Options{})
	owner := db.Pool(pgtest.Owner)
	id := start(t, db, "b", nil)
	is := func(state run.StepState) func() bool {
		return func() bool {
			list, err := run.Due(t.Context(), db.Pool(pgtest.Worker), id)
			return err == nil && len(list) == 1 && list[0].State == state
		}
	}
	// One that was skipped is not put back. But a call of before may have been accepted.
	eventually(t, "the step to wait", is(run.StepWaiting))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = 'expired', unsettled_since = now(), finished_at = now()`)
	eventually(t, "the step to be held", is(run.StepHeld))
	if _, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "mail", false, audit.Act{Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the step to be held again", func() bool {
		list, err := run.Due(t.Context(), db.Pool(pgtest.Worker), id)
		return err == nil && len(list) == 1 && list[0].State == run.StepHeld && list[0].Attempt == 2
	})
	want(t, "deliveries", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox`), 1)
	if n, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "mail", true, audit.Act{Reason: "test"}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	eventually(t, "another one to be made, as a person wants it", is(run.StepWaiting))
	want(t, "deliveries", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox`), 2)
	if ended, err := run.Cancel(t.Context(), db.Pool(pgtest.Admin), id, audit.Act{Reason: "test"}); !ended || err != nil {
		t.Fatal(ended, err)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = 'cancelled', finished_at = now() where status = 'queued'`)

	id = start(t, db, "a", nil)
	for attempt, status := range []string{"dead", "failed"} {
		eventually(t, "the step to wait", is(run.StepWaiting))
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = $1, last_error = 'test', finished_at = now() where correlation_id = $2`, status, id)
		eventually(t, "the step to be held", is(run.StepHeld))
		want(t, "why", errorOf(t, db, id, "mail"), "DELIVERY_"+strings.ToUpper(status))
		want(t, "deliveries", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where correlation_id = $1`, id), 1)
		want(t, "put back", pgtest.One[int](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array(select id from deed.channel_outbox where correlation_id = $1), 'again', 'ann')::int`, id), 1)
		if n, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "mail", false, audit.Act{Reason: "test"}); n != attempt+2 || err != nil {
			t.Fatal(n, err)
		}
	}
	post := mails(t, db)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	keys, calls := post.counts()
	want(t, "deliveries", keys, 1)
	want(t, "calls", calls, 1)
}

// So it is where the database refuses what the attempt after would reserve: the delivery of before is there all the same.
func TestContract_R5_ADeliveryIsNotMadeTwiceAfterARefusal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()                     // the test's own changes stand in no audit row
	db.Providers(t, "post", "mail") // which nobody serves
	put(t, db, `{plan: p, version: "1", on_failure: {hold: 24h}, steps: {mail: {kind: deliver, channel: email, provider: mail, to: a@example.com, payload: {subject: "`+strings.Repeat("x", 2000)+`"}, wait: sent}}}`)
	serve(t, db, local.Options{})
	id := start(t, db, "a", nil)
	held := func(attempt int) func() bool {
		return func() bool {
			list, err := run.Due(t.Context(), db.Pool(pgtest.Worker), id)
			return err == nil && len(list) == 1 && list[0].State == run.StepHeld && list[0].Attempt == attempt
		}
	}
	eventually(t, "the step to wait", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps s where s.parked and not s.ready`) == 1
	})
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'dead', last_error = 'test', finished_at = now()`)
	eventually(t, "the step to be held", held(1))
	for i, next := range []struct {
		limit int
		code  string
	}{{1024, "DELIVERY_REFUSED"}, {1 << 20, "DELIVERY_DEAD"}} {
		db.Exec(t, pgtest.Owner, `update deed.settings set max_delivery = $1`, next.limit)
		if n, err := run.RetryStep(t.Context(), db.Pool(pgtest.Admin), id, "mail", false, audit.Act{Reason: "test"}); n != i+2 || err != nil {
			t.Fatal(n, err)
		}
		eventually(t, "the step to be held again", held(i+2))
		want(t, "why", pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select event_data -> 'error' ->> 'code' from deed.run_log where run_id = $1::text::uuid and event_type = 'StepFailed' and logical_attempt = $2`, id, i+2), next.code)
	}
	want(t, "deliveries", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`), 1)
}

// An engine that is killed around a delivery leaves one, or none and it is done again: nobody is written to twice, and
// nobody is forgotten (R5).
func TestContract_R5_ADeliveryIsOwedOnce(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/stepper")
	for _, point := range []string{"reserved deliveries:1", "settled effects:1", "exchanged:3", "reserved deliveries:3"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			post := mails(t, db)
			put(t, db, deliverPlan)
			var runs []string
			for _, id := range []string{"a", "b"} {
				runs = append(runs, start(t, db, id, map[string]string{"to": id + "@example.com", "subject": "hello"}))
			}
			program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker)).Crashed(t, nameOf(point), pgtest.Patience)
			again := program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			for _, id := range runs {
				want(t, "the run", ended(t, db, id), "COMPLETED")
			}
			again.Stop()
			eventually(t, "all to be sent", func() bool {
				return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select not exists (select from deed.channel_outbox where status in ('queued', 'sending'))`)
			})
			keys, calls := post.counts()
			want(t, "deliveries", keys, 4)
			want(t, "calls", calls, 4)
		})
	}
}

// A look for steps to wake reads those that it looks at, and their deliveries, however many wait or sleep.
func TestPlan_ALookForStepsToWake(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	db.Exec(t, pgtest.Owner, `alter table deed.run_steps set (autovacuum_enabled = off)`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.run_steps (run_id, tenant_id, process_after, place, ready, parked, at_most_once, engine, queue, step_id)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', case when n <= 2000 then 'infinity' else now() + n * interval '1 minute' end, 0, false, true, false, 'local', 'deed', 'mail'
		from generate_series(1, 4000) n`)
	worker := db.Conn(t, pgtest.Worker)
	const look = `select deed.wake_steps(null, null, 10)`
	pgtest.Measure(t, worker, pgtest.Any, look) // the session's first reads the catalogue
	if pages := pgtest.Measure(t, worker, 400, look).Buffers; pages > 400 {
		t.Errorf("a look at 10 steps touches %d pages, want at most 400", pages)
	}
	want(t, "woken", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where ready`), 20)
}
