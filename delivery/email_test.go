package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A recipient is an address as suppressions and limits know it, and no more.
func TestReadEmail_Recipient(t *testing.T) {
	t.Parallel()
	payload := delivery.EmailPayload{From: "Shop <shop@example.com>", Subject: "Hello", Text: "It works."}.JSON()
	for recipient, ok := range map[string]bool{
		"bob@example.org": true, "BOB@Example.org": true, "bob+x@example.org": true,
		"Bob <bob@example.org>": false, "<bob@example.org>": false, `"bob"@example.org`: false, "bob@example.org (Bob)": false,
		" bob@example.org": false, "bob@example.org\t": false, "bob": false, "": false, "a@example.org, b@example.org": false,
	} {
		if _, err := delivery.ReadEmail(delivery.Draft{Recipient: recipient, Payload: payload}, delivery.EmailRules{}); (err == nil) != ok {
			t.Errorf("%q: %v", recipient, err)
		}
	}
}

var (
	shop      = delivery.EmailRules{From: "shop@example.com"}
	anyHeader = delivery.EmailRules{From: "shop@example.com", HeadersAllowed: []string{"*"}}
)

// Headers that say who sent it, through whom, and which delivery it is, are
// nobody's to set; and all together are bounded.
func TestReadEmail_ReservedHeaders(t *testing.T) {
	t.Parallel()
	for header, ok := range map[string]bool{
		"List-Unsubscribe": true, "In-Reply-To": true, "references": true,
		"X-Deed-ID": false, "x-deed-sandbox-for": false, "Return-Path": false, "Sender": false, "Resent-From": false, "RESENT-SENDER": false,
		"Received": false, "Apparently-To": false, "DKIM-Signature": false, "ARC-Seal": false, "Authentication-Results": false, "Delivered-To": false, "Bcc": false,
	} {
		payload := delivery.EmailPayload{Subject: "Hello", Text: "It works.", Headers: map[string]string{header: "x@y.z"}}.JSON()
		for _, rules := range []delivery.EmailRules{shop, anyHeader} {
			if _, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, rules); (err == nil) != ok {
				t.Errorf("%s: %v", header, err)
			}
		}
	}
	long := map[string]string{}
	for i := range 9 {
		long[fmt.Sprint("X-", i)] = strings.Repeat("x", 8000)
	}
	payload := delivery.EmailPayload{Subject: "Hello", Text: "It works.", Headers: long}.JSON()
	if _, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, anyHeader); err == nil {
		t.Error("72 KB of headers are taken")
	}
}

// Headers that a service takes commands from are not a payload's to set, whatever
// the service: nobody knows them all, so those are named that are none.
func TestReadEmail_HeadersThatCommand(t *testing.T) {
	t.Parallel()
	check := func(header string, rules delivery.EmailRules) error {
		payload := delivery.EmailPayload{Subject: "Hello", Text: "It works.", Headers: map[string]string{header: "x"}}.JSON()
		_, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, rules)
		return err
	}
	for _, header := range []string{
		"X-SMTPAPI", "X-MC-BccAddress", "X-Mailgun-Recipient-Variables", "X-SES-SOURCE-ARN", "X-PM-Message-Stream", "X-MSYS-API", "x-mj-customid",
		"X-MS-Exchange-Organization-SCL", "X-Virtual-MTA", "Return-Receipt-To", "Disposition-Notification-To", "X-Campaign", "Anything",
	} {
		if err := check(header, shop); err == nil || !strings.Contains(err.Error(), "headers_allowed") {
			t.Errorf("%s: %v", header, err)
		}
		if err := check(header, anyHeader); err != nil {
			t.Errorf("%s: %v", header, err)
		}
	}
	rules := shop
	rules.HeadersAllowed = []string{"X-Shop-*", "x-campaign"}
	for header, ok := range map[string]bool{
		"X-Campaign": true, "x-shop-order": true, "List-Unsubscribe": true, "X-Campaign-ID": false, "X-Shop": false, "X-SMTPAPI": false,
	} {
		if err := check(header, rules); (err == nil) != ok {
			t.Errorf("%s: %v", header, err)
		}
	}
	for entry, ok := range map[string]bool{
		"*": true, "X-Shop-*": true, "X-Campaign": true, "Bcc": false, "resent-*": false, "X-Deed-ID": false, "X-*-y": false, "": false, "a b": false,
	} {
		if err := (delivery.EmailRules{HeadersAllowed: []string{entry}}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", entry, err)
		}
	}
	for entry, ok := range map[string]bool{"*": true, "@example.com": true, "ann@example.com": true, "@*.example.com": false, "*@example.com": false} {
		if err := (delivery.EmailRules{FromAllowed: []string{entry}}).Check(); (err == nil) != ok {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// Who shares a provider sends in the name of its domain, or of what it allows.
func TestReadEmail_FromIsAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		provider, payload string
		allowed           []string
		ok                bool
	}{
		{"Shop <shop@example.com>", "", nil, true},
		{"Shop <shop@example.com>", "News <news@EXAMPLE.com>", nil, true},
		{"Shop <shop@example.com>", "ceo@bank.example", nil, false},
		{"Shop <shop@example.com>", "ceo@sub.example.com", nil, false},
		{"Shop <shop@example.com>", "ceo@evil-example.com", nil, false},
		{"shop@example.com", "a@other.example", []string{"@other.example", "ann@example.org"}, true},
		{"shop@example.com", "Ann <Ann@example.org>", []string{"@other.example", "ann@example.org"}, true},
		{"shop@example.com", "", []string{"@other.example"}, true}, // the provider's own
		{"shop@example.com", "bob@example.org", []string{"@other.example", "ann@example.org"}, false},
		{"shop@example.com", "anybody@anywhere.example", []string{"*"}, true},
		{"", "anybody@anywhere.example", nil, true},
		{"", "anybody@anywhere.example", []string{"@example.com"}, false},
	} {
		payload := delivery.EmailPayload{From: c.payload, Subject: "Hello", Text: "It works."}.JSON()
		_, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, delivery.EmailRules{From: c.provider, FromAllowed: c.allowed})
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// White space around an address hides nobody from the suppressions.
func TestSuppress_WhiteSpace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n, err := delivery.Suppress(context.Background(), db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{" Bob@example.org\r\n"}, audit.Act{By: "bob", Reason: "asked to"})
	if err != nil || n != 1 {
		t.Fatal(n, err)
	}
	made := reserve(t, db, email("bob@example.org"), email("\tBOB@example.org "), email(" \t"), email(" eve@example.org"))
	for i, want := range []delivery.Status{delivery.Skipped, delivery.Skipped, delivery.Skipped, delivery.Queued} {
		if made[i].Status != want {
			t.Errorf("delivery %d is %s", i+1, made[i].Status)
		}
	}
	if e := entry(t, db, made[3].ID); e.Recipient != "eve@example.org" {
		t.Errorf("the recipient is %q", e.Recipient)
	}
	if e := entry(t, db, made[2].ID); e.SkipReason != "no address" {
		t.Errorf("skipped for %q", e.SkipReason)
	}
}

