package inbound_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// Where a message cannot be stored, none that comes behind it in the same request from the
// same sender, by whichever identity, is stored before it; others' are.
func TestContract_D8_NothingPassesByWhatIsLocked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(moody(nil, nil))}}))
	if err != nil {
		t.Fatal(err)
	}
	serveIn(t, r)
	event := func(id, kind, sender, text string, also ...inbound.Identity) inbound.Event {
		return inbound.Event{ID: id, Kind: kind, Sender: sender, Text: text, ReplyTo: "https://example.com/" + id, Body: []byte("{}"), Also: also}
	}
	phone := inbound.Identity{Kind: "phone", Value: "+4930555001"}
	first := event("1", "telegram", "canary", "fail", phone)
	if err := r.Take(t.Context(), "plain", "", first); err == nil {
		t.Fatal("it did not fail")
	}
	tx, err := db.NewPool(pgtest.Owner, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select from deed.channel_messages for update`, pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	all := []inbound.Event{first, event("2", "telegram", "canary", "hello"), event("3", "phone", "+49 30 555001", "hello"), event("4", "telegram", "dan", "hello")}
	if err := r.Take(t.Context(), "plain", "", all...); err == nil {
		t.Error("what is locked was stored")
	}
	eventually(t, "another's to end", func() bool { return strings.Contains(state(t, db), "4 executed x1 r1") })
	if got := state(t, db); strings.Contains(got, "2 ") || strings.Contains(got, "3 ") {
		t.Errorf("behind what is locked: %s", got)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = r.Take(t.Context(), "plain", "", all...) // the first one fails again
	for _, ended := range []string{"1 dispatch_failed x2", "2 executed x1", "3 executed x1"} {
		if got := state(t, db); !strings.Contains(got, ended) {
			t.Errorf("%s, want %s", got, ended)
		}
	}
	verified(t, db)
}
