package deed_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A harmless change is one that deed.verify need not see: to a column of a
// table, or (delete) a whole row, where the condition holds.
type harmless struct{ table, change, where, why string }

// harmful changes are all others. Everything here says why nobody is harmed, or
// where it is seen instead.
const (
	content  = "content: deed.verify adds up what is owed, not what it says; the log is append-only for every role but the schema's owner"
	history  = "history: what was recorded of pages that others came after, for people"
	setting  = "a setting: the next start compares it with deed.yaml, and the programs that run go on with theirs or read it"
	said     = "what it says, and to whom: deed.verify counts, and makes no checksums (docs/guarantees.md); no role but the schema's owner may write the column"
	schedule = "when and how often: the row stays, and every look shows it"
	again    = "what was done is done again: twice, not lost"
	newest   = "r.n = (select max(g.n) from deed.progress g where g.subscription = r.subscription and g.lane = r.lane)"
)

var harmlessChanges = []harmless{
	{"audit_seals audit_blinds", "delete *", "", "proofs of what was done: deed audit check finds it (TestContract_C6_WhatWasDoneToTheTableIsFound)"},
	{"attended", "delete *", "", "when somebody last asked: for people, who are told when nobody does"},
	{"backfills", "began_at", "", "when: doctor names one that goes on for long"},
	{"backfills", "made_by", "", "it only tells the first subscriptions of a topic from later ones"},
	{"backfills", "window_n reached slot id scanned seen upto late_id finished_at", "", "what one passes over is seen when it has finished; one that has finished and does it again finds nothing late"},

	{"delivery_attempts", "delete *", "", "history: what became of calls, for people; what is owed stands in channel_outbox"},
	{"contents erased_contents", "delete *", "", "files; of one that an unfinished delivery names deed.verify_deliveries tells"},
	{"delivery_feedback soft_bounces unmatched_events", "delete *", "", "what providers say of what was done, which stands in channel_outbox"},
	{"channel_outbox", "payload request request_sha256 cc contents recipient recipient_id contact_id purpose", "", said},
	{"channel_outbox", "process_after created_at expires_at lane due max_attempts attempts lost_claims deferrals deferred_since repeat_safe_until unsettled_since doubt_since held_at", "", schedule},
	{"channel_outbox", "request_kind request_account sandbox", "", "who took it, or is to: whoever is another calls nobody for it, and doctor names it (deliveries-elsewhere, relay-idle)"},
	{
		"channel_outbox", "claim correlation_id doubt_reason erased_at first_called_at called_at finished_at last_error made_at payload_bytes proved_at provider_message_id sent_at skip_reason updated_at", "",
		"history: what became of calls, for people; its status is held against the audit log",
	},
	{"channel_outbox", "run_id job_id", "r.job_id is null or r.run_id is null", "of no campaign: what is of one is held against its jobs"},
	{"channel_messages", "body text sender source kind reply_to platform_message_id contact_id correlation_id", "", said},
	{"channel_messages", "attempts claim claimed_at claimed_by lease_until lost_claims held_at turn error", "", schedule},
	{"channel_messages", "id received_at finished_at", "", "by which id, and when: the row stays, and its status is held against the audit log"},
	{"message_transitions", "delete from_status to_status", "", "a change of status that is not listed is refused, aloud"},
	{"delivery_transitions", "delete from_status to_status made_by meaning", "", "a change of status that is not listed is refused, aloud"},
	{"providers", "delete *", "", "every dispatcher registers its providers when it starts, and goes on with what it was given"},
	{"contacts contact_identities identity_conflicts contact_merges consents", "delete *", "", "who somebody is, and what they said: what is owed names its recipient itself, and what is not to be sent stands in suppressions"},
	{"erasures erasing", "delete *", "", "who was erased, and how far that is: nobody is owed a delivery for it"},
	{"suppressions", "reason actor created_at by_consent", "", "an address is suppressed whatever the reason"},
	{"suppressions", "address purpose expires_at", "", said},
	{"tenants", "name created_at", "", "a tenant is its id"},
	{"tenant_removals", "name actor reason asked_at made_by upto system_identifier stage is_final at_sub at_id left_some waits read_window taken finished_at", "", "history, and how far it is: what it would leave is seen when it is over"},

	{"delivered tallied", "delete *", "", "a sum for looks: what was delivered stands in the receipts"},
	{"door_claims", "delete *", "", "who has claimed what stands in the pending row; by this a token finds it"},
	{"former_lanes", "ended_at slot_from slot_upto since kept_from", "", history},
	{"kept log", "aggregate_type content_type created_at headers key payload process_after tenant_id type", "", content},
	{"kept", "delete id topic", "not exists (select from deed.pending p where p.id = r.id)", "it is finished, and removed at the next look"},
	{"kept log", "topic", "r.slot < 64", "nobody declared the topic, by the one name or the other"},
	{"kept", "list_version xid", "", "only a backfill reads it"},
	{
		"log", "delete id topic slot list_version xid", "r.slot >= 64 and not exists (select from deed.pending p where p.id = r.id) and not exists (select from deed.progress g where g.max_id >= r.id)",
		"of a stream's message that has not been read only the log knows; nobody but the schema's owner may change it",
	},
	{"log", "list_version xid", "", "it has its pending row, or its stream has gone past it: nobody asks any more"},
	{"log", "id", "r.slot >= 64", "the same message under another number"},

	{"log", "delete id", "r.topic = 'past'", "the only subscription of its topic was removed"},
	{"pending", "delete slot id parked tenant_id", "r.subscription in (select g.subscription from deed.removals g)", "it is given up, and taken away whatever it says"},

	{"lanes", "takeovers taken_n worker lease_until paused_at", "", "who holds it, for how long: leases run out, and a lane that is to stop stops where it is"},
	{"migrations", "delete *", "", "deed migrate validate compares them, and programs refuse a schema that they do not know"},
	{"partitions", "opened_at made_at tried_at restarts", "", "when: retention takes it sooner or later, and never what is not finished"},
	{"partitions", "last_id summarised", "", "where looks begin and what they pass over: too much is read, and nothing missed"},
	{"partitions", "emptied_at dropped_at moved_at moved_id moved_subscription moving moving_window read_window", "", "how far retention has come: what it would pass over is seen before it goes, and of what has gone nothing but the pending rows is owed"},
	{"partitions", "delete", "r.dropped_at is not null", "it has gone"},
	{"pending", "attempts lost_claims ord_at process_after last_error dead_at claim claimed_at claimed_by lease_until", "", schedule},
	{"pending", "key_hash", "not r.parked", "its key goes on past it, as in a topic without order"},
	{"pending", "subscription delete id", "exists (select from deed.kept k where k.id = r.id)", "of a partition that has gone nothing but the row says to whom it is owed"},
	{"progress", "delete", newest, again},
	{"progress", "finished_at worker min_id max_id", "", history},
	{"progress", "aside_ids", "", "as an older deed recorded it: deed show says passed instead of delivered"},
	{"progress", "fence from_window to_window slot id", "not " + newest, history},
	{"progress", "fence", "not exists (select from deed.lanes l where l.subscription = r.subscription and l.lane = r.lane)", history},
	{"progress", "slot id", "r.to_window is null", "between two windows there is no place within one"},
	{"progress", "from_window to_window slot id", newest, "no message lies between the two places"},
	{"publish_keys", "delete tenant_id topic key id created_at used_at", "", "as after its horizon: a publisher's repeat is stored again"},
	{"receipts", "gone", "", "how many of it were delivered that have gone since, for sums"},
	{"receipts", "attempts claim claimed_at failed finished_at lane worker lost topics", "", history},
	{"receipts", "delete subscription min_id max_id", "r.finished = 0 or exists (select from deed.partitions p where p.emptied_at is not null and r.max_id < p.upto_id)", history},
	{"redrives", "upto_status upto_provider upto_delivery delete request asked state rate chosen redriven upto_id upto_sub actor reason started_at stepped_at finished_at", "", "a request that is repeated goes on or begins again: what is dead stays dead until then, and is shown"},
	{"relanings", "delete subscription lanes mode window_n asked_at", "", "a change that is asked for again"},
	{"relays", "delete worker subscription name seen_until", "", "a process that shows itself again within a third of its lease"},
	{
		"removals", "topic name slot_base whole start list_version log_id actor reason removed_at made_by upto system_identifier at_id left_some is_final waits taken", "",
		"how far it is: what it would leave is seen when it is over; and what of the time before comes again, twice, to who has the name after it",
	},
	{"settings", "dedup_window environment max_delivery max_payload retention strict_topics installation installed_at", "", setting},
	{"settings", "list_version", "", "a later one, as the next change of a topic's subscriptions makes"},
	{"settings", "database_oid system_identifier", "", "where it belongs: what sends holds when it is another, and says so"},
	{"settings", "bound_logins removed_tenants single_tenant", "", "whether there is anything to ask for at all: a wall between tenants, and nobody is owed anything by it; the next that is bound, removed or added sets it"},
	{"subscriptions", "name door max_attempts lease backoff start created_at", "", setting},
	{"subscriptions", "door_until", "", "until when faces finish what they have of a door that was; what they finish has its receipt"},
	{"subscriptions", "read_window read_since", "r.id = 0", "what nobody declared is never a stream"},
	{"subscriptions", "list_version start_window", "", "only the backfill reads it, which has finished"},
	{"subscriptions", "since_lane", "", "which of its lanes are of the stream that it is now: they say it themselves"},
	{"subscriptions", "since", "r.since = 0", "no message was published under that version of the list"},
	{"topics", "list_version", "", "a later one, as the next change of its subscriptions makes"},
	{"run_partitions run_transitions", "delete *", "", "a run or an event that finds none is refused, aloud"},
	{"campaign_transitions", "delete from_status to_status meaning", "", "a change of status that is not listed is refused, aloud"},
	{"campaigns", "name created_at workspace_id", "", "a name, and when: whom a run reaches is held against its jobs, and what it says never changes"},
	{"delivery_holds", "delete *", "", "what is held waits for a person, and stands in its run, too"},
	{"audience_members", "address data zone", "", content},
	{"campaign_runs", "created_at started_at decide_at expires_at cancelled_at paused_at paused_why pause_base", "", "when, and why: what it is by its jobs is seen, and what it is of never changes"},
	{"job_queue", "created_at counted_at queued sending held in_doubt sent skipped failed dead missed reasons", "", "a sum for looks: what became of its people their deliveries say, and it is counted anew while any is open"},
	{"job_queue", "attempts process_after last_error", "", schedule},
	{"run_snapshots run_stale run_behind", "delete *", "", "computed from the log, and again when it is looked at: deed verify holds them against it"},
	{"plans", "created_at created_by schema_version", "", "of a plan's history: a run that begins goes by its bytes"},
	{"run_steps", "begun_at begun_claim claim claimed_at claimed_by deadline offer engine_attempt given_back key_n lease_until lost_claims parked process_after ready verdict", "", schedule},
	{"run_functions", "delete *", "", "what a program registers again when it starts: a run keeps the plan that it began with"},
	{"run_workers", "delete *", "", "a process that shows itself again within a third of its lease"},
	{"runs", "started_at differing engine engine_run_ref redacted_at", "", "of a run's history, and by whom it is executed: what it is its events say"},
	{"topics", "lanes ordered retention created_at own", "", setting},
	{"topics", "delete topic slot_base mode subscriptions", "r.own and r.subscriptions = '{}'", "nothing is published to it while nobody subscribes"},
	{"windows", "opened_at", "", "when: retention takes it sooner or later, unless something stands there"},
	{"windows", "delete base h cur upper restored_id restored_h system_identifier", `not exists (
		select from deed.lanes l
		cross join lateral (select g.* from deed.progress g where g.subscription = l.subscription and g.lane = l.lane order by g.n desc limit 1) g
		where r.n in (g.from_window, g.to_window)) and r.n not in (select s.start_window from deed.subscriptions s where s.id <> 0)`, history},
	{"windows", "base h cur upper restored_id restored_h system_identifier", "", "the next window begins at the last one: what it would leave out is seen when a lane stands there"},
}

