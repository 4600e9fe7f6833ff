package doctor_test

import (
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

// campaignRun makes a run of a campaign with one member, and returns its id.
func campaignRun(t *testing.T, db *pgtest.DB, options string) string {
	t.Helper()
	db.Providers(t, "fake", "fake")
	app := db.Pool(pgtest.App)
	campaign := pgtest.One[string](t, app, `select campaign_id::text from deed.put_campaign('spring', '{"text": "hello"}')`)
	audience := pgtest.One[string](t, app, `select audience_id::text from deed.put_audience('all', 'chat')`)
	db.Exec(t, pgtest.App, `select deed.add_audience_members($1::text::uuid, 0, '{@ann}')`, audience)
	db.Exec(t, pgtest.App, `select deed.finish_audience($1::text::uuid, 1)`, audience)
	return pgtest.One[string](t, app, `select run_id::text from deed.deploy_campaign($1::text::uuid, $2::text::uuid, '1', 'chat', p_options => '{"provider": "fake", "transactional": true}'::jsonb || $3::text::jsonb)`,
		campaign, audience, options)
}

// A run that has paused itself is named, with why, until a person decides.
func pausedRun(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	run := campaignRun(t, db, `{"pause_on": {"failed": "5%", "from": 1}}`)
	db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, j.claim, 'w') from deed.claim_queued_jobs('w', 1) j`)
	worker := db.Pool(pgtest.Worker)
	find(t, examine(t, worker, impatient), "run-paused-itself", doctor.OK, "")
	db.Broken() // nobody has called
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'sending', request = payload::text::bytea, claim = 1, attempts = 1, first_called_at = now(), called_at = now()`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set status = 'failed', finished_at = now()`)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set sent = 0, skipped = 0, missed = 0, failed = 1, dead = 0`)
	db.Exec(t, pgtest.Worker, `select deed.pause_failing('w')`)
	says(t, find(t, examine(t, worker, impatient), "run-paused-itself", doctor.Warn, run), "failed: 1 of 1 that have ended, over 5%")
	db.Exec(t, pgtest.App, `select deed.resume_run($1::text::uuid)`, run)
	find(t, examine(t, worker, impatient), "run-paused-itself", doctor.OK, "")
}

// Jobs that nobody expands are named, with their run; those of a test's rest are not as long as it is not decided.
func waitingJobs(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	run := campaignRun(t, db, `{}`)
	worker := db.Pool(pgtest.Worker)
	patient := doctor.Options{}
	find(t, examine(t, worker, patient), "campaign-unexpanded", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = process_after - interval '10 minutes'`)
	says(t, find(t, examine(t, worker, patient), "campaign-unexpanded", doctor.Warn, run), "campaign spring", "due for up to 10m")
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue disable trigger user; update deed.job_queue set part = 'rest', members = 1; alter table deed.job_queue enable trigger user`)
	find(t, examine(t, worker, patient), "campaign-unexpanded", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `alter table deed.job_queue disable trigger user; update deed.job_queue set part = null, members = null; alter table deed.job_queue enable trigger user`)
	db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, j.claim, 'w') from deed.claim_queued_jobs('w', 1) j`)
	find(t, examine(t, worker, patient), "campaign-unexpanded", doctor.OK, "")
}

// An audience that was never finished is named after a day; who loads it on finds what is there.
func unfinishedAudience(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker, app := db.Pool(pgtest.Worker), db.Pool(pgtest.App)
	audience := pgtest.One[string](t, app, `select audience_id::text from deed.put_audience('people', 'chat')`)
	db.Exec(t, pgtest.App, `select deed.add_audience_members($1::text::uuid, 0, '{@ann,@bob}')`, audience)
	find(t, examine(t, worker, impatient), "audience-unfinished", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `alter table deed.audiences disable trigger user; update deed.audiences set created_at = created_at - interval '2 days'; alter table deed.audiences enable trigger user`)
	says(t, find(t, examine(t, worker, impatient), "audience-unfinished", doctor.Warn, "people"), "for chat", "has 2 members")
	db.Exec(t, pgtest.App, `select deed.add_audience_members(p.audience_id, p.members, '{@cid}') from deed.put_audience('people', 'chat') p`)
	db.Exec(t, pgtest.App, `select deed.finish_audience($1::text::uuid, 3)`, audience)
	find(t, examine(t, worker, impatient), "audience-unfinished", doctor.OK, "")
}

// Seals that stand still are found, where there are any; a new one ends it.
func unsealedAudit(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Broken() // seals of nothing
	worker := db.Pool(pgtest.Worker)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (actor, action, subject_type, at) values ('ann', 'x', 'topic', now() - interval '1 hour')`)
	find(t, examine(t, worker, impatient), "audit-unsealed", doctor.OK, "")
	seal := func(k int, upto string) {
		t.Helper()
		db.Exec(t, pgtest.Owner, `
			insert into deed.audit_seals (k, from_n, upto_n, rows, leaves, previous, sha256, key, signature, at)
			select $1, coalesce((select max(upto_n) from deed.audit_seals), 0), u.n, 1, decode(repeat('00', 40), 'hex'), decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), repeat('0', 16), decode(repeat('00', 64), 'hex'), now()
			from (select (`+upto+`)::bigint as n) u`, k)
	}
	seal(1, `select min(n) from deed.audit_log`)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (actor, action, subject_type, at) values ('ann', 'x', 'topic', now() - interval '1 hour')`)
	says(t, find(t, examine(t, worker, impatient), "audit-unsealed", doctor.Warn, ""), "seals of the audit log stand still")
	seal(2, `select max(n) from deed.audit_log`)
	find(t, examine(t, worker, impatient), "audit-unsealed", doctor.OK, "")
}
