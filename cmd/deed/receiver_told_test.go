package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgtest"
)

// What WhatsApp says of messages comes to where people write: a relay that calls no provider records
// it for the one that does, if its file names the provider, and else says that it does not.
func TestReceiving_RecordsForAnothersProvider(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	source := devWhatsAppSource
	source.Name, source.Reply.Provider = "phone", "number"
	file := &config.Config{Sources: map[string]config.Source{"phone": source}}
	var said output
	log := slog.New(slog.NewTextHandler(&said, nil))
	r, err := (&app{}).receivingOf(file, false, log)
	if err != nil {
		t.Fatal(err)
	}
	if r.opts.Sources["phone"].Statuses != nil || !strings.Contains(said.String(), `not recorded`) || !strings.Contains(said.String(), "provider=number") {
		t.Errorf("without the provider in the file the log has %q", &said)
	}
	file.Providers = map[string]config.Provider{"number": {Type: "whatsapp", Token: config.Known("a-token"), PhoneNumberID: "100"}}
	if r, err = (&app{}).receivingOf(file, false, log); err != nil {
		t.Fatal(err)
	}
	_, done, err := r.open(t.Context(), db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	record := r.opts.Sources["phone"].Statuses
	if record == nil {
		t.Fatal("nothing is recorded")
	}
	if err := record(t.Context(), []delivery.StatusEvent{{Said: delivery.SaidDelivered, ID: "wamid.1:delivered", MessageID: "wamid.1"}}); err != nil {
		t.Fatal(err)
	}
	const kept = `select concat_ws(' ', provider, kind, account, event, message_id) from deed.unmatched_events`
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), kept); got != "number whatsapp number-100 delivered wamid.1" {
		t.Errorf("recorded: %s", got)
	}
}
