package deed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// peopleCalls are what a login of the application may call about people, with $1 and $2 contacts
// of somebody else's, $3 a message and $4 an audience of theirs, $5 the tenant. Each is an error, or answers
// nothing.
var peopleCalls = map[string]string{
	"upsert_contacts":      `select deed.upsert_contacts('{1}', '{email}', '{b-only-5d1e@example.com}', '{null}', p_tenant => $5::text::uuid)::text where $1::text::uuid <> $2::text::uuid and $3::text::uuid <> $4::text::uuid`,
	"merge_contacts":       `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'x', 'mallory')::text`,
	"unmerge_contacts":     `select deed.unmerge_contacts($1::text::uuid, 'x', 'mallory')::text`,
	"erase_contact":        `select deed.erase_contact($1::text::uuid, 'x', 'mallory')::text`,
	"set_consents":         `select deed.set_consents(array[$1::text::uuid], '{email}', '{news}', '{granted}', '{x}', p_actor => 'mallory')::text`,
	"confirm_consent":      `select deed.confirm_consent($1::text::uuid, 'email', 'news', p_actor => 'mallory')::text`,
	"consents_of":          `select c::text from deed.consents_of(array[$1::text::uuid, $2::text::uuid]) c`,
	"add_identity":         `select deed.add_identity($1::text::uuid, 'email', 'mallory@example.com', p_actor => 'mallory')::text`,
	"known_as":             `select k::text from deed.known_as($5::text::uuid, 'email', 'b-only-5d1e@example.com') k`,
	"contact_of":           `select deed.contact_of($5::text::uuid, $1::text::uuid)::text`,
	"names_of":             `select n::text from deed.names_of($1::text::uuid) n`,
	"reserve":              `select deed.reserve('{email}', '{p}', '{x@y.z}', '{"{}"}', array[sha256('y')], p_contacts => array[$1::text::uuid])::text`,
	"reserve, a reply":     `select deed.reserve('{email}', '{p}', '{x@y.z}', '{"{}"}', array[sha256('z')], p_channel_message_ids => array[$3::text::uuid])::text`,
	"add_audience_members": `select deed.add_audience_members($4::text::uuid, 1, '{x@y.z}', p_contacts => array[$1::text::uuid])::text`,
	"finish_audience":      `select deed.finish_audience($4::text::uuid, 1)::text`,
	// Everything of inbound is a worker's or an operator's.
	"accept_messages": `select deed.accept_messages('support', '{x}', '{telegram}', '{x}', '{x}', '{x}', '{"{}"}', '', 'link', $5::text::uuid, 'mallory')::text`,
	"claim_messages":  `select deed.claim_messages('support', 10, '1 hour', 10, 'mallory')::text`,
	"extend_messages": `select deed.extend_messages(array[$3::text::uuid], '{1}', '1 hour')::text`,
	"finish_messages": `select deed.finish_messages(array[$3::text::uuid], '{1}', '{executed}', '{null}', '{null}', 10, 'mallory')::text`,
	"purge_messages":  `select deed.purge_messages('0', 10, 'mallory')::text`,
	"retry_messages":  `select deed.retry_messages(array[$3::text::uuid], 'x', 'mallory')::text`,
	"unsubscribe":     `select deed.unsubscribe($3::text::uuid, 'email', 'news', $1::text::uuid)::text`,
	"erase_messages":  `select deed.erase_messages(array[$1::text::uuid], 'mallory')::text`,
	"erase_step":      `select deed.erase_step(10, 'mallory')::text`,
}

