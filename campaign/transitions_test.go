package campaign_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// bystander sees each change of a delivery's status where it is written, and knows who makes it: as says so.
const bystander = `
	create table public.seen (seq bigint generated always as identity, id uuid, recipient text, change text, who text, since timestamptz default transaction_timestamp());
	create function public.see() returns trigger language plpgsql security definer as $$
	begin
	  if tg_op = 'INSERT' or new.status <> old.status then
	    insert into public.seen (id, recipient, change, who)
	    values (new.id, coalesce(new.recipient, ''), case when tg_op = 'INSERT' then '' else old.status end || '>' || new.status, current_setting('test.who', true));
	  end if;
	  return null;
	end
	$$;
	create trigger zz_see after insert or update on deed.channel_outbox for each row execute function public.see()`

// theatre is a run whose deliveries are brought to an end in all the ways that there are.
type theatre struct {
	t   *testing.T
	db  *pgtest.DB
	run string
}

// as has statements executed in one transaction that the bystander takes for who's.
func (s *theatre) as(role pgtest.Role, who string, statements ...string) {
	s.t.Helper()
	err := pgx.BeginFunc(s.t.Context(), s.db.Pool(role), func(tx pgx.Tx) error {
		if _, err := tx.Exec(s.t.Context(), `select set_config('test.who', $1, true)`, who); err != nil {
			return err
		}
		for _, q := range statements {
			if _, err := tx.Exec(s.t.Context(), q); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("%s: %v", who, err)
	}
}

// of chooses the deliveries of people.
func of(people ...int) string {
	var list []string
	for _, i := range people {
		list = append(list, "'"+address(campaign.Email, i)+"'")
	}
	return `c.recipient in (` + strings.Join(list, ", ") + `)`
}

func (s *theatre) expand(who string) {
	s.t.Helper()
	s.as(pgtest.Worker, who, `select e.state from deed.claim_queued_jobs('`+who+`', 10) j cross join lateral deed.expand_job(j.id, j.claim, '`+who+`') e`)
}

// claim has everything that is due claimed, and attempt that of these people attempted.
func (s *theatre) claim(who string) {
	s.t.Helper()
	s.as(pgtest.Worker, who, `select deed.claim_deliveries('fake', '`+who+`', 1000, '1 minute', p_runs => true)`)
}

func (s *theatre) attempt(who string, people ...int) {
	s.t.Helper()
	s.as(pgtest.Worker, who, `
		select deed.attempt(array_agg(c.id order by c.id), array_agg(c.claim order by c.id), array_agg('x'::bytea), null, '1 minute', '`+who+`')
		from deed.channel_outbox c where c.run_id = '`+s.run+`' and `+of(people...))
}

// settle notes what came of calls and settles them, as a ledger does, in one transaction.
func (s *theatre) settle(who, kind, options string, people ...int) {
	s.t.Helper()
	from := ` from deed.channel_outbox c where c.run_id = '` + s.run + `' and ` + of(people...)
	texts := `array_agg(case when '` + kind + `' <> 'accepted' then '` + kind + `, says it of ' || split_part(c.recipient, '@', 1) end order by c.id)`
	var statements []string
	outcomes := map[string]string{"later": "not now", "deferred": "deferred", "outage": "outage", "unreachable": "outage", "refused": "refused", "bad_address": "bad address", "opted_out": "opted out", "unknown": "unknown"}
	if outcome := outcomes[kind]; outcome != "" {
		statements = append(statements, `
			select deed.note_attempts(array_agg(c.id order by c.id), array_agg(c.claim order by c.id), array_agg(c.attempts order by c.id), array_agg('`+outcome+`'::text), array_agg(null::text),
				array_agg(null::text), `+texts+`, array_agg(null::text), array_agg(false), array_agg(0::float8), '`+who+`')`+from)
	}
	s.as(pgtest.Worker, who, append(statements, `
		select deed.settle(array_agg(c.id order by c.id), array_agg(c.claim order by c.id), array_agg('`+kind+`'::text), array_agg(case when '`+kind+`' = 'accepted' then 'm' end),
			`+texts+`, array_agg(null::float8), '`+who+`'`+options+`)`+from)...)
}

func (s *theatre) owner(q string) {
	s.t.Helper()
	s.db.Exec(s.t, pgtest.Owner, q)
}

// passed lets what waits be due, and leases run out.
func (s *theatre) passed(people ...int) {
	s.t.Helper()
	s.owner(`update deed.channel_outbox c set process_after = case when c.process_after is not null then now() - interval '1 second' end,
		lease_until = case when c.lease_until is not null then now() - interval '1 second' end where ` + of(people...))
}

func (s *theatre) decide(person int, decision string) {
	s.t.Helper()
	s.as(pgtest.Admin, "ann", `select deed.settle_delivery(c.id, '`+decision+`', 'ann has asked p`+fmt.Sprint(person)+`', 'ann') from deed.channel_outbox c where `+of(person))
}

func (s *theatre) erase(person int) {
	s.t.Helper()
	s.as(pgtest.Admin, "gdpr", fmt.Sprintf(`select deed.erase_contact(m.contact_id, 'asked to', 'gdpr') from deed.audience_members m where m.n = %d`, person+1))
}

// Each change of status of a run's deliveries is in its audit log once, whoever made it and however many
// it made at a time: as somebody saw it who stood beside the table.
func TestContract_C6_EachTransitionOfDeliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &theatre{t: t, db: db, run: deploy(t, db, request(t, db, 30))}
	s.owner(bystander)
	suppress := func(person int, why string) {
		t.Helper()
		s.as(pgtest.Admin, "ann", fmt.Sprintf(`select deed.suppress('email', array['%s'], '%s', 'ann')`, address(campaign.Email, person), why))
	}
	suppress(0, "left")
	s.erase(1)
	s.expand("w0")
	suppress(2, "has left since")
	suppress(3, "has complained since")

	s.claim("w1")
	s.settle("w1", "unusable", "", 23)
	s.attempt("w1", 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22, 24, 25, 29)
	s.settle("w1", "accepted", "", 4, 5)
	s.settle("w1", "refused", "", 6, 7)
	s.settle("w1", "bad_address", "", 8)
	s.settle("w1", "opted_out", "", 9)
	s.settle("w1", "later", "", 10, 11)
	s.settle("w1", "later", ", p_max_attempts => 1", 12, 29)
	s.settle("w1", "deferred", "", 13)
	s.settle("w1", "outage", "", 14)
	s.settle("w1", "release", "", 15)
	s.settle("w1", "unknown", "", 16, 25)
	s.settle("w1", "apart", "", 24)

	// Somebody else finds what w1 was calling when it died, and nothing tells what became of it.
	const doubts = `select deed.claim_doubts('fake', 'w2', 100, '1 minute', false, false)`
	s.passed(16, 17, 18, 19, 25)
	s.as(pgtest.Worker, "w2", doubts)
	s.decide(17, "sent")
	s.decide(18, "failed")
	s.decide(19, "send_again")
	s.as(pgtest.Worker, "hook", `select deed.prove_delivery(c.id, 'm16', 'hook') from deed.channel_outbox c where `+of(16, 25))
	s.passed(22)
	s.as(pgtest.Worker, "w2", doubts)
	s.erase(22) // and no more is said of why, of those who stand in one row with them
	s.passed(20, 21, 26, 27, 28)
	s.owner(`update deed.channel_outbox c set lost_claims = 14 where ` + of(20))
	s.erase(21)
	waitFor(t, "the erasure of what was in somebody's hand", func() bool {
		s.as(pgtest.Worker, "gdpr", `select deed.erase_step(100, 'w3')`)
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `
			select not exists (select from deed.channel_outbox c join deed.contacts k on k.id = c.contact_id where k.erased_at is not null and c.finished_at is null)`)
	})

	s.passed(10, 11, 13, 14, 15, 24)
	s.claim("w2")
	s.attempt("w2", 10, 11, 13, 14, 15, 19, 24)
	s.settle("w2", "accepted", "", 10, 14, 15, 19)
	s.settle("w2", "deferred", ", p_give_up => '0'", 13)
	s.settle("w2", "later", "", 11, 24)

	s.passed(11, 24)
	s.claim("w2")
	s.as(pgtest.App, "bob", `select deed.cancel_run('`+s.run+`', 'enough', p_actor => 'bob')`)
	s.attempt("w2", 11, 24)
	s.passed(26, 27, 28)
	s.as(pgtest.Worker, "w3", `select deed.sweep_runs(100, 'w3')`)
	want(t, "open", pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(recipient || ' ' || status, ', '), '') from deed.channel_outbox where finished_at is null`), "")

	s.compare()
	s.stories(map[int]string{
		0:  "w0 reserve >skipped: suppressed: left",
		2:  "w0 reserve >queued; w1 attempt queued>skipped: suppressed: has left since",
		3:  "w0 reserve >queued; w1 attempt queued>skipped: suppressed: has complained since",
		5:  "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>sent: accepted",
		7:  "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>failed: refused, says it of p7",
		8:  "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>failed: bad_address, says it of p8",
		9:  "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>skipped: opted_out, says it of p9",
		10: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: later, says it of p10; w2 attempt queued>sending; w2 settle sending>sent: accepted",
		11: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: later, says it of p11; w2 attempt queued>sending; w2 settle sending>queued: later, says it of p11; w2 attempt queued>skipped: cancelled",
		12: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>dead: later, says it of p12",
		13: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: deferred, says it of p13; w2 attempt queued>sending; w2 settle sending>dead: deferred, says it of p13",
		14: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: outage, says it of p14; w2 attempt queued>sending; w2 settle sending>sent: accepted",
		15: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: release, says it of p15; w2 attempt queued>sending; w2 settle sending>sent: accepted",
		16: "w0 reserve >queued; w1 attempt queued>sending; w1 doubt sending>sending: unknown, says it of p16; w2 hold sending>sending: by its guarantee; hook reconcile sending>sent: the provider said so",
		17: "w0 reserve >queued; w1 attempt queued>sending; w2 doubt sending>sending: the lease ran out during the call; w2 hold sending>sending: by its guarantee; ann settle sending>sent: ann has asked p17",
		19: "w0 reserve >queued; w1 attempt queued>sending; w2 doubt sending>sending: the lease ran out during the call; w2 hold sending>sending: by its guarantee; ann settle sending>queued: ann has asked p19; w2 attempt queued>sending; w2 settle sending>sent: accepted",
		20: "w0 reserve >queued; w2 settle queued>dead: claim lost 15 times: each time the worker died or froze before it could report",
		23: "w0 reserve >queued; w1 settle queued>failed: unusable, says it of p23",
		24: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>queued: apart, says it of p24; w2 attempt queued>sending; w2 settle sending>queued: later, says it of p24; w2 attempt queued>skipped: cancelled",
		27: "w0 reserve >queued; w3 sweep queued>skipped: cancelled",
		29: "w0 reserve >queued; w1 attempt queued>sending; w1 settle sending>dead: later, says it of p29",
	})
}

// What a run's audit log says costs by the run, however much there is of others, for a tenant as for the owner, and
// where nobody has analysed the tables as where somebody has. Once the run is sealed its jobs are told in the stead of
// what they reserved, and what was done to each delivery stays.
func TestContract_C6_TransitionsCostByTheRun(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	s := &theatre{t: t, db: db, run: deploy(t, db, request(t, db, 1500))}
	s.owner(`alter table deed.audit_log set (autovacuum_enabled = off); alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	s.expand("w0")
	s.claim("w1")
	s.as(pgtest.Worker, "w1", `
		select deed.attempt(array_agg(c.id), array_agg(c.claim), array_agg('x'::bytea), null, '1 minute', 'w1') from deed.channel_outbox c where c.claim is not null`, `
		select deed.settle(array_agg(c.id), array_agg(c.claim), array_agg('refused'::text), array_agg(null::text), array_agg('no'::text), array_agg(null::float8), 'w1') from deed.channel_outbox c where c.status = 'sending'`)
	told := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.App), `
			select string_agg(concat_ws(' ', action, from_status, to_status, reason, n, affected), ', ' order by action, to_status, affected)
			from (select action, from_status, to_status, reason, count(*) as n, sum(affected) as affected from deed.campaign_audit_log where run_id = $1::text::uuid and subject_type = 'delivery' group by 1, 2, 3, 4) g`, s.run)
	}
	want(t, "what is told", told(), "attempt queued sending 1000 1000, reserve queued 1500 1500, settle sending failed no 1000 1000")

	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	look := `select count(*), count(reason) from deed.campaign_audit_log where run_id = '` + s.run + `'`
	alone := map[pgtest.Role]int{}
	for _, role := range []pgtest.Role{pgtest.Owner, pgtest.App} {
		conn := db.Conn(t, role)
		pgtest.Measure(t, conn, pgtest.Any, look)
		alone[role] = pgtest.Measure(t, conn, pgtest.Least, look).Buffers
	}
	db.Broken() // deliveries of nobody
	db.ExecSteps(t, pgtest.Owner, n, `
		insert into deed.channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, lane, recipient, payload, guarantee, run_id, job_id, due, payload_bytes, created_at, updated_at)
		select md5(n::text)::uuid, '00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'fake', '', n || '@example.com', '{}', 'at_most_once',
			md5((n % 100)::text)::uuid, md5((n % 1000)::text)::uuid, true, 2, now(), now()
		from generate_series($1::int, $2::int) n`)
	db.ExecSteps(t, pgtest.Owner, n/10, `
		insert into deed.audit_log (tenant_id, run_id, actor, action, subject_type, from_status, to_status, affected, details)
		select '00000000-0000-0000-0000-000000000000', md5((n % 100)::text)::uuid, 'w', 'attempt', 'delivery', 'queued', 'sending', 10, (select jsonb_build_object('ids', jsonb_agg(md5((n * 10 + i)::text)::uuid)) from generate_series(0, 9) i)
		from generate_series($1::int, $2::int) n`)
	for _, analysed := range []bool{false, true} {
		if analysed {
			s.owner(`analyze deed.audit_log, deed.channel_outbox, deed.delivery_attempts, deed.campaign_runs`)
		}
		for _, role := range []pgtest.Role{pgtest.Owner, pgtest.App} {
			conn := db.Conn(t, role)
			pgtest.Measure(t, conn, pgtest.Any, look)
			b := pgtest.Measure(t, conn, 2*alone[role], look).Buffers
			t.Logf("%s, analysed %v: %d buffers; alone %d", role, analysed, b, alone[role])
			if b > 2*alone[role] {
				t.Errorf("%s, analysed %v: what 1500 deliveries came to is read with %d buffers beside %d others, and with %d alone", role, analysed, b, n, alone[role])
			}
			// Most of what it costs are the deliveries, so that all of the log beside them is not seen in it.
			rows, err := conn.Query(t.Context(), `explain `+look)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			all := strings.Join(plan, "\n")
			if by := strings.Count(all, "Index Scan using audit_log_run_idx") + strings.Count(all, "Bitmap Index Scan on audit_log_run_idx"); err != nil || analysed && by != 3 {
				t.Errorf("%s: %v: the audit log is not gone through by the run alone in all three parts:\n%s", role, err, all)
			}
		}
	}

	s.owner(`alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set finished_at = now(), status = 'failed', sealed_at = now(), sealed = '{}'; alter table deed.campaign_runs enable trigger user`)
	want(t, "what is told once it is sealed", told(), "attempt queued sending 1000 1000, reserve queued 2 1500, settle sending failed no 1000 1000")
}

