package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
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
	mux.Handle("/confirm/{token}", &confirmPage{links, newLinked(db.Pool(pgtest.Worker), slog.New(slog.DiscardHandler))})
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

// The secret of links may be rotated more than once while links that an older one has signed
// are under way: those work until they expire, and as long as it is named.
func TestLinks_RotatedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := []string{"the first of three secrets", "the second of three secrets", "the third of three secrets"}
	for i, secret := range secrets {
		if err := os.WriteFile(filepath.Join(dir, "link"+strconv.Itoa(i+1)), []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(named string) *contact.Links {
		t.Helper()
		path := filepath.Join(dir, "deed.yaml")
		if err := os.WriteFile(path, []byte("public: {listen: '127.0.0.1:0', url: 'https://hooks.example.com', "+named+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		links, err := linksOf(file)
		if err != nil {
			t.Fatal(err)
		}
		return links
	}
	asked, now := contact.Asked{Tenant: tenant.Default.String(), Contact: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Channel: "email", Purpose: "news"}, time.Now()
	var made []string
	for _, n := range []string{"1", "2", "3"} {
		made = append(made, of("link_secret: 'file:link"+n+"'").Confirm(asked, now.Add(time.Hour)))
	}
	for named, good := range map[string][]bool{
		"link_secret: 'file:link3', previous_link_secret: ['file:link2', 'file:link1']": {true, true, true},
		"link_secret: 'file:link3', previous_link_secret: 'file:link2'":                 {false, true, true},
		"link_secret: 'file:link3'": {false, false, true},
	} {
		links := of(named)
		for i, link := range made {
			if got, err := links.Confirmed(link, now); (err == nil && got == asked) != good[i] || err != nil && !errors.Is(err, contact.ErrForged) {
				t.Errorf("%s: link %d: %+v, %v", named, i+1, got, err)
			}
			if _, err := links.Confirmed(link, now.Add(2*time.Hour)); good[i] && !errors.Is(err, contact.ErrExpired) {
				t.Errorf("%s: link %d, when its time is over: %v", named, i+1, err)
			}
		}
	}
	path := filepath.Join(dir, "deed.yaml")
	if err := os.WriteFile(path, []byte("public: {listen: ':1', url: 'https://x.example', link_secret: 'file:link3', previous_link_secret: ['file:link2', 'the first of three secrets']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(path); err == nil || !strings.Contains(err.Error(), "previous_link_secret: want env:NAME or file:PATH") || strings.Contains(err.Error(), "first of") {
		t.Errorf("a secret in the file itself: %v", err)
	}
}
