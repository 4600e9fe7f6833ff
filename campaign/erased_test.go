package campaign_test

import (
	"context"
	"testing"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// elsewhere is a request to two of whom the first, whose contact bob is, has the address of ann, who is another contact.
func elsewhere(t testing.TB, db *pgtest.DB) (req campaign.Request, ann string) {
	t.Helper()
	req = request(t, db, 1)
	known := func(address string) string {
		return pgtest.One[string](t, db.Pool(pgtest.App), `select id::text from deed.upsert_contacts('{1}', '{email}', array[$1], array['{}']::jsonb[])`, address)
	}
	ann = known("ann@example.com")
	a := opened(t, db, "elsewhere", campaign.Email)
	if err := a.Add(t.Context(), db.Pool(pgtest.App),
		campaign.Member{Contact: known("bob@example.com"), Address: "ann@example.com", Zone: "Europe/Paris", Data: []byte(`{"name": "Ann"}`)}, campaign.Member{Address: "cid@example.com"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(t.Context(), db.Pool(pgtest.App)); err != nil {
		t.Fatal(err)
	}
	req.Audience = a.ID
	return req, ann
}

const askedFor = `select deed.erase_contact($1::text::uuid, 'they asked')`

// Whoever is erased is in no audience by an address of theirs any more, whoever's place that is: what is not expanded yet writes to nobody there.
func TestErase_AnAddressInAnothersPlace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req, ann := elsewhere(t, db)
	run := deploy(t, db, req)
	db.Exec(t, pgtest.App, askedFor, ann)
	want(t, "the place", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', address, zone, data) from deed.audience_members where n = 1 and audience_id = $1::text::uuid`, req.Audience), "{}")
	expandAll(t, db)
	want(t, "the members", fates(t, db, req, run), "1 no address, 2 queued")
	db.Broken() // no relay ends the erasure
}

// Nor does an expansion that meets an erasure whose transaction is open: it goes back, and knows afterwards.
func TestErase_AnAddressInAnothersPlaceMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	req, ann := elsewhere(t, db)
	run := deploy(t, db, req)
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, askedFor, ann); err != nil {
		t.Fatal(err)
	}
	if _, err := worker(t, db).Step(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "deliveries meanwhile", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`), 0)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the expansion", func() bool {
		if _, err := worker(t, db).Step(ctx); err != nil {
			t.Fatal(err)
		}
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`) == 2
	})
	want(t, "the members", fates(t, db, req, run), "1 no address, 2 queued")
	db.Broken() // no relay ends the erasure
}

// Who is known by the address of an audience of chats or of accounts alone is erased with it, and not written to again where that was asked for.
func TestErase_WhoIsKnownByAChatOrAnAccount(t *testing.T) {
	t.Parallel()
	for channel, content := range map[campaign.Channel]campaign.Content{campaign.Chat: {Asset: "spring", Text: "Hello"}, campaign.Social: {Post: "spring", Text: "Hello"}} {
		t.Run(string(channel), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Providers(t, "fake", "fake")
			req := campaign.Request{Campaign: put(t, db, "spring", content).ID, Audience: people(t, db, "before", channel, 2).ID, ID: "1", Channel: channel, Provider: "fake", Purpose: "newsletter"}
			db.Exec(t, pgtest.App, `select deed.erase_contact($1::text::uuid, 'they asked', p_suppress => true)`, contactOf(t, db, req, 1))
			req.Audience = people(t, db, "after", channel, 2).ID
			run := deploy(t, db, req)
			expandAll(t, db)
			want(t, "the members", fates(t, db, req, run), "1 suppressed: erased, 2 queued")
			db.Broken() // no relay ends the erasure
		})
	}
}
