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
