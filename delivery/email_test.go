package delivery_test

import (
	"context"
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
