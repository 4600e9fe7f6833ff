package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
		if _, err := delivery.ReadEmail(delivery.Draft{Recipient: recipient, Payload: payload}, ""); (err == nil) != ok {
			t.Errorf("%q: %v", recipient, err)
		}
	}
}

// Headers that say who sent it, through whom, and which delivery it is, are
// nobody's to set; and all together are bounded.
func TestReadEmail_ReservedHeaders(t *testing.T) {
	t.Parallel()
	for header, ok := range map[string]bool{
		"List-Unsubscribe": true, "In-Reply-To": true, "X-Campaign": true,
		"X-Deed-ID": false, "x-deed-sandbox-for": false, "Return-Path": false, "Sender": false, "Resent-From": false, "RESENT-SENDER": false,
		"Received": false, "DKIM-Signature": false, "ARC-Seal": false, "Authentication-Results": false, "Delivered-To": false, "Bcc": false,
	} {
		payload := delivery.EmailPayload{Subject: "Hello", Text: "It works.", Headers: map[string]string{header: "x@y.z"}}.JSON()
		if _, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, "shop@example.com"); (err == nil) != ok {
			t.Errorf("%s: %v", header, err)
		}
	}
	long := map[string]string{}
	for i := range 9 {
		long[fmt.Sprint("X-", i)] = strings.Repeat("x", 8000)
	}
	payload := delivery.EmailPayload{Subject: "Hello", Text: "It works.", Headers: long}.JSON()
	if _, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, "shop@example.com"); err == nil {
		t.Error("72 KB of headers are taken")
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
		_, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: payload}, c.provider, c.allowed...)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// White space around an address hides nobody from the suppressions.
func TestSuppress_WhiteSpace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n, err := delivery.Suppress(context.Background(), db.Pool(pgtest.App), nil, delivery.Email, []string{" Bob@example.org\r\n"}, "asked to", "bob")
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
