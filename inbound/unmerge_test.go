package inbound_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who takes contacts apart and leaves the transaction open holds up nobody: while what one of
// them wrote is being run, or its reply is in a relay's hand, it is refused, and what comes
// meanwhile is run and answered.
func TestUnmerge_LeftOpenHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	began, let := make(chan struct{}), make(chan struct{})
	url, _ := one(t, db, func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		if m.Text == "wait" {
			close(began)
			<-let
		}
		return inbound.Say(m.Text), nil
	})
	app := db.Pool(pgtest.App)
	for _, body := range []string{"1 canary hello", "2 bob hello"} {
		want(t, body, post(t, url, body), 200)
	}
	of := func(who string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = $1`, who)
	}
	if _, err := contact.Merge(t.Context(), app, nil, of("canary"), of("bob"), act("one person")); err != nil {
		t.Fatal(err)
	}
	unmerge := func(db contact.DB) string {
		_, err := contact.Unmerge(t.Context(), db, nil, of("canary"), act("two persons"))
		return sqlState(err)
	}
	done := make(chan int, 1)
	go func() { done <- post(t, url, "3 canary wait") }()
	<-began
	want(t, "while it is run", unmerge(app), "40001")
	close(let)
	want(t, "the end", <-done, 200)
	eventually(t, "what they wrote to end", func() bool { return state(t, db) == "1 executed x1 r1, 2 executed x1 r1, 3 executed x1 r1" })
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('hook', 'w', 10, '1 hour')`)
	want(t, "while a reply is in hand", unmerge(app), "40001")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second'`)
	err := pgx.BeginFunc(t.Context(), app, func(tx pgx.Tx) error {
		want(t, "nothing in hand", unmerge(tx), "")
		for _, body := range []string{"4 canary hello", "5 bob hello"} {
			want(t, "beside it, "+body, post(t, url, body), 200)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	whose := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(m.platform_message_id || ' ' || i.value, ', ' order by m.turn)
		from deed.channel_messages m join deed.channel_outbox c on c.channel_message_id = m.id and c.contact_id = m.contact_id join deed.contact_identities i on i.contact_id = m.contact_id`)
	want(t, "whose they are", whose, "1 canary, 2 bob, 3 canary, 4 bob, 5 bob")
	// What came while nobody could see that they are two goes with whom it is from.
	eraseAnn(t, db)
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	verified(t, db)
}