// compare holds the audit log of the run, as its tenant reads it, against what was seen.
func (s *theatre) compare() {
	s.t.Helper()
	type change struct {
		Change, Who string
		at          time.Time
	}
	read := func(role pgtest.Role, q string, args ...any) map[string][]change {
		rows, err := s.db.Pool(role).Query(s.t.Context(), q, args...)
		if err != nil {
			s.t.Fatal(err)
		}
		list := map[string][]change{}
		var id string
		var c change
		if _, err = pgx.ForEachRow(rows, []any{&id, &c.Change, &c.Who, &c.at}, func() error {
			list[id] = append(list[id], c)
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
		return list
	}
	told := read(pgtest.App, `
		select subject_id, concat_ws('>', coalesce(from_status, ''), to_status), actor, at from deed.campaign_audit_log
		where run_id = $1::text::uuid and subject_type = 'delivery' and from_status is distinct from to_status
		order by subject_id, n`, s.run)
	seen := read(pgtest.Owner, `select id::text, change, coalesce(who, 'nobody'), since from public.seen order by id, seq`)
	for id, list := range seen {
		var saw, says []string
		for i, c := range list {
			saw = append(saw, c.Who+" "+c.Change)
			if i >= len(told[id]) {
				continue
			}
			at := told[id][i].at
			if at.Before(c.at) || i+1 < len(list) && at.After(list[i+1].at) {
				s.t.Errorf("%s %s of %s is told as of %s, not within the transaction that began at %s", c.Who, c.Change, id, at, c.at)
			}
		}
		for _, c := range told[id] {
			says = append(says, c.Who+" "+c.Change)
		}
		if got, want := strings.Join(says, ", "), strings.Join(saw, ", "); got != want {
			s.t.Errorf("the audit log says\n\t%s\nand seen was\n\t%s", got, want)
		}
	}
	want(s.t, "deliveries told of", len(told), len(seen))
}

// stories holds what the audit log says of people, one after the other, against what it should.
func (s *theatre) stories(of map[int]string) {
	s.t.Helper()
	for person, story := range of {
		want(s.t, fmt.Sprintf("the story of p%d", person), pgtest.One[string](s.t, s.db.Pool(pgtest.App), `
			select string_agg(concat_ws(' ', a.actor, a.action, concat(a.from_status, '>', a.to_status)) || coalesce(': ' || a.reason, ''), '; ' order by a.n)
			from deed.campaign_audit_log a join deed.channel_outbox c on c.id::text = a.subject_id
			where a.run_id = $1::text::uuid and a.subject_type = 'delivery' and c.recipient = $2`, s.run, address(campaign.Email, person)), story)
	}
}