// What JSON has no room for is refused, and not altered.
func TestEmailPayload_NotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	good := delivery.EmailPayload{Subject: "Größe", Text: "It works."}
	if err := good.Check(); err != nil || good.JSON() == nil {
		t.Fatalf("%v: %s", err, good.JSON())
	}
	app := pgtest.New(t).Pool(pgtest.App)
	for what, e := range map[string]delivery.EmailPayload{
		"subject":      {Subject: "Gr\xf6\xdfe", Text: "x"},
		"text":         {Subject: "x", Text: "Gr\xf6\xdfe"},
		"html":         {Subject: "x", HTML: "Gr\xf6\xdfe"},
		"from":         {Subject: "x", Text: "x", From: "Gr\xf6\xdfe <a@example.com>"},
		"reply_to":     {Subject: "x", Text: "x", ReplyTo: "\xff@example.com"},
		`header "X-A"`: {Subject: "x", Text: "x", Headers: map[string]string{"X-A": "\xff"}},
	} {
		if err := e.Check(); err == nil || err.Error() != what+" is not UTF-8" {
			t.Errorf("%s: %v", what, err)
		}
		d := email("bob@example.com")
		d.Payload = e.JSON()
		if _, err := delivery.Reserve(context.Background(), app, d); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "delivery 1 has no payload that is UTF-8") {
			t.Errorf("%s: %v", what, err)
		}
	}
	d := email("bob@example.com")
	d.Payload = json.RawMessage("{\"text\": \"Gr\xf6\xdfe\"}")
	if _, err := delivery.Reserve(context.Background(), app, d); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("a payload of one's own: %v", err)
	}
}

// Fields are known by their exact names, wherever they stand and whatever texts are about them; what encoding/json takes for one of
// them is none, since the database would not see it.
func TestReadEmail_KnowsExactNames(t *testing.T) {
	t.Parallel()
	const text = `"text": "{\"CC\": [1, \"A\"],\\", "headers": {"X-Shop-A": "{,\"B\""}`
	for payload, good := range map[string]bool{
		`{"subject": "a", ` + text + `}`:                                    true,
		`{` + text + `, "cc": ["b@example.com"], "subject": "a"} ` + "\n":   true,
		`{` + text + `, "\u0073ubject": "a"}`:                               true, // it is what it says
		`{` + text + `, "subject": "a", "CC": ["b@example.com"]}`:           false,
		`{` + text + `, "subject": "a", "\u0043C": ["b@example.com"]}`:      false,
		`{` + text + `, "subject": "a", "attachment\u017f": []}`:            false,
		`{` + text + `, "\u017fubject": "a"}`:                               false,
		`{"Subject": "a", ` + text + `}`:                                    false,
		`{"subject": "a", ` + text + `} {"subject": "b"}`:                   false,
		`{"subject": "a", ` + text + `} x`:                                  false,
		`{"subject": "a", "attachments": [{"name": "A,B"}], "Text": "{\\"}`: false,
	} {
		e, err := delivery.ReadEmail(delivery.Draft{Recipient: "a@example.com", Payload: []byte(payload)}, delivery.EmailRules{From: "shop@example.com", HeadersAllowed: []string{"X-Shop-*"}})
		if good && (err != nil || e.Subject != "a") || !good && err == nil {
			t.Errorf("%s: %+v, %v", payload, e, err)
		}
	}
}
