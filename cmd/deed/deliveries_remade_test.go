package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// The request of a campaign's delivery is not kept once it is accepted, and is made again when it is asked for: byte for byte what was
// sent, its date and its link to leave by included, under an earlier secret, too. What makes another of it now is named as that.
func TestDeliveriesShow_TheRequestMadeAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	far, address := mailCatcher(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := func(name, public string) string {
		return write(name, `channels: {outbox: {enabled: true, poll_interval_seconds: 0.05}}
campaigns: {enabled: true, poll_interval: 50ms}
public: {listen: "127.0.0.1:0", `+public+`}
providers:
  mail: {type: smtp, address: "`+address+`", security: none, from: shop@example.com}
`)
	}
	write("one", "a-secret-of-thirty-two-characters-")
	write("two", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	file := config("deed.yaml", "url: https://hooks.example.com, link_secret: file:one")
	text := write("spring.yaml", `campaign: spring
channel: email
provider: mail
purpose: newsletter
from: Shop <shop@example.com>
subject: "{{ contact.name }}, spring is here"
text: spring.txt
html: spring.html
audience: {data: [name]}
`)
	write("spring.txt", "Dear {{ contact.name }},\n\n{{ unsubscribe_url }}\n")
	write("spring.html", `<p>Dear {{ contact.name }}, <a href="{{ unsubscribe_url }}">leave</a></p>`)
	people := write("people.csv", "email,name\nann@example.com,Änn\n")
	deedOK(t, db.URL(pgtest.Worker), "providers", "register", "--config", file)
	deedOK(t, db.URL(pgtest.Admin), "campaign", "deploy", text, "--csv", people, "--config", file)
	deedOK(t, db.URL(pgtest.Worker), "relay", "--config", file, "--until-empty", "--listen", "")
	owner := db.Pool(pgtest.Owner)
	id := pgtest.One[string](t, owner, `select id::text from deed.channel_outbox where status = 'sent' and request is null and request_sha256 is not null`)
	eventually(t, "another second than that of its date", func() bool {
		return pgtest.One[bool](t, owner, `select date_trunc('second', clock_timestamp()) > date_trunc('second', made_at) from deed.channel_outbox`)
	})

	shown := func(config string) (got struct{ Rendering remade }) {
		t.Helper()
		out := deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--payload", "--json", "--config", config)
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err, out)
		}
		return got
	}
	mail := far.Mailbox.List()
	if len(mail) != 1 {
		t.Fatalf("%d mails arrived, want 1", len(mail))
	}
	first := shown(file).Rendering
	if !first.Same || first.Error != "" || !strings.HasSuffix(string(first.Request), string(mail[0].Raw)) {
		t.Errorf("made again: same %t, error %q\n%s\nwhat arrived:\n%s", first.Same, first.Error, first.Request, mail[0].Raw)
	}
	rotated := config("rotated.yaml", "url: https://hooks.example.com, link_secret: file:two, previous_link_secret: file:one")
	if r := shown(rotated).Rendering; !r.Same {
		t.Errorf("once the secret of links was rotated: same %t, error %q\n%s", r.Same, r.Error, r.Request)
	}
	moved := config("moved.yaml", "url: https://other.example.com, link_secret: file:one")
	if r := shown(moved).Rendering; r.Same || r.Error != "" || !strings.Contains(string(r.Request), "https://other.example.com/u/") {
		t.Errorf("with another public.url: same %t, error %q\n%s", r.Same, r.Error, r.Request)
	}
	out := deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--payload", "--config", file)
	if !strings.Contains(out, "yes, and it is what was sent, byte for byte") || !strings.Contains(out, "spring_is_here") {
		t.Error(out)
	}
	out = deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--payload", "--config", moved)
	if !strings.Contains(out, "it is NOT what was sent: its sha256 is ") {
		t.Error(out)
	}
	out = deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--payload", "--config", write("empty.yaml", "{}\n"))
	if !strings.Contains(out, "no: ") || !strings.Contains(out, "does not have the provider mail") {
		t.Error(out)
	}
	if out = deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--config", file); strings.Contains(out, "made again") {
		t.Error("it is made again unasked:", out)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set made_at = null`)
	out = deedOK(t, db.URL(pgtest.Worker), "deliveries", "show", id, "--payload", "--config", file)
	if !strings.Contains(out, "it was called before deed kept when a request was made") {
		t.Error(out)
	}
}
