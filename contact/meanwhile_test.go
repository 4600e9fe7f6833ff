package contact_test

import (
	"context"
	"testing"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

const (
	revokes  = `select deed.set_consents(array[$1::text::uuid], '{email}', '{news}', '{revoked}', '{form}')`
	grants   = `select deed.set_consents(array[$1::text::uuid], '{email}', '{news}', '{granted}', '{form}')`
	tomorrow = `select deed.suppress('email', '{ann@example.com}', 'on holiday', p_purpose => 'news', p_expires_at => clock_timestamp() + interval '1 day') where $1::text <> ''`
)

// meanwhile runs one act in a transaction that stays open until another waits for it, or has ended.
func meanwhile(t testing.TB, db *pgtest.DB, id, first, second string) {
	t.Helper()
	tx, err := db.Conn(t, pgtest.App).Begin(context.Background())
	if err == nil {
		_, err = tx.Exec(context.Background(), first, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t, pgtest.App)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), second, id)
		ended <- err
	}()
	met := pgtest.Wait(pgtest.Patience, func() bool {
		return len(ended) > 0 || pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	if err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !met {
		t.Error("the second has neither ended nor waited for the first")
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// untilTomorrow is how many suppressions there are that somebody has said for a day, and which stand for nothing else.
func untilTomorrow(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.suppressions where not by_consent and expires_at < now() + interval '2 days'`)
}

// What a person says of an address at the moment in which its contact grants again is what stands afterwards, and the revocation is over.
func TestContract_D11_SuppressedWhileGranted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	say(t, db, ann, "email", contact.Revoked)
	meanwhile(t, db, ann, tomorrow, grants)
	same(t, "until tomorrow", untilTomorrow(t, db), 1)
	same(t, "suppressed", suppressed(t, db), "email:ann@example.com/news")
}

// And in which it revokes: once that is over.
func TestContract_D11_SuppressedWhileRevoked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	meanwhile(t, db, ann, revokes, tomorrow)
	say(t, db, ann, "email", contact.Granted)
	same(t, "until tomorrow", untilTomorrow(t, db), 1)
}

// Contacts that are merged while somebody's identities are found to be both of theirs are at odds with nobody.
func TestConflict_BesideAMerge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := upsert(t, db, known("email", "a@example.com"), known("slack", "U1"))
	meanwhile(t, db, list[0].ID, `select deed.merge_contacts($1::text::uuid, (select contact_id from deed.known_as('00000000-0000-0000-0000-000000000000', 'slack', 'U1')), 'the same person')`,
		`select from deed.upsert_contacts('{1,1}', '{email,slack}', '{a@example.com,U1}', array['{}'::jsonb]) where $1::text <> ''`)
	same(t, "conflicts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.identity_conflicts where settled_at is null`), 0)
}
