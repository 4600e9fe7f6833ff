package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// An erasure that is left open holds up no button of a page, nor what platforms send beside it:
// whoever presses it is told to come again, nothing is noted, and once it has ended it is as if it
// had been short.
func TestContract_D12_AnErasureLeftOpenHoldsUpNoPage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	ann := list[0].ID
	word := contact.Word{Contact: ann, Channel: "email", Purpose: "news", State: contact.Pending, Source: "form"}
	other := word
	other.Purpose = "digest"
	if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", word, other); err != nil {
		t.Fatal(err)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: "a secret for tests"})
	if err != nil {
		t.Fatal(err)
	}
	pool := db.NewPool(pgtest.Worker, 12)
	acts := newLinked(pool, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	mux.Handle("/confirm/{token}", &confirmPage{links, acts})
	mux.Handle("/u/{token}", &leavePage{links, acts})
	confirm := links.Confirm(contact.Asked{Contact: ann, Channel: "email", Purpose: "news"}, time.Now().Add(time.Hour))
	digest := links.Confirm(contact.Asked{Contact: ann, Channel: "email", Purpose: "digest"}, time.Now().Add(time.Hour))
	leave := links.Leave(contact.Leaving{Channel: "email", Purpose: "offers", Delivery: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Contact: ann}, time.Now().Add(time.Hour))
	press := func(link, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", strings.TrimPrefix(link, "https://hooks.example.com"), strings.NewReader(body)))
		return w
	}
	words := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(purpose || ' ' || state, ', ' order by n) from deed.consents`)
	}
	open, err := db.NewPool(pgtest.App, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Rollback(context.Background()) })
	erase := func(tx pgx.Tx) {
		t.Helper()
		if _, err := contact.Erase(t.Context(), tx, nil, ann, audit.Act{By: "test", Reason: "asked for"}, contact.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	erase(open)

	const many = 8
	began, pressed := time.Now(), make(chan *httptest.ResponseRecorder, many)
	for range many / 4 {
		go func() { pressed <- press(confirm, "") }()
		go func() { pressed <- press(leave, "page=1") }()
		go func() { pressed <- press(leave, "List-Unsubscribe=One-Click") }()
		go func() { pressed <- press(leave, "page=1") }()
	}
	waiting := func(n int) bool {
		return n <= pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted`)
	}
	eventually(t, "as many to wait as may", func() bool { return waiting(mostLinked) })
	if got := pool.Stat().AcquiredConns(); got > mostLinked {
		t.Errorf("they have %d connections, which are those of platforms' messages, too", got)
	}
	for range many {
		w := <-pressed
		if w.Code != 503 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "try again in a minute") {
			t.Errorf("beside the open erasure: %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
	if took := time.Since(began); took > linkedTimeout {
		t.Errorf("all were told after %s", took)
	}
	if got := words(); got != "news pending, digest pending" {
		t.Errorf("beside the open erasure: %s", got)
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := press(confirm, ""); w.Code != 200 || !strings.Contains(w.Body.String(), "Thank you") {
		t.Errorf("confirmed afterwards: %d %s", w.Code, w.Body)
	}
	if w := press(leave, "page=1"); w.Code != 200 || !strings.Contains(w.Body.String(), "no more e-mails of: offers") {
		t.Errorf("left afterwards: %d %s", w.Code, w.Body)
	}
	if got := words(); got != "news pending, digest pending, news granted, offers revoked" {
		t.Errorf("afterwards: %s", got)
	}

	// One that is short, and ends while somebody waits.
	if open, err = db.NewPool(pgtest.App, 1).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	erase(open)
	go func() { pressed <- press(digest, "") }()
	go func() { pressed <- press(leave, "page=1") }()
	eventually(t, "somebody to wait", func() bool { return waiting(1) })
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if w := <-pressed; w.Code != 410 && w.Code != 503 && (w.Code != 200 || !strings.Contains(w.Body.String(), "Nothing is known of you")) {
			t.Errorf("while the erasure ends: %d %s", w.Code, w.Body)
		}
	}
	if w := press(digest, ""); w.Code != 410 {
		t.Errorf("confirmed by who was erased: %d %s", w.Code, w.Body)
	}
	if w := press(leave, "page=1"); w.Code != 200 || !strings.Contains(w.Body.String(), "Nothing is known of you") {
		t.Errorf("left by who was erased: %d %s", w.Code, w.Body)
	}
	if got := words(); got != "news pending, digest pending, news granted, offers revoked" {
		t.Errorf("of who was erased: %s", got)
	}
}
