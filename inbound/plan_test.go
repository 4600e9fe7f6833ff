package inbound_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// A message is stored, and run, by indexes, whoever sent it, on a connection too whose plans are
// from when there was neither a contact nor a message.
func TestPlan_AMessageAmongManyContacts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.NewPool(pgtest.Worker, 1)
	const accept = `select count(*) from deed.accept_messages('plain', array[$1], array[$2], array[$3], array[''], array[''], array['{}'], '', 'link',
		'00000000-0000-0000-0000-000000000000', 'w', array[1], array['whatsapp_user'], array[$4])`
	const run = `
		select count(f)
		from (select array_agg(id) as ids, array_agg(claim) as claims from deed.claim_messages('plain', 3, interval '1 minute', 10, 'w')) c,
			deed.finish_messages(c.ids, c.claims, array_fill('executed'::text, array[3]), array_fill(null::text, array[3]), array_fill(null::float8, array[3]), 10, 'w') f`
	senders := [][]string{{"email", "early@example.com"}, {"telegram", "1"}, {"external_id", "early"}, {"whatsapp", "491111111"}, {"email", "late@example.com"}, {"telegram", "2"}}
	for _, s := range senders[:4] {
		if _, err := pool.Exec(t.Context(), accept, "before "+s[1], s[0], s[1], "US."+s[1]); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "run", pgtest.One[int](t, pool, run), 3)
	db.Exec(t, pgtest.App, `
		select count(*)
		from deed.upsert_contacts(array(select generate_series(1, 3000)), array(select (array['email', 'telegram', 'external_id'])[i % 3 + 1] from generate_series(1, 3000) i),
			array(select 'many' || i || case when i % 3 = 0 then '@example.com' else '' end from generate_series(1, 3000) i), array_fill('{}'::jsonb, array[3000]))`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_messages (id, tenant_id, source, platform_message_id, contact_id, kind, sender, text, body, status, lease_until, correlation_id, received_at)
		select gen_random_uuid(), i.tenant_id, 'plain', i.value, i.contact_id, i.type, i.value, '', '{}', 'accepted', clock_timestamp(), i.value, clock_timestamp()
		from deed.contact_identities i
		where i.value like 'many%'`)
	for i, s := range append(senders, senders...) {
		if i == len(senders) {
			db.Exec(t, pgtest.Owner, `analyze deed.contacts, deed.contact_identities, deed.channel_messages`)
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			read := pgtest.RowsRead(t, tx)
			_, err := tx.Exec(t.Context(), accept, fmt.Sprint(i, s), s[0], s[1], "US."+s[1])
			for table, n := range read() {
				if n > 30 {
					t.Errorf("%v: %d rows of %s were read", s, n, table)
				}
			}
			if err != nil {
				return err
			}
			read = pgtest.RowsRead(t, tx)
			want(t, "run", pgtest.One[int](t, tx, run), 3)
			for table, n := range read() {
				if n > 60 {
					t.Errorf("run: %d rows of %s were read", n, table)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A reply is reserved by indexes, on a connection too whose plans are from when there was
// neither a contact nor a message, and statistics said so.
func TestPlan_AReplyAmongManyMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `select deed.register_provider('noop', 'noop', 'none', null, false, '{}', '{}', '{}', 'x')`)
	owner := db.Conn(t, pgtest.Owner)
	if _, err := owner.Exec(t.Context(), `vacuum analyze deed.contacts, deed.contact_identities, deed.channel_messages, deed.consents`); err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.Worker)
	step := func(n, most int) (buffers int) {
		t.Helper()
		sender := fmt.Sprint("sender", n)
		var id, who string
		err := conn.QueryRow(t.Context(), `select id::text from deed.accept_messages('plain', array[$1], array['external_id'], array[$1], array[''], array[''], array['{}'], '', 'link',
			'00000000-0000-0000-0000-000000000000', 'w')`, sender).Scan(&id)
		if err == nil {
			err = conn.QueryRow(t.Context(), `select contact_id::text from deed.channel_messages where id = $1::text::uuid`, id).Scan(&who)
		}
		if err != nil {
			t.Fatal(err)
		}
		return pgtest.Measure(t, conn, most, `
			select deed.reserve(array['email'], array['noop'], array['reply@example.com'], array['{}'::jsonb], array[sha256($1::text::bytea)], p_purposes => array['news'],
				p_channel_message_ids => array[$1::text::uuid], p_tenant => '00000000-0000-0000-0000-000000000000',
				p_contacts => array[$2::text::uuid])`, id, who).Buffers
	}
	for n := range 12 { // on a connection that does nothing else, until it has kept its plans
		step(n, pgtest.Any)
	}
	few := step(12, pgtest.Least)
	db.Exec(t, pgtest.App, `
		select count(*)
		from deed.upsert_contacts(array(select generate_series(1, 10000)), array_fill('external_id'::text, array[10000]),
			array(select 'many' || i from generate_series(1, 10000) i), array_fill('{}'::jsonb, array[10000]))`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_messages (id, tenant_id, source, platform_message_id, contact_id, kind, sender, text, body, status, lease_until, correlation_id, received_at)
		select gen_random_uuid(), i.tenant_id, 'plain', i.value, i.contact_id, i.type, i.value, '', '{}', 'accepted', clock_timestamp(), i.value, clock_timestamp()
		from deed.contact_identities i
		where i.value like 'many%'`)
	step(13, pgtest.Any)
	many := step(14, 2*few+20)
	t.Logf("%d buffers among few messages, %d among many", few, many)
	if many > 2*few+20 {
		t.Errorf("a reply among many messages touches %d buffers, among few %d", many, few)
	}
}
