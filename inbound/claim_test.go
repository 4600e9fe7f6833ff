package inbound_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Who was erased while their message was run is not run again, however it was given up: by
// a process that died, or by one that was stopped. Nor is it held for a person.
func TestContract_D8_ErasedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]string{
		"it died":        `update deed.channel_messages set lease_until = now() - interval '1 second'`,
		"it was stopped": `select from deed.channel_messages m, deed.finish_messages(array[m.id], array[m.claim], array['accepted'], array[null], array[null]::float8[], 10, 'w')`,
		"it dies always": `update deed.channel_messages set lease_until = now() - interval '1 second', attempts = 10`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1'], array['telegram'], array['canary'], array[''], array[''], array['{}'], '', 'link',
				'00000000-0000-0000-0000-000000000000', 'w')`)
			db.Exec(t, pgtest.Worker, `select deed.claim_messages('plain', 1, '1 minute', 10, 'w')`)
			eraseAnn(t, db)
			db.Exec(t, pgtest.Owner, giveUp)
			ran := make(chan struct{}, 10)
			one(t, db, func(context.Context, inbound.Message) (inbound.Result, error) {
				ran <- struct{}{}
				return inbound.Result{}, nil
			})
			eventually(t, "its end", func() bool { return strings.Contains(state(t, db), "denied_erased") })
			if len(ran) > 0 {
				t.Error("it was run again")
			}
			verified(t, db)
		})
	}
}

// Of sources that have one name in two tenants each runs its own tenant's messages.
func TestContract_D8_TenantsRunTheirOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	other := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []tenant.ID{tenant.Default, other} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1'], array['telegram'], array['ann'], array[''], array[''], array['{}'], '', 'link', $1::text::uuid, 'w')`, id.String())
	}
	s := source(func(context.Context, inbound.Message) (inbound.Result, error) { return inbound.Result{}, nil })
	s.Tenant = other
	receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	whose := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(status, ' ' order by tenant_id) from deed.channel_messages`)
	}
	eventually(t, "the tenant's own", func() bool { return strings.HasSuffix(whose(), "executed") })
	want(t, "the other's", whose(), "accepted executed")
}

// Where transactions are stricter by default nothing that was stored while another one
// ended waits for ever.
func TestContract_D8_StricterDefaultIsolation(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database()); end $$`)
	entered, let := make(chan struct{}), make(chan struct{})
	s := source(func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		if m.PlatformID != "1" {
			return inbound.Result{}, nil
		}
		return inbound.Result{InTx: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select 1`)
			close(entered)
			<-let
			return err
		}}, nil
	})
	db.Providers(t, "fake", "hook")
	s.At = inbound.AfterAccepted
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "one", post(t, url, "1 ann hello"), 200)
	<-entered
	want(t, "two", post(t, url, "2 ann hello"), 200)
	close(let)
	eventually(t, "both", func() bool { return strings.Count(state(t, db), "executed") == 2 })
	verified(t, db)
}

// A claim whose messages have come, and whose commit then fails, is none: they are run once they are claimed, and once each.
func TestClaim_ThatIsUndoneRunsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1', '2'], array['telegram', 'telegram'], array['ann', 'bob'], array['', ''], array['', ''], array['{}', '{}'], '', 'link',
		'00000000-0000-0000-0000-000000000000', 'w')`)
	// A sequence counts what a transaction did that is undone.
	db.Exec(t, pgtest.Owner, `create sequence public.undone`)
	db.Exec(t, pgtest.Owner, `create function public.undo() returns trigger language plpgsql security definer as $$
		begin
		  perform nextval('public.undone');
		  raise exception 'the server goes away';
		end $$`)
	db.Exec(t, pgtest.Owner, `create constraint trigger undo after update on deed.channel_messages deferrable initially deferred for each row
		when (old.claim <> new.claim) execute function public.undo()`)
	var ran atomic.Int64
	one(t, db, func(context.Context, inbound.Message) (inbound.Result, error) {
		ran.Add(1)
		return inbound.Result{}, nil
	})
	eventually(t, "claims that are undone", func() bool {
		return pgtest.One[int64](t, db.Pool(pgtest.Owner), `select case when is_called then last_value else 0 end from public.undone`) >= 3
	})
	want(t, "run of what nobody has", ran.Load(), 0)
	db.Exec(t, pgtest.Owner, `drop trigger undo on deed.channel_messages`)
	eventually(t, "the end of both", func() bool { return strings.Count(state(t, db), "executed") == 2 })
	want(t, "run", ran.Load(), 2)
	verified(t, db)
}

