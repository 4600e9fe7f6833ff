package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// What is not UTF-8 is refused before anything is asked, by the flag's name: it
// could be stored as something else only.
func TestDeliver_NotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"to", "from", "subject", "text", "html", "key", "correlation-id"} {
		root := newRoot()
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs([]string{
			"deliver", "--database-url", "postgres://nowhere.invalid/d", "--to", "bob@example.org", "--subject", "x", "--text", "x",
			"--" + name, "Gr\xf6\xdfe",
		})
		err := root.Execute()
		exit, ok := errors.AsType[*exitError](err)
		if !ok || exit.code != exitUsage || !strings.Contains(err.Error(), "--"+name+" is not UTF-8") {
			t.Errorf("--%s: %v", name, err)
		}
	}
}

// What the service of a provider of deed.yaml would refuse is told at once, with the
// field, and nothing is reserved.
func TestDeliver_WhatTheProviderRefusesIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "deed.yaml")
	for name, text := range map[string]string{file: "providers: {bot: {type: telegram, token: 'file:token'}}\n", filepath.Join(dir, "token"): "1:token"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deedOK(t, db.URL(pgtest.Worker), "providers", "register", "--config", file)
	for text, fits := range map[string]bool{strings.Repeat("x", 4096): true, strings.Repeat("x", 4097): false} {
		p := start(t, db.URL(pgtest.App), "deliver", "--config", file, "--provider", "bot", "--channel", "chat", "--to", "42", "--payload", `{"text": "`+text+`"}`)
		if code := p.wait(); (code == 0) != fits {
			t.Errorf("exit status %d for %d characters: %s", code, len(text), &p.errOut)
		} else if said := p.errOut.String(); !fits && !strings.Contains(said, "provider bot: the text has over 4096 characters") {
			t.Errorf("said %q", said)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != 1 {
		t.Errorf("%d were reserved, want the one that fits", n)
	}
}

// Where deed.yaml has not got the provider, what its kind of service refuses of everybody is told, and what
// is for the account that it is registered with is taken.
func TestDeliver_OfAProviderThatIsElsewhere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "deed.yaml")
	for name, text := range map[string]string{
		file: `providers:
  sky: {type: bluesky, account: Shop.example.com, password: 'file:secret'}
  texts: {type: twilio, account_sid: AC0123456789abcdef0123456789abcdef, auth_token: 'file:secret', from: '+15017122661'}
  post: {type: smtp, address: 'smtp.example:25', security: none}
  toots: {type: mastodon, endpoint: 'https://toots.example', account: '@shop@toots.example', token: 'file:secret', max_characters: 5000}
`,
		filepath.Join(dir, "secret"): "abcd-efgh",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deedOK(t, db.URL(pgtest.Worker), "providers", "register", "--config", file)
	for _, c := range []struct{ provider, to, payload, want string }{
		{"sky", "shop.example.com", `{"text": "x"}`, ""},
		{"sky", "another.example.com", `{"text": "x"}`, "the recipient is no account"},
		{"sky", "shop.example.com", `{"text": "` + strings.Repeat("x", 301) + `"}`, "over 300 characters"},
		{"toots", "@shop@toots.example", `{"text": "` + strings.Repeat("x", 4000) + `"}`, ""},
		{"toots", "@shop@toots.example", `{"text": "x", "visibility": "secret"}`, "visibility is none of"},
	} {
		p := start(t, db.URL(pgtest.Worker), "deliver", "--provider", c.provider, "--channel", "social", "--to", c.to, "--payload", c.payload)
		if code := p.wait(); (code == 0) != (c.want == "") || !strings.Contains(p.errOut.String(), c.want) {
			t.Errorf("%s to %s: exit status %d, said %q", c.provider, c.to, code, p.errOut.String())
		}
	}
	owner := db.Pool(pgtest.Owner)
	before := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox`)
	for _, c := range []struct{ provider, flags, want string }{
		{"post", "--channel sms --to +16505551234 --text x", "the provider post (smtp) does not serve the channel sms"},
		{"texts", "--channel email --to a@example.com --subject x --text x", "does not serve the channel email"},
		{"texts", "--channel sms --to +16505551234 --text " + strings.Repeat("x", 1601), "the text has over 1600 characters"},
		{"texts", "--channel sms --to +16505551234", "the channel sms wants a --text, or a --payload"},
		{"texts", "--channel sms --to +16505551234 --text x --subject y", "--subject, --html, --cc and --attach are an e-mail's"},
		{"texts", "--channel sms --to +16505551234 --text x --payload {}", "exclude each other"},
	} {
		p := start(t, db.URL(pgtest.Worker), append([]string{"deliver", "--provider", c.provider}, strings.Fields(c.flags)...)...)
		if code := p.wait(); code != exitUsage || !strings.Contains(p.errOut.String(), c.want) {
			t.Errorf("%s with %.60s: exit status %d, said %q", c.provider, c.flags, code, p.errOut.String())
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox`); n != before {
		t.Errorf("%d of what is refused were reserved", n-before)
	}
	deedOK(t, db.URL(pgtest.Worker), "deliver", "--provider", "texts", "--channel", "sms", "--to", "+16505551234", "--text", `a "text"`)
	if text := pgtest.One[string](t, owner, `select payload ->> 'text' from deed.channel_outbox where provider = 'texts'`); text != `a "text"` {
		t.Errorf("--text made %q", text)
	}
}

// --expires counts from the database's clock, by which it is judged, whatever this machine's says.
func TestDeliver_ExpiresByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "test", "p")
	// The session's own is a day ahead of what the functions of deed, which have a path of their own, go by. The owner's goes
	// past a pooler, which passes no path on.
	db.Exec(t, pgtest.Owner, `create schema clocks`)
	db.Exec(t, pgtest.Owner, `create function clocks.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() + interval '1 day' $$`)
	deedOK(t, db.URL(pgtest.Owner)+"&search_path=clocks,pg_catalog", "deliver", "--provider", "p", "--to", "bob@example.org", "--subject", "x", "--text", "x", "--expires", "1h")
	if !pgtest.One[bool](t, db.Pool(pgtest.Owner), `select expires_at > created_at + interval '24 hours' from deed.channel_outbox`) {
		t.Error("it expires by this machine's clock")
	}
}
