package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
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
	var said output
	acts := newLinked(pool, slog.New(slog.NewTextHandler(&said, nil)))
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

	// pressing has people press again and again until n of them have been seen to wait, which each does for half a second only, and
	// something was done beside them. It returns what they were told.
	pressing := func(n int, beside func(), people ...func() *httptest.ResponseRecorder) (told []*httptest.ResponseRecorder) {
		t.Helper()
		var mu sync.Mutex
		var all sync.WaitGroup
		ctx, enough := context.WithCancel(t.Context())
		defer enough()
		for _, one := range people {
			all.Go(func() {
				for ctx.Err() == nil {
					w := one()
					mu.Lock()
					told = append(told, w)
					mu.Unlock()
				}
			})
		}
		eventually(t, "as many to wait as may", func() bool {
			return n <= pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted`)
		})
		beside()
		enough()
		all.Wait()
		return told
	}
	confirms := func() *httptest.ResponseRecorder { return press(confirm, "") }
	leaves := func() *httptest.ResponseRecorder { return press(leave, "page=1") }
	clicks := func() *httptest.ResponseRecorder { return press(leave, "List-Unsubscribe=One-Click") }
	connections := func() {
		if got := pool.Stat().AcquiredConns(); got > mostLinkedOf {
			t.Errorf("they have %d connections, which are those of platforms' messages, too", got)
		}
	}
	for _, w := range pressing(mostLinkedOf, connections, confirms, leaves, clicks, leaves, confirms, leaves, clicks, leaves) {
		if w.Code != 503 || w.Header().Get("Retry-After") != "60" || !strings.Contains(w.Body.String(), "try again in a minute") {
			t.Errorf("beside the open erasure: %d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body)
		}
	}
	if !strings.Contains(said.String(), "somebody has the contact locked") {
		t.Errorf("nobody was told before all time was over:\n%s", &said)
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
	commit := func() {
		if err := open.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, w := range pressing(1, commit, func() *httptest.ResponseRecorder { return press(digest, "") }, leaves) {
		if w.Code != 410 && w.Code != 503 && (w.Code != 200 || !strings.Contains(w.Body.String(), "Nothing is known of you")) {
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

// Buttons of one tenant's people, whom somebody has locked, leave those of another's a place, however many press them.
func TestContract_D12_ATenantsLockedContactHoldsUpNoOthersPage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	other := tenant.ID{1}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: "a secret for tests"})
	if err != nil {
		t.Fatal(err)
	}
	askedOf := func(owner tenant.ID, named string) (who, path string) {
		list, err := contact.UpsertFor(t.Context(), db.Pool(pgtest.Worker), owner, "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
		if err != nil {
			t.Fatal(err)
		}
		word := contact.Word{Contact: list[0].ID, Channel: "email", Purpose: "news", State: contact.Pending, Source: "form"}
		if _, err := contact.SetConsentsFor(t.Context(), db.Pool(pgtest.Worker), owner, "test", word); err != nil {
			t.Fatal(err)
		}
		link := links.Confirm(contact.Asked{Tenant: named, Contact: list[0].ID, Channel: "email", Purpose: "news"}, time.Now().Add(time.Hour))
		return list[0].ID, strings.TrimPrefix(link, "https://hooks.example.com")
	}
	ann, locked := askedOf(tenant.Default, "")
	_, named := askedOf(tenant.Default, tenant.Default.String()) // the same one: no tenant of its own
	_, free := askedOf(other, other.String())
	mux := http.NewServeMux()
	mux.Handle("/confirm/{token}", &confirmPage{links, newLinked(db.NewPool(pgtest.Worker, 12), slog.New(slog.DiscardHandler))})
	press := func(ctx context.Context, path string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", path, nil))
		return w.Code
	}
	open, err := db.NewPool(pgtest.Admin, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Rollback(context.Background()) })
	if _, err := contact.Erase(t.Context(), open, new(tenant.Default), ann, audit.Act{By: "test", Reason: "asked for"}, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, enough := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer enough()
	for i := range 200 {
		all.Go(func() {
			for ctx.Err() == nil {
				press(ctx, []string{locked, named}[i%2])
			}
		})
	}
	most := 0
	waiting := func() int {
		n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted`)
		most = max(most, n)
		return n
	}
	eventually(t, "buttons to wait", func() bool { return waiting() >= 2 })
	if code := press(t.Context(), free); code != http.StatusOK {
		t.Errorf("another tenant's: %d", code)
	}
	for range 20 {
		waiting()
	}
	if most > 2 {
		t.Errorf("%d of one tenant's waited for the lock", most)
	}
}

// unheard is a connection over which the answer to the next commit is lost, once the server has given it.
type unheard struct {
	net.Conn
	next *atomic.Bool
	lost atomic.Bool
}

func (c *unheard) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("commit")) && c.next.CompareAndSwap(true, false) {
		c.lost.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *unheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lost.Load() {
		_ = c.Conn.Close()
		return 0, errors.New("the answer was lost")
	}
	return n, err
}

// Where the answer to a commit is lost nobody is told that nothing was changed: it is, here. Who presses again does no harm.
func TestLinked_ACommitWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", contact.Word{Contact: list[0].ID, Channel: "email", Purpose: "news", State: contact.Pending, Source: "form"}); err != nil {
		t.Fatal(err)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: "a secret for tests"})
	if err != nil {
		t.Fatal(err)
	}
	var next atomic.Bool
	cfg, err := pgxpool.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &unheard{Conn: conn, next: &next}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var said output
	mux := http.NewServeMux()
	mux.Handle("/confirm/{token}", &confirmPage{links, newLinked(pool, slog.New(slog.NewTextHandler(&said, nil)))})
	link := links.Confirm(contact.Asked{Contact: list[0].ID, Channel: "email", Purpose: "news"}, time.Now().Add(time.Hour))
	next.Store(true)
	for _, want := range []struct {
		code int
		says string
	}{{503, "It may be done, or not. Please try again in a minute"}, {200, "Thank you"}} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", strings.TrimPrefix(link, "https://hooks.example.com"), nil))
		if w.Code != want.code || !strings.Contains(w.Body.String(), want.says) || strings.Contains(w.Body.String(), "Nothing was changed") {
			t.Errorf("%d %s, want %d with %q", w.Code, w.Body, want.code, want.says)
		}
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(state, ', ' order by n) from deed.consents`); got != "pending, granted" {
			t.Errorf("after the answer %d: %s", w.Code, got)
		}
	}
	if !strings.Contains(said.String(), "nobody knows whether it was committed") {
		t.Errorf("the log does not say so:\n%s", &said)
	}
}
