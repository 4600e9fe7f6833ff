package doctor_test

import (
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

// A provider that is paused and dead deliveries are named, with why.
func deliveryTroubles(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	well := examine(t, db.Pool(pgtest.Admin), doctor.Options{})
	find(t, well, "provider-paused", doctor.OK, "")
	find(t, well, "deliveries-dead", doctor.OK, "")
	find(t, well, "deliveries-elsewhere", doctor.OK, "")
	find(t, well, "deliveries-deferred", doctor.OK, "")
	find(t, well, "relay-idle", doctor.OK, "")
	db.Providers(t, "smtp", "mail")
	db.Exec(t, pgtest.Owner, `select from deed.reserve('{email,email,email}', '{mail,mail,mail}', '{a@example.com,b@example.com,c@example.com}', array['{}', '{}', '{}']::jsonb[],
		array[deed.idempotency_key('a'), deed.idempotency_key('b'), deed.idempotency_key('c')], p_tenant => '00000000-0000-0000-0000-000000000000')`)
	db.Broken() // nothing recorded that it died
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'dead', last_error = 'given up', finished_at = clock_timestamp() where recipient = 'a@example.com'`)
	// Nobody may put these back: of a campaign's run, proved to have been accepted, and of somebody who was erased.
	db.Exec(t, pgtest.Owner, `select from deed.reserve('{email,email,email}', '{mail,mail,mail}', '{run@example.com,proved@example.com,erased@example.com}', array['{}', '{}', '{}']::jsonb[],
		array[deed.idempotency_key('d'), deed.idempotency_key('e'), deed.idempotency_key('f')], p_tenant => '00000000-0000-0000-0000-000000000000')`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'dead', last_error = 'not for anybody to decide', finished_at = clock_timestamp(),
		run_id = case recipient when 'run@example.com' then gen_random_uuid() end, proved_at = case recipient when 'proved@example.com' then clock_timestamp() end,
		erased_at = case recipient when 'erased@example.com' then clock_timestamp() end
		where recipient in ('run@example.com', 'proved@example.com', 'erased@example.com')`)
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, tenant_id, since, until, why) values
		('mail', '', default, clock_timestamp() - interval '1 hour', '9999-01-02 03:04Z', 'status 429 daily_quota_exceeded'),
		('hooks', 'shop.example', default, clock_timestamp() - interval '1 hour', clock_timestamp(), 'status 503'),
		('hooks', 'shop.example', 'bbbbbbbb-0000-0000-0000-000000000000', clock_timestamp() - interval '2 hours', clock_timestamp(), 'no connection')`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set request_kind = 'smtp', request_account = 'shop@old.example', process_after = clock_timestamp() + interval '110 seconds' -- not due, and within the two minutes that are looked at
		where recipient = 'c@example.com'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = clock_timestamp() - interval '3 hours 1 minute', last_error = '451 greylisted'
		where recipient = 'b@example.com'`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = clock_timestamp() where recipient = 'c@example.com'`)
	db.Exec(t, pgtest.Owner, `select deed.note_idle('relay-1', 'mail', 'smtp', 'shop@new.example', true)`)
	found := examine(t, db.Pool(pgtest.Admin), doctor.Options{})
	says(t, find(t, found, "provider-paused", doctor.Warn, "mail"), "1h", "nobody is called before 9999-01-02 03:04 UTC", "1 deliveries", "daily_quota_exceeded")
	says(t, find(t, found, "provider-paused", doctor.Warn, "hooks shop.example"), "for 2 tenants for 2h", "no connection")
	says(t, find(t, found, "deliveries-dead", doctor.Warn, "mail"), "1 dead", "given up")
	says(t, find(t, found, "deliveries-deferred", doctor.Warn, "mail"), "1 deliveries", "3h", "451 greylisted")
	says(t, find(t, found, "deliveries-elsewhere", doctor.Warn, "mail"), "served as smtp", "1 deliveries", "smtp shop@old.example")
	says(t, find(t, found, "relay-idle", doctor.Warn, "mail"), "registered as smtp, sandbox false", "relay-1 serves it as smtp shop@new.example, sandbox true")
}

// A provider of which too much bounces or is complained about is named; one of few is not.
func badRates(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "bounce-rate", doctor.OK, "")
	for provider, n := range map[string]int{"mail": 100, "few": 99, "well": 1000} {
		db.Exec(t, pgtest.Owner, `
			with quiet as (select set_config('session_replication_role', 'replica', true))
			insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, status, created_at, updated_at, finished_at, sent_at)
			select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to($1::text || n, 'UTF8')), 'email', $1::text, 'a.example', 'u@a.example', '{}', 'sent',
			  now(), now(), now() - interval '1 minute', now() - interval '1 minute'
			from quiet, generate_series(1, $2::int) n`, provider, n)
		db.Exec(t, pgtest.Owner, `
			insert into deed.delivery_feedback (delivery_id, tenant_id, bounced_at, complained_at)
			select c.id, c.tenant_id, case when c.n <= 6 then now() end, case when c.n > 3 and $1::text <> 'well' then now() end
			from (select o.id, o.tenant_id, row_number() over () as n from deed.channel_outbox o where o.provider = $1::text) c where c.n <= 6`, provider)
	}
	db.Broken() // nothing recorded how they were sent
	found := examine(t, db.Pool(pgtest.Admin), doctor.Options{})
	says(t, find(t, found, "bounce-rate", doctor.Warn, "mail"), "100 messages", "6 bounced (6 %)")
	says(t, find(t, found, "complaint-rate", doctor.Warn, "mail"), "100 messages", "3 were complained about (3 %)")
	for _, f := range found {
		if (f.Name == "bounce-rate" || f.Name == "complaint-rate") && f.Subject != "mail" {
			t.Errorf("%+v", f)
		}
	}
}
