package inbound_test

import (
	"context"
	"testing"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// What asks and does a little costs as little among many, in a session that keeps the plans
// which it made while tables were empty, and statistics said so.
func TestPlan_KeptFromWhenThereWasNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	tables := []string{"contacts", "contact_identities", "contact_merges", "consents", "suppressions", "channel_messages", "channel_outbox"}
	conn := db.Conn(t, pgtest.Owner)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for _, table := range tables {
		exec(`alter table deed.` + table + ` set (autovacuum_enabled = off)`)
		exec(`vacuum analyze deed.` + table)
	}
	exec(`set plan_cache_mode = force_generic_plan`)
	const nobody = `'00000000-0000-0000-0000-000000000000'`
	exec(`select deed.has_revoked(` + nobody + `, gen_random_uuid(), 'email', 'news')`)
	exec(`set enable_seqscan = off`) // as all have it of whose statements deed.revoked is a part
	exec(`set enable_bitmapscan = off`)
	exec(`prepare revoked (uuid) as select count(*) from deed.revoked(` + nobody + `, $1, 'email', 'news')`)
	exec(`execute revoked (` + nobody + `)`)
	exec(`reset enable_seqscan`)
	exec(`reset enable_bitmapscan`)
	exec(`prepare consents (uuid) as select count(*) from deed.consents_of(array[$1])`)
	exec(`execute consents (` + nobody + `)`)

	// Two contacts who are one, and have revoked; a message that has failed, and an old one.
	exec(`select deed.upsert_contacts(array[1, 2], array['telegram', 'telegram'], array['one', 'two'], array['{}', '{}']::jsonb[])`)
	contact := func(who string) string {
		return pgtest.One[string](t, conn, `select contact_id::text from deed.contact_identities where value = $1`, who)
	}
	one, two := contact("one"), contact("two")
	exec(`select deed.set_consents(array[$1::text::uuid], array['email'], array['news'], array['revoked'], array['form'])`, two)
	exec(`select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'one person')`, two, one)
	exec(`select deed.accept_messages('plain', array['failed', 'old'], array['telegram', 'telegram'], array['one', 'two'], array['', ''], array['', ''], array['{}', '{}'], '', 'link', ` + nobody + `, 'w')`)
	exec(`select deed.finish_messages(array_agg(id), array_agg(claim), array_agg(case platform_message_id when 'old' then 'executed' else 'dispatch_failed' end),
		array_fill(null::text, array[2]), array_fill(null::float8, array[2]), 10, 'w') from deed.claim_messages('plain', 2, '1 minute', 10, 'w')`)
	exec(`update deed.channel_messages set received_at = received_at - interval '9 days' where platform_message_id = 'old'`)
	failed := pgtest.One[string](t, conn, `select id::text from deed.channel_messages where platform_message_id = 'failed'`)

	acts := []struct{ name, sql string }{
		{"consents_of", `execute consents ('` + one + `')`},
		{"revoked", `execute revoked ('` + one + `')`},
		{"has_revoked", `select deed.has_revoked(` + nobody + `, '` + one + `', 'email', 'news')`},
		{"suppress", `select deed.suppress('email', array['ann@example.com'], 'asked to')`},
		{"retry_messages", `select deed.retry_messages(array['` + failed + `'::uuid], 'mended')`},
		{"purge_messages", `select deed.purge_messages('8 days', 10, 'w')`},
	}
	cost := func(sql string, most int) int {
		t.Helper()
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		return pgtest.Measure(t, conn, most, sql).Buffers
	}
	few := map[string]int{}
	for _, most := range []int{pgtest.Any, pgtest.Least} { // the first reads the catalogue
		for _, act := range acts {
			few[act.name] = cost(act.sql, most)
		}
	}
	const many = `from generate_series(1, 20000) i`
	exec(`insert into deed.contacts (id, tenant_id, created_at, updated_at) select md5(i::text)::uuid, ` + nobody + `, now(), now() ` + many)
	exec(`update deed.contacts set merged_into = $1::text::uuid where id in (select md5(i::text)::uuid from generate_series(1, 3) i)`, one)
	exec(`insert into deed.consents (tenant_id, contact_id, channel, purpose, state, source, actor, at) select ` + nobody + `, md5(i::text)::uuid, 'email', 'news', 'granted', 'x', 'x', now() ` + many)
	exec(`insert into deed.contact_merges (tenant_id, from_id, into_id, reason, actor, at) select ` + nobody + `, md5(i::text)::uuid, md5((i % 20000 + 1)::text)::uuid, 'x', 'x', now() ` + many)
	exec(`insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at) select ` + nobody + `, 'email', i || '@example.com', 'x', 'x', now() ` + many)
	exec(`insert into deed.channel_messages (id, tenant_id, source, platform_message_id, contact_id, kind, sender, text, body, status, lease_until, correlation_id, received_at)
		select gen_random_uuid(), ` + nobody + `, 'plain', i, md5(i::text)::uuid, 'telegram', i, '', '{}', 'accepted', clock_timestamp(), i, clock_timestamp() ` + many)
	exec(`insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, recipient, payload, channel_message_id, created_at, updated_at)
		select gen_random_uuid(), m.tenant_id, sha256(convert_to(m.platform_message_id, 'UTF8')), 'email', 'fake', 'x@example.com', '{}', m.id, now(), now()
		from deed.channel_messages m where m.platform_message_id ~ '^[0-9]'`)
	for _, act := range acts {
		cost(act.sql, pgtest.Any)
		got := cost(act.sql, 2*few[act.name]+60)
		t.Logf("%s: %d buffers among few, %d among many", act.name, few[act.name], got)
		if got > 2*few[act.name]+60 {
			t.Errorf("%s touches %d buffers among many, %d among few", act.name, got, few[act.name])
		}
	}
}