// A login of one tenant that has learnt the ids of another's contacts and messages calls every
// function of contacts and inbound with them, bound to its own tenant or naming it, and naming the
// other. It is told nothing and has changed nothing once it has committed.
func TestContract_D7_AnothersPeopleByTheirIDs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	owner, app := db.Pool(pgtest.Owner), db.Pool(pgtest.App)
	functions := names(t, db, `
		select distinct p.proname from pg_proc p
		where p.pronamespace = 'deed'::regnamespace and has_function_privilege('deed_app', p.oid, 'execute')
		  and (p.proname ~ 'contact|identit|consent|message|names_of|known_as|erase' or 'p_contacts' = any (p.proargnames))
		  and p.proname not in ('check_identity', 'message_id', 'message_seq', 'erased_message_id') order by 1`)
	for _, name := range functions {
		if peopleCalls[name] == "" {
			t.Errorf("%s takes or tells of people, and has no case in peopleCalls", name)
		}
	}
	var one, merged, root, erased, message, audience string
	err := owner.QueryRow(ctx, `
		select (select c.id::text from deed.contacts c join deed.consents e on e.contact_id = c.id where c.tenant_id = $1::text::uuid),
		  (select c.id::text from deed.contacts c where c.tenant_id = $1::text::uuid and c.merged_into is not null),
		  (select c.merged_into::text from deed.contacts c where c.tenant_id = $1::text::uuid and c.merged_into is not null),
		  (select c.id::text from deed.contacts c where c.tenant_id = $1::text::uuid and c.erased_at is not null),
		  (select m.id::text from deed.channel_messages m where m.tenant_id = $1::text::uuid), (select l.id::text from deed.audiences l where l.tenant_id = $1::text::uuid)`,
		b.String()).Scan(&one, &merged, &root, &erased, &message, &audience)
	if err != nil {
		t.Fatal(err)
	}
	// Of all tables: rows of b's, and rows in which an id of theirs stands.
	state := func() (list []string) {
		for _, table := range names(t, db, `
			select c.oid::regclass::text from pg_class c where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1`) {
			list = append(list, table+" "+pgtest.One[string](t, owner, `
				select count(*) || ' ' || coalesce(md5(string_agg(r::text, ' ' order by r::text)), '') from `+table+` r
				where strpos(r::text, $1) + strpos(r::text, $2) + strpos(r::text, $3) + strpos(r::text, $4) + strpos(r::text, $5) > 0`, b.String(), one, merged, message, audience))
		}
		return list
	}
	before := state()
	login := pgtest.One[string](t, app, `select session_user::text`)
	for _, bound := range []bool{false, true} {
		var ids []tenant.ID
		if bound {
			ids = []tenant.ID{a}
		}
		if _, err := tenant.Bind(ctx, db.Pool(pgtest.Admin), login, ids, audit.Act{By: "somebody", Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		if bound { // that is told of the login
			before = state()
		}
		for name, call := range peopleCalls {
			for _, pair := range [][]string{{one, merged}, {merged, one}, {root, merged}, {erased, one}} {
				x, y := pair[0], pair[1]
				for as, set := range map[string]tenant.ID{"a": a, "b": b} {
					if as == "b" && !bound { // who may choose the tenant is it
						continue
					}
					var told []string
					err := pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
						if err := tenant.Set(ctx, tx, set); err != nil {
							return err
						}
						args := []any{x, y, message, audience, b.String()}
						rows, err := tx.Query(ctx, `select * from (`+call+`) r(told) where coalesce(told, '') <> '' and array[$1::text, $2::text, $3::text, $4::text, $5::text] is not null`, args...)
						if err != nil {
							return err
						}
						told, err = pgx.CollectRows(rows, pgx.RowTo[string])
						return err
					})
					saysNothing(t, name, err)
					// A contact is its own name, whoever asks.
					if err == nil && len(told) > 0 && (name != "names_of" || !slices.Equal(told, []string{x})) {
						t.Errorf("%s, as %s, bound %t: told %q", name, as, bound, told)
					}
					if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(pg.Code, "22") || pg.Code == "42883" || pg.Code == "42804" || pg.Code == "42601") {
						t.Errorf("%s: the call itself is wrong: %v", name, err)
					}
				}
			}
		}
		after := state()
		for i := range after {
			if after[i] != before[i] && !slices.Contains(before, after[i]) {
				t.Errorf("bound %t: what is b's has changed: %s, was %s", bound, after[i], before[i])
			}
		}
	}
}