// owing makes a database in which something of every kind is owed.
func owing(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	owingRemoved(t, db)
	subscribe(t, db, "past", "s")
	// A queue with messages in every state, and a partition that has gone.
	jobs := subscribe(t, db, "jobs", "s")
	publish(t, db, message("jobs", 1), message("jobs", 2), message("undeclared", 3))
	backfill(t, db, jobs)
	nextDay(t, db)
	older(t, db)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp() where finished_at is null`)
	if got := retain(t, db, pgtest.Worker); len(got) == 0 {
		t.Fatal("no partition has gone")
	}
	got := claim(t, worker, "jobs", "w", 1)
	finish(t, worker, jobs, got[0].Claim, got[0].ID)
	publish(t, db, message("jobs", 4), message("jobs", 5), message("jobs", 6), message("jobs", 7),
		deed.Message{Topic: "jobs", Value: 8, ProcessAfter: time.Now().Add(time.Hour)},
		deed.Message{Topic: "jobs", Value: 9, IdempotencyKey: "once"}, message("undeclared", 10))
	got = claim(t, worker, "jobs", "w", 5)
	finish(t, worker, jobs, got[0].Claim, got[0].ID)
	finish(t, worker, jobs, 77, got[1].ID) // a stale claim
	pgtest.One[bool](t, worker, `select count(*) = 2 from deed.fail($1, $2, $3, '{a,b}', null, '{retry,discard}')`, jobs, got[1].Claim, ids(got[1:3]))
	subscribe(t, db, "jobs", "later")
	db.Exec(t, pgtest.Owner, `select from deed.claim_doors($1, 10, null)`, tokenA)
	owingStream(t, db, operator)
	owingDeliveries(t, db)
	owingAnswers(t, db)
	owingRuns(t, db)
	owingCampaigns(t, db)
	owingProofs(t, db)
	// One that was removed, of which not all is taken away.
	publish(t, db, message("past", 1), message("past", 2))
	db.Exec(t, pgtest.Admin, `select deed.remove_subscription('past', 's', 'x')`)
	if _, err := operator.Redrive(t.Context(), admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "jobs"}}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, delivered_at) select c.id, c.tenant_id, now() from deed.channel_outbox c`)
	db.Exec(t, pgtest.Owner, `insert into deed.contents (tenant_id, sha256, bytes, size, type, created_at, used_at) values ('00000000-0000-0000-0000-000000000000', sha256('x'), 'x', 1, 'text/plain', now(), now())`)
	db.Exec(t, pgtest.Owner, `insert into deed.erased_contents (tenant_id, sha256, actor, tried_at) values ('00000000-0000-0000-0000-000000000000', sha256('x'), 'x', now())`)
	db.Exec(t, pgtest.Owner, `insert into deed.soft_bounces (delivery_id, tenant_id, channel, address, at) select c.id, c.tenant_id, c.channel, c.recipient, now() from deed.channel_outbox c where c.recipient is not null`)
	db.Exec(t, pgtest.Owner, `insert into deed.unmatched_events (provider, kind, account, event, event_id, message_id, at, received_at, tried_at) values ('p', 'fake', '', 'bounced', 'e', 'm', now(), now(), now())`)
	db.Exec(t, pgtest.Owner, `insert into deed.relays (subscription, worker, name, seen_until) values ($1, gen_random_uuid(), 'x', now())`, jobs)
	return db
}

