package delivery_test

import (
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// E-mails that were reserved before who gets copies was kept apart, and are still to be sent: an
// upgrade finds who that is, so that nobody who is suppressed is written to.
func TestContract_D11_CopiesOfBeforeTheyWereKept(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	with := email("bob@example.com")
	with.Payload = delivery.EmailPayload{Subject: "x", Text: "x", CC: []string{"Carol@example.com"}}.JSON()
	made := reserve(t, db, with, email("ann@example.com"), email("late@example.com"))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set cc = null, created_at = (select m.applied_at from deed.migrations m where m.version = 79) - interval '1 hour' where recipient <> 'late@example.com'`)
	db.Exec(t, pgtest.Owner, `update deed.migrations set hash = 'another', number = number - 1 where version = 0`) // an older program's functions
	if _, err := schema.Up(t.Context(), db.Conn(t, pgtest.Owner)); err != nil {
		t.Fatal(err)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select recipient || ' ' || coalesce(cc::text, '-') from deed.channel_outbox order by recipient`); len(got) != 3 || got[0] != "ann@example.com -" || got[1] != "bob@example.com {carol@example.com}" || got[2] != "late@example.com -" {
		t.Errorf("%q", got)
	}
	db.Exec(t, pgtest.Owner, `select deed.suppress('email', '{carol@example.com}', 'asked to', 'ann', '00000000-0000-0000-0000-000000000000')`)
	run(t, db, fast(newFake()))
	until(t, db, made[0].ID, delivery.Skipped)
	until(t, db, made[1].ID, delivery.Sent)
}
