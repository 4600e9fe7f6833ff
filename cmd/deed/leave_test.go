package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A program that follows the link changes nothing; the button of the page, and that of a mail
// program, do; and a link that is not ours, or late, or of a tenant that is gone, says so.
func TestLeave_ThePage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: "a secret for tests"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/u/{token}", &leavePage{links, newLinked(db.Pool(pgtest.Worker), slog.New(slog.DiscardHandler))})
	ask := func(method, link, body string) (int, string) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, strings.TrimPrefix(link, "https://hooks.example.com"), strings.NewReader(body)))
		if h := w.Header(); h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" || h.Get("Set-Cookie") != "" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("headers: %v", h)
		}
		return w.Code, w.Body.String()
	}
	words := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(purpose || ' ' || state, ', ' order by n), '') from deed.consents`)
	}
	const delivery, oneClick = "01a1fe76-14ee-7f1b-b119-532699ab7d4c", "List-Unsubscribe=One-Click"
	multipart := "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n"
	of := func(purpose string, owner tenant.ID, until time.Duration) string {
		return links.Leave(contact.Leaving{Tenant: owner.String(), Channel: "email", Purpose: purpose, Delivery: delivery, Contact: list[0].ID}, time.Now().Add(until))
	}
	link := of("news", tenant.ID{}, time.Hour)
	changed := link[:len(link)-1] + "A"
	if changed == link {
		changed = link[:len(link)-1] + "Q"
	}
	confirm := links.Confirm(contact.Asked{Contact: list[0].ID, Channel: "email", Purpose: "news"}, time.Now().Add(time.Hour))
	for _, c := range []struct {
		what, method, link, body, text string
		code                           int
	}{
		{"followed", "GET", link, "", "<button>Unsubscribe</button>", 200},
		{"followed by a program", "HEAD", link, "", "", 200},
		{"with a body", "GET", link, oneClick, "<button>Unsubscribe</button>", 200},
		{"another method", "PUT", link, oneClick, "", 405},
		{"nothing said", "POST", link, "", "", 400},
		{"something else said", "POST", link, "x=y", "", 400},
		{"too much said", "POST", link, oneClick + strings.Repeat("&x=y", 2000), "", 400},
		{"changed", "POST", changed, oneClick, "none of ours", 404},
		{"of another page", "POST", strings.Replace(confirm, "/confirm/", "/u/", 1), oneClick, "none of ours", 404},
		{"late", "POST", of("news", tenant.ID{}, -time.Hour), oneClick, "time of this link", 410},
		{"of no tenant", "POST", of("news", tenant.ID{9}, time.Hour), oneClick, "none of ours", 404},
	} {
		if code, text := ask(c.method, c.link, c.body); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", c.what, code, text)
		}
	}
	if got := words(); got != "" {
		t.Fatalf("before anybody has pressed anything: %s", got)
	}
	for _, body := range []string{oneClick, multipart} {
		if code, text := ask("POST", link, body); code != 200 || text != "" {
			t.Errorf("one click: %d %q", code, text)
		}
	}
	if code, text := ask("POST", of("offers", tenant.ID{}, time.Hour), "page=1"); code != 200 || !strings.Contains(text, "no more e-mails of: offers") {
		t.Errorf("by the page: %d %s", code, text)
	}
	if got := words(); got != "news revoked, offers revoked" {
		t.Errorf("after the buttons: %s", got)
	}
	if code, text := ask("POST", links.Leave(contact.Leaving{Channel: "email", Purpose: "news", Delivery: delivery}, time.Now().Add(time.Hour)), "page=1"); code != 200 || !strings.Contains(text, "Nothing is known of you") {
		t.Errorf("of nobody: %d %s", code, text)
	}
}
