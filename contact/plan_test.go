package contact_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// A few contacts among many are found by indexes, on a connection too whose plans are
// from when there were none.
func TestPlan_FewContactsAmongMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.NewPool(pgtest.App, 1)
	some := func(from string) (list []contact.Person) {
		for i := range 3 {
			list = append(list, known("email", fmt.Sprintf("%s%d@example.com", from, i), "external_id", fmt.Sprint(from, i), "telegram", fmt.Sprint(from, i)))
		}
		// These two share an identity, and not the other.
		list = append(list, known("email", from+"@example.com", "external_id", from+"a"), known("email", from+"@example.com", "external_id", from+"b"))
		for i := range list {
			list[i].Identities[0].Verified = true
		}
		return list
	}
	for _, from := range []string{"early", "early", "other"} {
		if _, err := contact.Upsert(t.Context(), pool, "test", some(from)...); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.App, `
		select count(*)
		from deed.upsert_contacts(array(select i / 3 + 1 from generate_series(0, 14999) i), array(select (array['email', 'external_id', 'telegram'])[i % 3 + 1] from generate_series(0, 14999) i),
			array(select 'many' || i / 3 || case when i % 3 = 0 then '@example.com' else '' end from generate_series(0, 14999) i), array_fill('{}'::jsonb, array[5000]))`)
	for _, from := range []string{"late", "many", "analyzed", "early"} {
		if from == "analyzed" {
			db.Exec(t, pgtest.Owner, `analyze deed.contacts, deed.contact_identities`)
		}
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			read := pgtest.RowsRead(t, tx)
			_, err := contact.Upsert(t.Context(), tx, "test", some(from)...)
			for table, n := range read() {
				if n > 60 {
					t.Errorf("%s: %d rows of %s were read", from, n, table)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// What is done to one contact among many is found by indexes, on a connection too whose plans
// were made, and kept, when there was nobody and statistics said so; and so it is when they say how
// many there are.
func TestPlan_ActsAmongMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Conn(t, pgtest.Owner)
	if _, err := owner.Exec(t.Context(), `vacuum analyze deed.contacts, deed.contact_identities, deed.contact_merges, deed.consents, deed.channel_messages, deed.channel_outbox, deed.suppressions`); err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.App)
	if _, err := conn.Exec(t.Context(), `set plan_cache_mode = force_generic_plan`); err != nil {
		t.Fatal(err)
	}
	acts := func(from string, most int64) {
		t.Helper()
		list := upsert(t, db, known("email", from+"1@example.com"), known("email", from+"2@example.com"))
		one, two := list[0].ID, list[1].ID
		if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", contact.Word{Contact: one, Channel: "email", Purpose: "news", State: contact.Pending, Source: "form"}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1 || '@example.com'], 'asked to')`, one)
		for _, act := range []struct{ name, sql string }{
			{"merge", `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'one person')::text`},
			{"unmerge", `select deed.unmerge_contacts($1::text::uuid, 'two') ::text where $2::text <> ''`},
			{"add identity", `select deed.add_identity($1::text::uuid, 'external_id', $2::text)::text`},
			{"confirm", `select deed.confirm_consent($1::text::uuid, 'email', 'news')::text where $2::text <> ''`},
			{"unsuppress", `select deed.unsuppress('email', array[$1::text || '@example.com'], 'asked to')::text where $2::text <> ''`},
		} {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				read := pgtest.RowsRead(t, tx)
				if _, err := tx.Exec(t.Context(), act.sql, one, two); err != nil {
					return fmt.Errorf("%s: %w", act.name, err)
				}
				for table, n := range read() {
					if n > most {
						t.Errorf("%s, %s: %d rows of %s were read", from, act.name, n, table)
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range 2 {
		acts(fmt.Sprint("early", n), 1<<40)
	}
	const many = 5000
	db.Exec(t, pgtest.App, `
		with made as (
		  select id
		  from deed.upsert_contacts(array(select generate_series(1, $1::int)), array_fill('email'::text, array[$1::int]),
		    array(select 'many' || i || '@example.com' from generate_series(1, $1::int) i), array_fill('{}'::jsonb, array[$1::int]))
		)
		select count(*)
		from (select array_agg(m.id) as ids from made m) a, deed.set_consents(a.ids, array_fill('email'::text, array[$1::int]), array_fill('news'::text, array[$1::int]),
		  array_fill('revoked'::text, array[$1::int]), array_fill('form'::text, array[$1::int]))`, many)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_messages (id, tenant_id, source, platform_message_id, contact_id, kind, sender, text, body, status, lease_until, correlation_id, received_at)
		select gen_random_uuid(), i.tenant_id, 'plain', i.value, i.contact_id, i.type, i.value, '', '{}', 'accepted', clock_timestamp(), i.value, clock_timestamp()
		from deed.contact_identities i where i.value like 'many%'`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.contact_merges (tenant_id, from_id, into_id, reason, actor, at, undone_at, undone_for, undone_by)
		select i.tenant_id, i.contact_id, i.contact_id, 'x', 'x', now(), now(), 'x', 'x' from deed.contact_identities i where i.value like 'many%'`)
	acts("late", 150)
	db.Exec(t, pgtest.Owner, `analyze deed.contacts, deed.contact_identities, deed.contact_merges, deed.consents, deed.channel_messages, deed.channel_outbox, deed.suppressions`)
	acts("analyzed", 150)
}
