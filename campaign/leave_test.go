package campaign_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// leaveBy has the recipient of member n's delivery leave by its link.
func leaveBy(t testing.TB, db *pgtest.DB, run string, n int, want contact.Left) {
	t.Helper()
	of := contact.Leaving{Channel: "email", Purpose: "newsletter"}
	if err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `select id::text, contact_id::text from deed.channel_outbox where run_id = $1::text::uuid and recipient = $2`,
		run, address(campaign.Email, n)).Scan(&of.Delivery, &of.Contact); err != nil {
		t.Fatal(err)
	}
	leave(t, db, of, want)
}

func leave(t testing.TB, db *pgtest.DB, of contact.Leaving, want contact.Left) {
	t.Helper()
	if got, err := contact.Leave(t.Context(), db.Pool(pgtest.Worker), "link", of); err != nil || got != want {
		t.Errorf("left %q, not %q: %v", got, want, err)
	}
}

func unsubscribed(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	r, err := campaign.Summarise(t.Context(), db.Pool(pgtest.App), run)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(r.Heard.Unsubscribed, " ", r.Rates.Unsubscribed)
}

// A report counts each delivery by whose link somebody left, once however often they do, and whoever has said it first;
// what is not of the run, or did not go out, it does not. Of a run that was sealed it stays as it was.
func TestContract_D13_WhoLeavesByTheLinkIsInTheReport(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := ended(t, db) // 0 was skipped, 1 has failed, 2 is dead, and five were sent
	want(t, "before", unsubscribed(t, db, run), "0 0")
	leaveBy(t, db, run, 3, contact.LeftNow)
	leaveBy(t, db, run, 3, contact.LeftBefore)
	leaveBy(t, db, run, 1, contact.LeftNow) // a person says that it failed, and it did not
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, run_id, delivered_at, unsubscribed_at)
		select c.id, c.tenant_id, c.run_id, '2026-01-01T12:00Z', '2026-01-02T12:00Z' from deed.channel_outbox c where c.recipient = $1`, address(campaign.Email, 4))
	leaveBy(t, db, run, 4, contact.LeftNow) // the provider has said so before
	want(t, "of five", unsubscribed(t, db, run), "2 0.4")
	want(t, "when the provider's was", pgtest.One[time.Time](t, db.Pool(pgtest.Owner), `select unsubscribed_at from deed.delivery_feedback where delivered_at is not null`).UTC().Format(time.DateOnly), "2026-01-02")
	want(t, "members who left", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_feedback f where f.unsubscribed_at is not null and f.run_id = $1::text::uuid`, run), 3)

	daysAgo(t, db, 3)
	w := keeper(t, db)
	if _, err := w.Retain(t.Context()); err != nil { // it is sealed, and nothing is gone
		t.Fatal(err)
	}
	leaveBy(t, db, run, 5, contact.LeftNow)
	want(t, "once it is sealed", unsubscribed(t, db, run), "2 0.4")
	gone := contact.Leaving{Channel: "email", Purpose: "newsletter"}
	if err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `select id::text, contact_id::text from deed.channel_outbox where recipient = $1`, address(campaign.Email, 6)).Scan(&gone.Delivery, &gone.Contact); err != nil {
		t.Fatal(err)
	}
	retain(t, w)
	leave(t, db, gone, contact.LeftNow)
	want(t, "once it is purged", unsubscribed(t, db, run), "2 0.4")
	want(t, "what was said of what is gone", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_feedback`), 0)
}