// owingAnswers leaves inbound messages in every state.
func owingAnswers(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Worker, `
		select deed.accept_messages('support', array['1', '2', '3', '4', '5'], array_fill('telegram'::text, array[5]), array['a', 'b', 'c', 'c', 'd'],
			array_fill(''::text, array[5]), array_fill(''::text, array[5]), array_fill('{}'::text, array[5]), '', 'link', '00000000-0000-0000-0000-000000000000', 'w')`)
	db.Exec(t, pgtest.Worker, `
		select deed.finish_messages(array_agg(c.id), array_agg(c.claim), array['executed', 'dispatch_failed'], array[null, 'no'], array[null, null]::float8[], 10, 'w')
		from deed.claim_messages('support', 2, '1 hour', 10, 'w') c`)
	db.Exec(t, pgtest.Worker, `select deed.claim_messages('support', 1, '1 hour', 10, 'w')`)
}

// owingRemoved leaves what is left of a tenant that was removed.
func owingRemoved(t *testing.T, db *pgtest.DB) {
	t.Helper()
	gone := tenant.ID{0xd}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), gone, "gone"); err != nil {
		t.Fatal(err)
	}
	db.Providers(t, "fake", "fake")
	as(t, db, gone, message("undeclared", 1))
	db.Exec(t, pgtest.Admin, `select id from deed.reserve('{email}', '{fake}', '{gone@example.org}', '{"{}"}', array[sha256('gone')], p_tenant => $1::text::uuid)`, gone.String())
	askRemoval(t, db, gone)
	removed(t, db, gone)
	db.Exec(t, pgtest.Owner, `update deed.settings set single_tenant = true`) // as all others name none
}