// Who has a message, and who had it before, can be told of each, also of those that came
// and ended together; and that costs no row more than what became of them (D9).
func TestContract_D9_WhoHadIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	rows := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where subject_type = 'channel_message'`)
	}
	db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1', '2', '3'], array['telegram', 'telegram', 'telegram'], array['1', '2', '3'], array['', '', ''], array['', '', ''],
		array['{}', '{}', '{}'], '', 'link', '00000000-0000-0000-0000-000000000000', 'gate')`)
	ids := pgtest.One[[]string](t, db.Pool(pgtest.Owner), `select array_agg(id::text order by turn) from deed.channel_messages`)
	claim := func(n int, by string) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select deed.claim_messages('plain', $1, '1 minute', 10, $2)`, n, by)
	}
	told := func(id string) (list []string) {
		t.Helper()
		_, changes, _, err := inbound.Show(t.Context(), worker, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			list = append(list, c.Actor+" "+c.Action+strings.Join(strings.Split(c.Reason, ",")[:1], ""))
		}
		return list
	}
	has := func(id string) string {
		t.Helper()
		e, err := inbound.Load(t.Context(), worker, id)
		if err != nil {
			t.Fatal(err)
		}
		if (e.ClaimedBy == "") != (e.ClaimedAt == nil) {
			t.Errorf("%q since %v", e.ClaimedBy, e.ClaimedAt)
		}
		return e.ClaimedBy
	}
	want(t, "before", has(ids[0]), "")
	claim(3, "one")
	want(t, "claimed", has(ids[0]), "one")
	want(t, "rows of three that came and were claimed", rows(), 1)
	// One is given back, and the process dies with the others.
	db.Exec(t, pgtest.Worker, `select from deed.channel_messages m, deed.finish_messages(array[m.id], array[m.claim], array['accepted'], array[null], array[null]::float8[], 10, 'one')
		where m.id = $1::text::uuid`, ids[2])
	want(t, "given back", has(ids[2]), "")
	db.Exec(t, pgtest.Owner, `update deed.channel_messages set lease_until = now() - interval '1 second'`)
	claim(3, "two")
	want(t, "taken", has(ids[1]), "two")
	want(t, "rows with a taking-over", rows(), 2)
	db.Exec(t, pgtest.Worker, `
		select from (select array_agg(id) as ids, array_agg(claim) as claims from deed.channel_messages) m,
			deed.finish_messages(m.ids, m.claims, array_fill('executed'::text, array[3]), array_fill(null::text, array[3]), array_fill(null::float8, array[3]), 10, 'two')`)
	want(t, "rows in the end", rows(), 3)
	for _, id := range ids[:2] {
		want(t, "history", told(id), []string{"gate receive", "two takethe lease of one", "two run"})
	}
	want(t, "of the one that was given back", told(ids[2]), []string{"gate receive", "two run"})
	want(t, "who had it last", has(ids[0]), "two")
	verified(t, db)
}

// A sender that is no identity of the source's kind is another thing than one who is not known.
func TestContract_D8_WhatIsNoIdentity(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for i, unknown := range []string{"link", "deny"} {
		status := pgtest.One[string](t, db.Pool(pgtest.Worker), `
			select string_agg(status, ' ' order by n) from deed.accept_messages('plain', array['a' || $1, 'b' || $1], array['phone', 'phone'], array['canary', '+49301234567' || $1], array['', ''], array['', ''], array['{}', '{}'],
				'', $2, '00000000-0000-0000-0000-000000000000', 'w')`, string(rune('0'+i)), unknown)
		want(t, unknown, status, map[string]string{"link": "denied_invalid_sender accepted", "deny": "denied_invalid_sender denied_unknown_sender"}[unknown])
	}
	verified(t, db)
}

// A message that somebody has locked, such as by an erasure that is left open, holds up no
// renewal of others, and is not taken for lost.
func TestExtend_WaitsForNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1', '2'], array['telegram', 'telegram'], array['ann', 'bob'], array['', ''], array['', ''], array['{}', '{}'], '', 'link',
		'00000000-0000-0000-0000-000000000000', 'w')`)
	db.Exec(t, pgtest.Worker, `select deed.claim_messages('plain', 10, '10 minutes', 10, 'w')`)
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience) // it would wait for ever
	defer cancel()
	erasing, err := db.NewPool(pgtest.App, 1).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = erasing.Rollback(context.Background()) }()
	if _, err := erasing.Exec(ctx, `select deed.erase_contact((select contact_id from deed.channel_messages where platform_message_id = '1'), 'asked to')`); err != nil {
		t.Fatal(err)
	}
	kept := func(off int) (n int) {
		t.Helper()
		err := db.Pool(pgtest.Worker).QueryRow(ctx, `
			select count(*) from (select array_agg(id) as ids, array_agg(claim + $1) as claims from deed.channel_messages) m, deed.extend_messages(m.ids, m.claims, '1 hour')`, off).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := kept(0); n != 2 {
		t.Errorf("%d kept, want both", n)
	}
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(platform_message_id, ' ') from deed.channel_messages where lease_until > clock_timestamp() + interval '30 minutes'`); got != "2" {
		t.Errorf("renewed %q, want the one that nobody has locked", got)
	}
	if n := kept(1); n != 0 {
		t.Errorf("%d kept under others' claims", n)
	}
	if err := erasing.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_messages set lease_until = clock_timestamp() where platform_message_id = '1'`)
	locked, err := db.NewPool(pgtest.Owner, 1).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Rollback(context.Background()) }()
	if _, err := locked.Exec(ctx, `select from deed.channel_messages where platform_message_id = '1' for update`); err != nil {
		t.Fatal(err)
	}
	if n := kept(0); n != 1 {
		t.Errorf("%d kept, want the one whose lease lasts", n)
	}
}

