package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// The page of a link confirms when its button is pressed, and not when a program follows
// the link; of a link that was changed, or is late, it says so and changes nothing.
func TestConfirm_ThePage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "deed.yaml")
	if err := os.WriteFile(file, []byte("public: {listen: '127.0.0.1:0', url: 'https://hooks.example.com', link_secret: 'env:HOOK_SECRET'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := deedOK(t, db.URL(pgtest.App), "consents", "set", list[0].ID, "--purpose", "news", "--state", "pending", "--source", "form", "--config", file)
	link := strings.Fields(said)[len(strings.Fields(said))-1]
	if !strings.HasPrefix(link, "https://hooks.example.com/confirm/") {
		t.Fatalf("said: %s", said)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/confirm/{token}", &confirmPage{links, db.Pool(pgtest.Worker), slog.New(slog.DiscardHandler)})
	ask := func(method, link string) (int, string) {
		t.Helper()
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, strings.TrimPrefix(link, "https://hooks.example.com"), nil))
		if h := w.Header(); h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("headers: %v", h)
		}
		return w.Code, w.Body.String()
	}
	states := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(state, ' ' order by n) from deed.consents`)
	}
	late := links.Confirm(contact.Asked{Contact: list[0].ID, Channel: "email", Purpose: "news"}, time.Now().Add(-time.Hour))
	flipped := link[:len(link)-1] + "A"
	if flipped == link {
		flipped = link[:len(link)-1] + "Q"
	}
	nobody := links.Confirm(contact.Asked{Contact: list[0].ID, Channel: "email", Purpose: "offers"}, time.Now().Add(time.Hour))
	for _, c := range []struct {
		what, method, link, text string
		code                     int
	}{
		{"followed", "GET", link, "<button>", 200},
		{"followed by a program", "HEAD", link, "", 405},
		{"changed", "POST", flipped, "none of ours", 404},
		{"late", "POST", late, "time of this link", 410},
		{"never asked", "POST", nobody, "time of this link", 410},
	} {
		if code, text := ask(c.method, c.link); code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: %d %s", c.what, code, text)
		}
	}
	if got := states(); got != "pending" {
		t.Errorf("before the button: %s", got)
	}
	for range 2 {
		if code, text := ask("POST", link); code != 200 || !strings.Contains(text, "Thank you") {
			t.Errorf("pressed: %d %s", code, text)
		}
	}
	if got := states(); got != "pending granted" {
		t.Errorf("after the button: %s", got)
	}
	if said := deedOK(t, db.URL(pgtest.App), "consents", "confirm", link, "--config", file); !strings.Contains(said, "had been confirmed before") {
		t.Errorf("by hand: %s", said)
	}
	if said := deedOK(t, db.URL(pgtest.App), "consents", "confirm", link, "--config", file, "--json"); !strings.Contains(said, `"confirmed":true`) || !strings.Contains(said, `"new":false`) {
		t.Errorf("as JSON: %s", said)
	}
	for _, bad := range [][]string{{"consents", "confirm", late, "--config", file}, {"consents", "confirm", "x", "--config", file}, {"consents", "confirm", link}} {
		p := start(t, db.URL(pgtest.App), bad...)
		if code := p.wait(); code != 2 {
			t.Errorf("%q: status %d: %s", bad, code, p.errOut.String())
		}
	}
}