// owingStream leaves lanes that were replaced, one of those that are within a
// window, and messages aside in every state.
func owingStream(t *testing.T, db *pgtest.DB, operator *admin.Client) {
	t.Helper()
	var mu sync.Mutex
	stopAfter := 1000
	running, quit := context.WithCancel(t.Context())
	defer quit()
	sink := &recorder{fail: func(m deed.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if stopAfter--; stopAfter == 0 {
			quit() // so no other page is begun
		}
		switch m.Key {
		case "dead", "discarded":
			return deed.Permanent(errors.New("never"))
		case "late":
			return deed.AfterError(time.Hour, errors.New("not yet"))
		}
		return nil
	}}
	opts := stream(sink, func(o *deed.Options) {
		o.Topics[0].Lanes = 2
		o.Subscriptions[0].BatchSize = 2
		o.Subscriptions[0].Concurrency = 1
	})
	c, err := deed.New(t.Context(), db.Pool(pgtest.Worker), opts)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	eventually(t, "the client to be ready", func() bool { return c.Ready(t.Context()) == nil })
	read := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d messages to be read", n), func() bool {
			return pgtest.One[int](t, db.Pool(pgtest.Worker), `select coalesce(sum(messages), 0) from deed.progress`) == n
		})
	}
	publish(t, db, keyed("dead", 1), keyed("dead", 2), keyed("discarded", 1), keyed("late", 1), keyed("late", 2), keyed("good", 1))
	read(6)
	id := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select l.id from deed.log l where l.key = 'discarded'`)
	if _, err := operator.Discard(t.Context(), id, "", audit.Act{By: "x", Reason: "no use"}); err != nil {
		t.Fatal(err)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: 1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lanes to be changed", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.lanes`) == 1
	})
	publish(t, db, keyed("good", 2))
	read(7)
	mu.Lock()
	stopAfter = 3
	mu.Unlock()
	var many []deed.Message
	for i := range 9 {
		many = append(many, keyed(fmt.Sprint(i), i))
	}
	publish(t, db, many...)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*) from deed.lanes l
		cross join lateral (select g.to_window from deed.progress g where g.subscription = l.subscription and g.lane = l.lane order by g.n desc limit 1) at
		where at.to_window is not null`); n != 1 {
		t.Fatalf("%d lanes stand within a window, want 1", n)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: 3}); err != nil {
		t.Fatal(err)
	}
}

// owingRuns leaves a run that goes on, with a snapshot.
func owingRuns(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Worker, `select deed.register_functions('{"{\"plan\": \"f\", \"version\": \"1\", \"steps\": {\"main\": {\"kind\": \"go\", \"handler\": \"f@1\"}}}"}'::text[]::bytea[])`)
	db.Exec(t, pgtest.Worker, `select deed.serve_queues('w', gen_random_uuid(), '{go:f@1}')`)
	db.Exec(t, pgtest.Worker, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"load": {"kind": "sleep"}, "tell": {"kind": "sleep", "after": ["load"]}}}', p_tenant => $1::text::uuid)`, tenant.ID{}.String())
	r := pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.create_run('p', '1', 'a', '{"x": 1}', p_tenant => $1::text::uuid)`, tenant.ID{}.String())
	db.Exec(t, pgtest.Owner, `
		select deed.write_events(array[$1, $1, $1]::text[]::uuid[], '{RunApproved,RunStarted,StepCompleted}', '{null,null,load}', '{1,1,1}',
		  p_data => array['{}', '{}', '{"started_at": "2026-01-02T03:04:05Z"}']::jsonb[])`, r)
	db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select r.run_id, r.tenant_id, 1, now(), '{}' from deed.runs r`)
	// One whose first step has ended, and whose second is being done.
	pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.start_run('p', '1', 'begun', p_tenant => $1::text::uuid)`, tenant.ID{}.String())
	db.Exec(t, pgtest.Worker, `
		select deed.finish_steps(array_agg(c.run_id), array_agg(c.place), array_agg(c.claim), array_agg(c.step_id), array_agg(c.attempt), array_agg('completed'::text))
		from deed.claim_steps('{deed}', 'w', 1) c`)
	db.Exec(t, pgtest.Worker, `select from deed.claim_steps('{deed}', 'w', 1)`)
	db.Exec(t, pgtest.Owner, `insert into deed.run_behind (run_id, seq) select r.run_id, 1 from deed.runs r`)
	db.Exec(t, pgtest.Owner, `insert into deed.run_stale (run_id, tenant_id, since, expected_seq, got_seq) select r.run_id, r.tenant_id, now(), 2, 3 from deed.runs r`)
}

// owingProofs leaves a seal of the audit log.
func owingProofs(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		select deed.put_audit_seal(1, max(a.n), decode(repeat('00', 40 * count(*)::int), 'hex'), decode(repeat('00', 32), 'hex'), decode(repeat('01', 32), 'hex'),
		  '0123456789abcdef', decode(repeat('02', 64), 'hex'), now(), array[max(a.n)], array['reason'], array[decode(repeat('03', 16), 'hex')], array[decode(repeat('04', 32), 'hex')])
		from deed.audit_log a`)
}

