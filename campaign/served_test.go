package campaign_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// While a worker runs it is known that campaigns are carried out, to who deploys one, too; once it has stopped
// it is not, and of one that was killed no longer than it has said.
func TestServed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	served := func() bool {
		t.Helper()
		is, err := campaign.Served(t.Context(), db.Pool(pgtest.App))
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	want(t, "served before there is a worker", served(), false)
	var log bytes.Buffer // read when nobody writes
	w, err := campaign.NewWorker(t.Context(), db.Pool(pgtest.Worker), campaign.WorkerOptions{
		PollInterval: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func(meanwhile func()) {
		t.Helper()
		log.Reset()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		meanwhile()
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	run(func() {
		waitFor(t, "the worker to say that it runs", served)
		want(t, "for how long", pgtest.One[bool](t, db.Pool(pgtest.Admin), `select seen_until between now() and now() + interval '1 minute' from deed.campaign_workers`), true)
		db.Exec(t, pgtest.Worker, `select deed.note_campaigns('killed', '1 hour')`)
	})
	for range 10 { // it gives a server that is busy two seconds for its last word, and says if that was not taken
		if !strings.Contains(log.String(), "not told that campaigns are not carried out here any more") {
			break
		}
		run(func() {})
	}
	want(t, "workers, but for the one that stopped", pgtest.One[string](t, db.Pool(pgtest.Admin), `select string_agg(worker, ' ') from deed.campaign_workers`), "killed")
	want(t, "served by one that was killed just now", served(), true)
	db.Exec(t, pgtest.Owner, `update deed.campaign_workers set seen_until = now()`)
	want(t, "served by one that was killed a while ago", served(), false)
	db.Exec(t, pgtest.Owner, `update deed.campaign_workers set seen_until = now() - interval '25 hours'`)
	db.Exec(t, pgtest.Worker, `select deed.note_campaigns('w', '1 minute')`)
	want(t, "workers after a day", pgtest.One[string](t, db.Pool(pgtest.Admin), `select string_agg(worker, ' ') from deed.campaign_workers`), "w")
	for _, bad := range []string{`null, '1 minute'`, `'', '1 minute'`, `'w', '0'`, `'w', '2 hours'`} {
		if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.note_campaigns(`+bad+`)`); err == nil {
			t.Errorf("note_campaigns(%s) is taken", bad)
		}
	}
}
