package inbound_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// A source whose provider nobody has registered stops none but itself: what comes to the others is run, and what waits in the
// database for them, and the process is ready. It takes requests itself when the provider comes.
func TestReceiver_ASourceWaitsForItsOwnProviderAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	for _, of := range []string{"plain", "other"} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages($1, array['0'], array['telegram'], array['ann'], array['https://example.com/ann'], array['hi'], array['{}'], '', 'link',
			'00000000-0000-0000-0000-000000000000', 'w')`, of)
	}
	other := source(echo)
	other.Reply.Provider = "nobody"
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(echo), "other": other}}))
	if err != nil {
		t.Fatal(err)
	}
	url, stop := serveIn(t, r)
	eventually(t, "one to take requests", func() bool { return len(r.Waiting()) == 1 })
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "source other: replies go by nobody") {
		t.Errorf("at its start, when its provider may be about to begin: %v", err)
	}
	eventually(t, "the process to be ready", func() bool { return r.Ready() == nil })
	want(t, "what comes to a source with its provider", post(t, url+"/in/plain", "1 ann hi"), http.StatusOK)
	want(t, "what comes to one without", post(t, url+"/in/other", "1 ann hi"), http.StatusServiceUnavailable)
	event := inbound.Event{ID: "2", Sender: "ann", Kind: "telegram", ReplyTo: "https://example.com/ann", Body: []byte(`{}`)}
	if err := r.Take(t.Context(), "other", "", event); err == nil || !strings.Contains(err.Error(), "replies go by nobody, which no dispatcher has registered") {
		t.Errorf("what comes to it otherwise: %v", err)
	}
	want(t, "which wait", r.Waiting(), map[string]string{"other": "replies go by nobody, which no dispatcher has registered"})
	of := func(source string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(platform_message_id || ' ' || status, ', ' order by turn) from deed.channel_messages where source = $1`, source)
	}
	eventually(t, "what was stored before to be run", func() bool { return of("plain") == "0 executed, 1 executed" })
	want(t, "of the source that waits", of("other"), "0 accepted")
	db.Providers(t, "fake", "nobody")
	eventually(t, "its provider to be seen", func() bool { return post(t, url+"/in/other", "1 ann hi") == http.StatusOK })
	want(t, "which wait then", len(r.Waiting()), 0)
	eventually(t, "what it left", func() bool { return of("other") == "0 executed, 1 executed" })
	stop()
	if r.Ready() == nil {
		t.Error("one that has ended is ready")
	}
	verified(t, db)
}

// A process none of whose sources takes anything is not ready, and says which wait for what.
func TestReceiver_IsNotReadyWhereAllSourcesWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sources := map[string]inbound.SourceOptions{}
	for _, name := range []string{"one", "two"} {
		s := source(echo)
		s.Reply.Provider = "of_" + name
		sources[name] = s
	}
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 4), patient(inbound.Options{Sources: sources}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	const both = "source one: replies go by of_one, which no dispatcher has registered; source two: replies go by of_two, which no dispatcher has registered"
	eventually(t, "both to be named", func() bool {
		err := r.Ready()
		return err != nil && strings.Contains(err.Error(), both)
	})
	want(t, "a request", post(t, server.URL+"/in/one", "1 ann hi"), http.StatusServiceUnavailable)
	db.Providers(t, "fake", "of_two")
	eventually(t, "one to take requests", func() bool { return r.Ready() == nil })
	want(t, "a request of the one that waits", post(t, server.URL+"/in/one", "1 ann hi"), http.StatusServiceUnavailable)
	want(t, "a request of the other", post(t, server.URL+"/in/two", "1 ann hi"), http.StatusOK)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