// owingCampaigns leaves a run whose deliveries are reserved.
func owingCampaigns(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Providers(t, "fake", "campaigns")
	c := pgtest.One[string](t, db.Pool(pgtest.App), `select campaign_id::text from deed.put_campaign('spring', '{"text": "hello"}')`)
	a := pgtest.One[string](t, db.Pool(pgtest.App), `select audience_id::text from deed.put_audience('people', 'chat')`)
	db.Exec(t, pgtest.App, `select deed.add_audience_members($1::text::uuid, 0, array(select 'a' || i from generate_series(1, 2) i))`, a)
	db.Exec(t, pgtest.App, `select deed.finish_audience($1::text::uuid, 2)`, a)
	db.Exec(t, pgtest.App, `select deed.deploy_campaign($1::text::uuid, $2::text::uuid, '1', 'chat', p_options => '{"provider": "campaigns", "transactional": true}')`, c, a)
	db.Exec(t, pgtest.Worker, `select deed.claim_queued_jobs('w', 1)`)
	db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, j.claim, 'w') from deed.job_queue j where j.claim is not null`)
	db.Exec(t, pgtest.App, `select deed.pause_run(r.id) from deed.campaign_runs r`)
}

// provider judges by the recipient.
type provider struct{}

func (provider) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "fake", Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey}
}
func (provider) Render(d delivery.Draft) ([]byte, error) { return d.Payload, nil }
func (provider) Send(_ context.Context, r delivery.Reservation) delivery.Outcome {
	switch name, _, _ := strings.Cut(r.Recipient(), "@"); name {
	case "refused":
		return delivery.Refused(errors.New("no"))
	case "doubt":
		return delivery.Unknown(errors.New("cut off"))
	}
	return delivery.Accepted("m-" + r.ID())
}

// owingDeliveries leaves deliveries in every state.
func owingDeliveries(t *testing.T, db *pgtest.DB) {
	t.Helper()
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{
		Providers:    map[string]delivery.ProviderOptions{"fake": {Provider: provider{}}},
		PollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := l.Register(ctx); err != nil {
		t.Fatal(err)
	}
	go func() { done <- l.Run(ctx) }()
	db.Exec(t, pgtest.Admin, `select deed.suppress('email', '{gone@example.com,other@example.com}', 'opted out', 'x')`)
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error { return knowPeople(t.Context(), tx, "somebody") }); err != nil {
		t.Fatal(err)
	}
	reserve := func(name string, more ...func(*delivery.Delivery)) {
		d := delivery.Delivery{
			Channel: delivery.Email, Provider: "fake", Recipient: name + "@example.com", Payload: json.RawMessage(`{"subject":"x"}`), Key: delivery.NewKey(name),
		}
		for _, m := range more {
			m(&d)
		}
		if _, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"refused", "doubt", "fine", "gone"} {
		reserve(name)
	}
	eventually(t, "the deliveries to be called", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.channel_outbox where finished_at is not null or doubt_since is not null`) == 4
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	reserve("tomorrow", func(d *delivery.Delivery) { d.ProcessAfter = time.Now().Add(24 * time.Hour) })
}

