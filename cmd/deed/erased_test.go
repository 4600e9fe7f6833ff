package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// Of somebody who was erased no command shows anything, nor has any table, nor what
// the relay logged that emptied what was sent to them; and what was done can be shown and
// verified as before.
func TestContract_D12_NothingIsShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	app, admin := db.URL(pgtest.App), db.URL(pgtest.Admin)
	one := strings.Fields(deedOK(t, app, "contacts", "add", "--email", "Canary-One@example.com", "--phone", "+4930555001", "--identity", "telegram=canary", "--data", `{"note": "canary"}`))[0]
	two := strings.Fields(deedOK(t, app, "contacts", "add", "--email", "canary-two@example.com"))[0]
	deedOK(t, app, "contacts", "merge", two, one, "--reason", "canary said so")
	deedOK(t, app, "consents", "set", one, "--channel", "email", "--purpose", "news", "--state", "revoked", "--source", "form", "--evidence", `{"from": "canary"}`)
	deedOK(t, app, "suppressions", "add", "canary-two@example.com", "--reason", "canary wrote to us")
	worker := db.Pool(pgtest.Worker)
	for _, sql := range []string{
		`select deed.accept_messages('support', '{wamid.canary,2}', '{telegram,telegram}', '{canary,canary}', '{canary,canary}', '{canary,canary}', '{canary,canary}', '', 'link', '00000000-0000-0000-0000-000000000000', 'w')`,
		`select deed.finish_messages(array[c.id], array[c.claim], '{executed}', '{null}', '{null}', 1, 'w') from deed.claim_messages('support', 1, '1 minute', 10, 'w') c`,
		`select deed.finish_messages(array[c.id], array[c.claim], '{dispatch_failed}', '{canary is not at home}', '{null}', 1, 'w') from deed.claim_messages('support', 1, '1 minute', 10, 'w') c`,
		`select deed.reserve('{email,webhook}', '{hook,hook}', '{Canary-One@example.com,https://example.com/canary}', array['{"to": "canary"}', '{"text": "canary"}']::jsonb[], array[sha256('1'), sha256('2')], p_recipient_ids => '{canary,null}',
			p_channel_message_ids => array[null, m.id], p_contacts => array[null, m.contact_id]) from deed.channel_messages m where m.status = 'executed'`,
	} {
		if _, err := worker.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	tables := func() (found []string) {
		t.Helper()
		owner := db.Pool(pgtest.Owner)
		for _, table := range strings.Fields(pgtest.One[string](t, owner, `
			select string_agg(c.oid::regclass::text, ' ') from pg_class c where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`)) {
			if pgtest.One[bool](t, owner, `select exists (select from `+table+` r where r::text ~* 'canary|4930555001' or strpos(r::text, encode('canary', 'hex')) > 0)`) {
				found = append(found, table)
			}
		}
		return found
	}
	if before := tables(); len(before) < 8 {
		t.Fatalf("the canaries are where they should be: %q", before)
	}
	deedOK(t, admin, "contacts", "erase", one, "--reason", "asked for on paper", "--yes")
	file := filepath.Join(t.TempDir(), "deed.yaml")
	if err := os.WriteFile(file, []byte("channels: {outbox: {enabled: true}}\nproviders: {mail: {type: smtp, address: '127.0.0.1:1', from: shop@example.com}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	relay := start(t, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0", "--log-level", "debug")
	eventually(t, "the erasure to end", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select not exists (select from deed.erasing)`)
	})
	relay.signal(syscall.SIGTERM)
	relay.wait()
	if left := tables(); len(left) > 0 {
		t.Errorf("left in %q", left)
	}
	list := []string{
		"contacts list", "contacts show " + one, "contacts conflicts", "contacts erasures", "contacts export " + one, "consents list", "suppressions list",
		"inbound list", "deliveries list", "audit", "dead list", "doctor",
	}
	for of, sql := range map[string]string{"inbound": `select string_agg(id::text, ' ') from deed.channel_messages`, "deliveries": `select string_agg(id::text, ' ') from deed.channel_outbox`} {
		for _, id := range strings.Fields(pgtest.One[string](t, db.Pool(pgtest.Owner), sql)) {
			list = append(list, of+" show "+id)
		}
	}
	for _, command := range list {
		args := strings.Fields(command)
		if !strings.Contains(command, "export") { // that is JSON anyway
			args = append(args, "--json")
		}
		p := start(t, admin, args...)
		p.wait()
		said := p.out.String() + p.errOut.String()
		if p.out.String() == "" || strings.Contains(strings.ToLower(said), "canary") || strings.Contains(said, "4930555001") {
			t.Errorf("%s: %s", command, said)
		}
	}
	if log := relay.errOut.String(); strings.Contains(strings.ToLower(log), "canary") {
		t.Errorf("logged: %s", log)
	}
	deedOK(t, admin, "verify")
}

// Who is known by an audience's chat or account alone has that address in their file, and what is suppressed for it.
func TestContactsExport_OfAnAudienceOfChatsAndAccounts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.URL(pgtest.App)
	for kind, channel := range map[string]string{"chat": "chat", "account": "social"} {
		id := strings.Fields(deedOK(t, app, "contacts", "add", "--identity", kind+"=@ann@localhost"))[0]
		deedOK(t, app, "suppressions", "add", "@ann@localhost", "--channel", channel, "--reason", "asked by "+kind)
		if got := deedOK(t, db.URL(pgtest.Admin), "contacts", "export", id); !strings.Contains(got, "asked by "+kind) {
			t.Errorf("%s: the file has no suppression: %s", kind, got)
		}
	}
}

// What went to, and was said of, a user of Slack without a team is in nobody's file: another team may have one of the same id.
func TestContactsExport_NotOfAnotherTeamsUser(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	const user = "U2147483697"
	ann := pgtest.One[string](t, db.Pool(pgtest.App), `select id::text from deed.upsert_contacts('{1,1}', '{slack,slack}', array[$1::text, 'T024BE7LD:' || $1::text], array['{}'::jsonb])`, user)
	for _, sql := range []string{
		`select deed.reserve('{chat,chat}', '{hook,hook}', array[$1::text, 'T024BE7LD:' || $1::text], array['{"text": "to another"}', '{"text": "to her"}']::jsonb[], array[sha256('1'), sha256('2')])`,
		`select deed.suppress('chat', array[$1::text], 'asked by another')`,
		`select deed.suppress('chat', array['T024BE7LD:' || $1::text], 'asked by her')`,
	} {
		db.Exec(t, pgtest.App, sql, user)
	}
	got := deedOK(t, db.URL(pgtest.Admin), "contacts", "export", ann)
	if strings.Contains(got, "another") || !strings.Contains(got, "asked by her") || !strings.Contains(got, "to her") {
		t.Errorf("her file: %s", got)
	}
}
