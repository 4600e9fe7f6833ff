package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// springFile writes a campaign of e-mails, its people and a deed.yaml, and returns what a command is given of them.
func springFile(t *testing.T, config, from string) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("spring.txt", "Dear {{ contact.name }},\n\n{{ unsubscribe_url }}\n")
	return []string{
		write("spring.yaml", "campaign: spring\nchannel: email\nprovider: mail\npurpose: newsletter\nfrom: "+from+"\nsubject: spring is here\ntext: spring.txt\naudience: {data: [name]}\n"),
		"--csv", write("people.csv", "email,name\nann@example.com,Ann\n"), "--config", write("deed.yaml", config),
	}
}

// Who deploys a campaign hears where no relay carries any out; where that could not be looked at, of the run that was made all
// the same.
func TestCampaignDeploy_SaysWhetherItIsCarriedOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "stub", "mail")
	files := springFile(t, "providers:\n  mail: {type: stub}\n", "Shop <shop@example.com>")
	deploy := func(note, served string) {
		t.Helper()
		for _, asJSON := range []bool{false, true} {
			args := append([]string{"campaign", "deploy"}, files...)
			want := ": "
			if asJSON {
				args, want = append(args, "--json"), `"served":`+served
			}
			p := start(t, db.URL(pgtest.Admin), args...)
			if code := p.wait(); code != exitOK || !strings.Contains(p.out.String(), want) || !strings.Contains(p.out.String(), "01") {
				t.Errorf("exit status %d, %s, want %q", code, &p.out, want)
			}
			if said := p.errOut.String(); strings.Contains(said, "note:") != (note != "") || !strings.Contains(said, note) {
				t.Errorf("it notes %q, want %q", said, note)
			}
		}
	}
	deploy("note: no relay carries out campaigns now, and nobody gets anything until one does", "false")
	db.Exec(t, pgtest.Worker, `select deed.note_campaigns('w', '1 hour')`)
	deploy("", "true")
	db.Exec(t, pgtest.Owner, `create or replace function deed.campaigns_served() returns boolean language plpgsql as $$ begin raise exception 'it is broken'; end $$`)
	deploy("note: it could not be looked whether a relay carries out campaigns: ", "null")
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs`); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// A sender whom the provider does not allow is refused by name before anything is stored, where deed.yaml has the provider and
// what it needs; where it has not, nobody knows.
func TestContract_C8_ASenderThatTheProviderRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "smtp", "mail")
	const rules = `no_sender: from is not a sender that the provider allows; see from_allowed`
	for name, c := range map[string]struct{ provider, from, want string }{
		"another domain than its from":  {`{type: smtp, address: 127.0.0.1:25, from: shop@shop.example}`, "Shop <shop@example.com>", rules},
		"none of from_allowed":          {`{type: smtp, address: 127.0.0.1:25, from: shop@example.com, from_allowed: ["news@example.com"]}`, "Shop <shop@example.com>", rules},
		"one of them":                   {`{type: smtp, address: 127.0.0.1:25, from: shop@shop.example, from_allowed: ["@example.com"]}`, "Shop <shop@example.com>", ""},
		"its own domain":                {`{type: smtp, address: 127.0.0.1:25, from: other@example.com}`, "Shop <shop@example.com>", ""},
		"a secret that is not here":     {`{type: smtp, address: 127.0.0.1:25, from: shop@shop.example, user: u, password: "env:NOT_HERE"}`, "Shop <shop@example.com>", ""},
		"a provider that is not, there": {``, "Shop <shop@example.com>", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := "providers:\n  other: {type: stub}\n"
			if c.provider != "" {
				config = "providers:\n  mail: " + c.provider + "\n"
			}
			files := springFile(t, config, c.from)
			for _, act := range []string{"check", "deploy"} {
				args := append([]string{"campaign", act}, files...)
				if act == "deploy" {
					args = append(args, "--dry-run")
				}
				p := start(t, db.URL(pgtest.Admin), args...)
				code := p.wait()
				if said := p.errOut.String(); (code == exitOK) != (c.want == "") || !strings.Contains(said, c.want) || strings.Count(said, "no_sender") > 1 {
					t.Errorf("%s: exit status %d, %q, want %q", act, code, said, c.want)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaigns`); n != 0 {
			t.Errorf("%d campaigns were stored", n)
		}
	})
}