// Whatever loses a row of what somebody is owed, deed.verify says so: every row
// of every table is deleted, and every column of it changed, one at a time.
func TestVerify_NoLossPassesAsClean(t *testing.T) {
	t.Parallel()
	db := owing(t)
	db.Broken()
	owner := db.Pool(pgtest.Owner)
	for _, v := range texts(t, db, `select concat_ws(': ', invariant, subscription, message_id, detail) from deed.verify()`) {
		t.Errorf("before anything is changed: %s", v)
	}
	if t.Failed() {
		t.FailNow()
	}
	// A change that the database itself refuses is seen, too.
	db.Exec(t, pgtest.Owner, `
		create function public.seen(p_change text) returns text language plpgsql as $f$
		declare v_found text; v_rows int;
		begin
		  execute p_change;
		  get diagnostics v_rows = row_count;
		  if v_rows = 0 then return 'nothing to change'; end if;
		  select string_agg(distinct v.invariant, ', ') into v_found from deed.verify() v;
		  raise exception using errcode = 'ZZZZZ', message = coalesce(v_found, '');
		exception
		  when sqlstate 'ZZZZZ' then return sqlerrm;
		  when others then return 'refused: ' || sqlerrm;
		end $f$`)
	used := map[harmless]bool{}
	known := map[string]bool{} // whatever the row: the first one will do
	conn := db.Conn(t, pgtest.Owner)
	for _, table := range texts(t, db, `
		select c.relname from pg_class c
		where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
		order by 1`) {
		changes := changesOf(t, owner, table)
		places := texts(t, db, fmt.Sprintf(`select format('%%s where ctid = %%L', tableoid::regclass, ctid) from deed.%s`, table))
		if len(places) == 0 && !slices.Contains([]string{"contracts", "purges", "rate_limits", "lane_tokens", "delivered", "tenant_logins", "shut_logins", "pauses", "running_calls", "sink_pauses", "campaign_workers"}, table) && !strings.HasSuffix(table, "_lock") { // nothing is owed by these
			t.Errorf("table %s is empty: put into it what somebody may be owed", table)
		}
		for _, place := range places {
			for _, c := range changes {
				if known[table+"."+c.name] {
					continue
				}
				sql := fmt.Sprintf(c.sql, place)
				if strings.HasPrefix(sql, "update") {
					from, where, _ := strings.Cut(place, " where ")
					sql = fmt.Sprintf(c.sql, from, where)
				}
				seen := pgtest.One[string](t, conn, `select public.seen($1)`, sql)
				if seen != "" {
					continue
				}
				if h, ok := isHarmless(t, owner, table, c.name, place); ok {
					used[h] = true
					known[table+"."+c.name] = h.where == ""
					continue
				}
				row := pgtest.One[string](t, owner, `select to_jsonb(r)::text from `+strings.Replace(place, " where ", " r where r.", 1))
				t.Errorf("%s of %s is not seen: %s; the row: %.600s", c.name, table, sql, row)
			}
		}
	}
	for _, h := range harmlessChanges {
		if !used[h] {
			t.Errorf("%s of %s is said to be harmless, and is seen, or there is no such row: %s", h.change, h.table, h.where)
		}
	}
}

