package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A run's report goes to an address as a delivery of the ledger's: the same request again sends it once.
func TestCampaignReport_SentOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	far, address := mailCatcher(t)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := "channels: {outbox: {enabled: true}}\nproviders:\n  mail: {type: smtp, address: \"" + address + "\", security: none, from: shop@example.com}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	deedOK(t, db.URL(pgtest.Worker), "providers", "register", "--config", file)
	db.Providers(t, "fake", "texts")
	for _, sql := range []string{
		`select deed.put_campaign('spring', '{"text": "x"}')`, `select deed.put_audience('people', 'sms')`,
		`select deed.add_audience_members(a.id, 0, '{+493012345}') from deed.audiences a`, `select deed.finish_audience(a.id, 1) from deed.audiences a`,
		`select deed.deploy_campaign(c.id, a.id, '1', 'sms', p_options => '{"provider": "texts", "transactional": true}') from deed.campaigns c, deed.audiences a`,
	} {
		db.Exec(t, pgtest.App, sql)
	}
	run := pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.campaign_runs`)
	report := func(more ...string) string {
		return deedOK(t, db.URL(pgtest.Admin), append([]string{"campaign", "report", run, "--send-to", "boss@example.com", "--provider", "mail", "--config", file}, more...)...)
	}
	first, again := report(), report()
	if strings.Fields(first)[0] != strings.Fields(again)[0] || !strings.HasSuffix(first, " queued\n") {
		t.Errorf("%q, and then %q", first, again)
	}
	deedOK(t, db.URL(pgtest.Worker), "relay", "--config", file, "--until-empty", "--listen", "")
	if again := report(); strings.Fields(again)[0] != strings.Fields(first)[0] || !strings.HasSuffix(again, " sent\n") {
		t.Errorf("once it was sent: %q", again)
	}
	other := report("--request-id", "2")
	deedOK(t, db.URL(pgtest.Worker), "relay", "--config", file, "--until-empty", "--listen", "")
	list := far.Mailbox.List()
	if len(list) != 2 || strings.Fields(other)[0] == strings.Fields(first)[0] {
		t.Fatalf("%d mails; the second one is %q", len(list), other)
	}
	for _, m := range list {
		files := ""
		for _, a := range m.Attachments {
			files += a.Name + " " + a.Type + ", "
		}
		if m.Subject != "spring: queued, 0 of 1 sent" || m.To[0] != "boss@example.com" || m.From != "shop@example.com" || !strings.Contains(files, "report.html text/html") || !strings.Contains(files, "members.png image/png") {
			t.Errorf("%s from %s to %s: %s", m.Subject, m.From, m.To, files)
		}
	}
	p := start(t, db.URL(pgtest.Admin), "campaign", "report", run, "--send-to", "boss@example.com")
	if code := p.wait(); code != exitUsage || !strings.Contains(p.errOut.String(), "say which provider sends e-mails (--provider)") {
		t.Errorf("%d %s", code, &p.errOut)
	}
}