// Who holds a claim from before a failover that forgot it neither renews the lease of the claim that was made since, nor
// records an outcome under it: of a message that is new, and of one that had failed and came again.
func TestContract_D8_AForgottenClaimIsNobodyElses(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"new": false, "again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Broken() // the audit log has what the standby has not
			worker := db.Pool(pgtest.Worker)
			accept := func() {
				db.Exec(t, pgtest.Worker, `
					select deed.accept_messages('plain', array['1'], array['telegram'], array['ann'], array[''], array[''], array['{}'], '', 'link', '00000000-0000-0000-0000-000000000000', 'w')`)
			}
			finish := func(claim int64, status string) int {
				return pgtest.One[int](t, worker, `
					select count(*)::int from deed.channel_messages m, deed.finish_messages(array[m.id], array[$1::bigint], array[$2], array[null], array[null]::float8[], 10, 'w')`, claim, status)
			}
			const claim = `select claim from deed.claim_messages('plain', 1, '10 minutes', 10, 'w')`
			accept()
			if again {
				want(t, "failed", finish(pgtest.One[int64](t, worker, claim), "dispatch_failed"), 1)
			}
			// What comes now has not reached the standby, nor have its numbers.
			db.Exec(t, pgtest.Owner, `create table public.standby as select m.*, nextval('deed.claim_seq') as given from deed.channel_messages m`)
			if again {
				accept()
			}
			forgotten := pgtest.One[int64](t, worker, claim)
			db.Exec(t, pgtest.Owner, `
				update deed.channel_messages m
				set status = s.status, claim = s.claim, claimed_by = s.claimed_by, claimed_at = s.claimed_at, lease_until = s.lease_until, process_after = s.process_after,
				  attempts = s.attempts, finished_at = s.finished_at, held_at = s.held_at, error = s.error
				from public.standby s`)
			db.Exec(t, pgtest.Owner, `select setval('deed.claim_seq', given) from public.standby`)
			db.Exec(t, pgtest.Owner, `create or replace function deed.timeline() returns bigint language sql volatile set search_path = pg_catalog, pg_temp as 'select 4711::bigint'`)
			if again {
				accept()
			}
			pgtest.One[int64](t, worker, claim)
			want(t, "renewed under the forgotten claim", pgtest.One[int](t, worker, `
				select count(*)::int from deed.channel_messages m, deed.extend_messages(array[m.id], array[$1::bigint], '1 hour')`, forgotten), 0)
			want(t, "finished under the forgotten claim", finish(forgotten, "executed"), 0)
		})
	}
}
