package main

import (
	"encoding/json"
	netsmtp "net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
)

// bounce is what a server writes to an address of what it could not deliver.
func bounce(to, code, action string) string {
	return strings.ReplaceAll(`Return-Path: <>
From: MAILER-DAEMON@mx.example.org
To: `+to+`
Subject: Undelivered Mail Returned to Sender
Date: Sun, 22 Feb 2026 23:41:12 +0000
Message-ID: <`+code+`@mx.example.org>
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary=b

--b

It did not work.

--b
Content-Type: message/delivery-status

Reporting-MTA: dns; mx.example.org

Final-Recipient: rfc822; zoe@example.org
Action: `+action+`
Status: `+code+`
Diagnostic-Code: smtp; 550 `+code+` <zoe@example.org> no such user

--b--
`, "\n", "\r\n")
}

// Mail goes out with a return address of its own; what comes back to that, over the
// relay's source of mail or by deed events dsn, is recorded with the delivery (D13).
func TestContract_D13_BouncesComeBackByMail(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	far, farAt := mailCatcher(t)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := `
channels: {outbox: {enabled: true}}
providers:
  mail: {type: smtp, address: "` + farAt + `", security: none, from: shop@example.com, return_path: "bounce+{id}@example.com", event_secret: "env:HOOK_SECRET"}
sources:
  mail: {type: smtp, listen: "127.0.0.1:0", addresses: ["help@example.com"], trusted: [127.0.0.1], names: [mx.example.com], executor: {topic: mail.in}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening for mail" source=mail address=(\S+)`)
	health := p.prints(&p.errOut, `listening address=(\S+)`)
	eventually(t, "/readyz", func() bool { return get("http://"+health+"/readyz") == 200 })
	eventually(t, "the provider to be registered", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.providers where name = 'mail')`)
	})
	send := func(to, key, more string) (id, from string) {
		t.Helper()
		made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
			Channel: delivery.Email, Provider: "mail", Recipient: to, Key: delivery.NewKey(key), Payload: []byte(`{"subject": "` + key + `", "text": "hello"` + more + `}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the e-mail", func() bool {
			for _, m := range far.Mailbox.List() {
				if m.Subject == key {
					from = m.From
				}
			}
			return from != ""
		})
		return made[0].ID, from
	}
	said := func(id string) delivery.Feedback {
		t.Helper()
		var e struct{ Feedback delivery.Feedback }
		if err := json.Unmarshal([]byte(deedOK(t, db.URL(pgtest.Admin), "deliveries", "show", id, "--json")), &e); err != nil {
			t.Fatal(err)
		}
		return e.Feedback
	}
	id, from := send("zoe@example.org", "first", "")
	if !strings.HasPrefix(from, "bounce+") || len(from) > 80 {
		t.Fatalf("it was sent from %q", from)
	}
	forged := strings.Replace(from, from[20:24], "aaaa", 1)
	for _, to := range []string{forged, from, from} {
		if err := netsmtp.SendMail(address, nil, "", []string{to}, []byte(bounce(to, "4.4.7", "failed"))); err != nil {
			t.Fatal(err)
		}
		if f := said(id); (f.BouncedAt == nil) != (to == forged) || to != forged && f.Code != "4.4.7" {
			t.Errorf("%s: %+v", to, f)
		}
	}
	if err := netsmtp.SendMail(address, nil, "", []string{"other@example.com"}, []byte(bounce("other@example.com", "5.1.1", "failed"))); err == nil {
		t.Error("mail for another address was taken")
	}

	second, from := send("zoe@example.org", "second", "")
	copied, copiedFrom := send("zoe@example.org", "copied", `, "cc": ["boss@example.org"]`)
	dsn := func(input string, args ...string) (out string, code int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(command(t), "deed"), append([]string{"events", "dsn", "--config", file}, args...)...)
		cmd.Env = append(os.Environ(), "DEED_DATABASE_URL="+db.URL(pgtest.Worker), "HOOK_SECRET=whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
		cmd.Stdin = strings.NewReader(input)
		text, _ := cmd.CombinedOutput()
		return string(text), cmd.ProcessState.ExitCode()
	}
	away := "From: zoe@example.org\r\nTo: " + from + "\r\nAuto-Submitted: auto-replied\r\n\r\nI am away.\r\n"
	forged = strings.Replace(from, from[20:24], "aaaa", 1)
	for what, c := range map[string]struct {
		input string
		args  []string
		out   string
		code  int
	}{
		"nothing":         {"", nil, "no mail", 2},
		"no mail":         {"nonsense", nil, "no e-mail", 2},
		"no address":      {bounce("ann@example.com", "5.1.1", "failed"), nil, "--to", 2},
		"another address": {bounce(from, "5.1.1", "failed"), []string{"--to", "ann@example.com"}, "--to", 2},
		"forged":          {bounce(forged, "5.1.1", "failed"), nil, "not made here", 1},
		"an answer":       {away, []string{"--to", from}, "says nothing", 0},
	} {
		if out, code := dsn(c.input, c.args...); code != c.code || !strings.Contains(out, c.out) || strings.Contains(out, "zoe") {
			t.Errorf("%s: %d, %s", what, code, out)
		}
	}
	if f := said(second); f != (delivery.Feedback{}) {
		t.Errorf("%+v", f)
	}
	for range 2 {
		if out, code := dsn(bounce(from, "5.1.1", "failed"), "--json"); code != 0 || !strings.Contains(out, `"matched":1`) {
			t.Errorf("%d, %s", code, out)
		}
	}
	if f := said(second); f.BouncedAt == nil || f.Code != "5.1.1" {
		t.Errorf("%+v", f)
	}
	if list := deedOK(t, db.URL(pgtest.Admin), "suppressions", "list", "--wide"); strings.Count(list, "zoe@example.org") != 1 || !strings.Contains(list, "bounced, says mail: event <5.1.1@mx.example.org>") {
		t.Errorf("suppressed:\n%s", list)
	}
	// Of whom a report is said counts if it is one of the delivery's; and where others got a
	// copy, who may have written it, it stops no mail.
	for _, to := range []string{"boss@example.org", "eve@other.example"} {
		if out, code := dsn(strings.ReplaceAll(bounce(copiedFrom, "5.1.1", "failed"), "zoe@example.org", to)); code != 0 {
			t.Errorf("%d, %s", code, out)
		}
		list := deedOK(t, db.URL(pgtest.Admin), "suppressions", "list", "--wide")
		soft := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(address, ' ') from deed.soft_bounces where delivery_id = $1::text::uuid`, copied)
		if f := said(copied); (f.BouncedAt == nil) != (to == "boss@example.org") || soft != "boss@example.org" || strings.Contains(list, "boss@") || strings.Contains(list, "eve@") {
			t.Errorf("%s: %+v\n%s", to, f, list)
		}
	}
	// A report of a delivery in doubt proves that it was accepted.
	far.Faults.First(catcher.ResetAccepted, -1)
	for _, c := range []struct{ to, code, action string }{{"ann@example.org", "5.1.1", "failed"}, {"bob@example.org", "2.0.0", "delivered"}} {
		id, from := send(c.to, "doubt of "+c.action, "")
		status := func() string {
			return pgtest.One[string](t, db.Pool(pgtest.Owner), `select case when doubt_since is not null then 'in doubt' else status end from deed.channel_outbox where id = $1::text::uuid`, id)
		}
		eventually(t, "the doubt", func() bool { return status() == "in doubt" })
		report := strings.ReplaceAll(bounce(from, c.code, c.action), "zoe@example.org", c.to)
		for range 2 {
			if out, code := dsn(report); code != 0 {
				t.Errorf("%s: %d, %s", c.action, code, out)
			}
			if got := status(); got != "sent" {
				t.Errorf("%s: it is %s", c.action, got)
			}
		}
		if f := said(id); (f.BouncedAt != nil) != (c.action == "failed") || (f.DeliveredAt != nil) != (c.action == "delivered") {
			t.Errorf("%s: %+v", c.action, f)
		}
	}
	metrics := body(t, "http://"+health+"/metrics")
	for _, want := range []string{`deed_process_events_total{outcome="matched",provider="mail"} 2`, `deed_process_events_total{outcome="unverified",provider="mail"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if log := p.errOut.String(); strings.Contains(log, "zoe") || strings.Contains(log, from) {
		t.Errorf("the log names an address:\n%s", log)
	}
}