// deed.verify calls a part of it where a row is that the part could tell something
// about: with the rows of any one table alone, it tells all that its parts tell.
func TestVerify_NoPartIsLeftOut(t *testing.T) {
	t.Parallel()
	db := owing(t)
	db.Broken()
	db.Exec(t, pgtest.Owner, `
		create function public.left_out(p_only text) returns text language plpgsql as $f$
		declare v_table regclass; v_parts text; v_left text;
		begin
		  set local session_replication_role = replica;
		  for v_table in
		    select c.oid from pg_class c
		    where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> p_only
		  loop
		    execute format('delete from %s', v_table);
		  end loop;
		  select '(' || string_agg(format('select invariant from %s', p.oid::regprocedure), ' union all ') || ')' into v_parts
		  from pg_proc p
		  where p.pronamespace = 'deed'::regnamespace and p.proname like 'verify\_%';
		  execute 'select string_agg(distinct l.invariant, $1) from (' || v_parts || ' except all select v.invariant from deed.verify() v) l' into v_left using ', ';
		  raise exception using errcode = 'ZZZZZ', message = coalesce(v_left, '');
		exception when sqlstate 'ZZZZZ' then
		  return sqlerrm;
		end $f$`)
	conn := db.Conn(t, pgtest.Owner)
	// All that the parts read; of what else there is they tell nothing.
	for _, table := range []string{
		"progress", "lanes", "former_lanes", "pending", "log", "kept", "receipts", "channel_outbox", "audit_log", "channel_messages",
		"runs", "run_log", "run_requests", "run_snapshots", "plans", "plan_steps", "run_steps", "audiences", "campaign_runs", "job_queue",
	} {
		if left := pgtest.One[string](t, conn, `select public.left_out($1)`, table); left != "" {
			t.Errorf("with the rows of %s alone deed.verify leaves out: %s", table, left)
		}
	}
}

type change struct{ name, sql string }

// changesOf are the deletion of a row, and of each column that may be changed
// one other value, and none where it may be null.
func changesOf(t *testing.T, owner pgtest.Queryer, table string) (list []change) {
	t.Helper()
	list = []change{{"delete", "delete from %s"}}
	type column struct {
		Name, Type string
		Nullable   bool
	}
	raw := pgtest.One[[]byte](t, owner, `
		select jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, null), 'nullable', not a.attnotnull))
		from pg_attribute a
		where a.attrelid = ('deed.' || $1)::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''`, table)
	var columns []column
	if err := json.Unmarshal(raw, &columns); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{
		"bigint": "coalesce(%s, 0) + 1", "smallint": "coalesce(%s, 0::smallint) + 1::smallint", "integer": "coalesce(%s, 0) + 1", "double precision": "coalesce(%s, 0) + 1", "boolean": "not coalesce(%s, false)",
		"timestamp with time zone": "coalesce(%s, now()) + interval '400 days'", "interval": "coalesce(%s, interval '0') + interval '1 day'",
		"text": "coalesce(%s, '') || 'x'", "uuid": "gen_random_uuid()", "jsonb": `'{"a": 1}'`, "bytea": `'\x00'`, "xid8": "((%s)::text::bigint + 1000)::text::xid8",
		"pg_snapshot": "pg_current_snapshot()", "bigint[]": "%s || 1::bigint", "double precision[]": "%s || 1::float8", "integer[]": "%s || 1", "text[]": "%s || 'x'::text", "uuid[]": "%s || gen_random_uuid()", "bytea[]": "%s || '\\x00'::bytea",
	}
	for _, c := range columns {
		value, ok := other[c.Type]
		if !ok {
			t.Fatalf("no other value of %s for %s.%s", c.Type, table, c.Name)
		}
		if strings.Contains(value, "%s") {
			value = fmt.Sprintf(value, c.Name)
		}
		list = append(list, change{c.Name, "update %s set " + c.Name + " = " + value + " where %s"})
		if c.Nullable {
			list = append(list, change{c.Name, "update %s set " + c.Name + " = null where " + c.Name + " is not null and %s"})
		}
	}
	return list
}

func isHarmless(t *testing.T, owner pgtest.Queryer, table, name, place string) (harmless, bool) {
	t.Helper()
	for _, h := range harmlessChanges {
		if slices.Contains(strings.Fields(h.table), table) && (slices.Contains(strings.Fields(h.change), name) || name != "delete" && strings.HasSuffix(h.change, "*")) &&
			pgtest.One[bool](t, owner, `select exists (select from `+strings.Replace(place, " where ", " r where r.", 1)+` and `+"("+cmp.Or(h.where, "true")+`))`) {
			return h, true
		}
	}
	return harmless{}, false
}

// texts are those that a query answers with.
func texts(t *testing.T, db *pgtest.DB, sql string) []string {
	t.Helper()
	rows, err := db.Pool(pgtest.Owner).Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}
