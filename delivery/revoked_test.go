package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

func consented(t testing.TB, db *pgtest.DB, of string, channel delivery.Channel, purpose string, state contact.State) {
	t.Helper()
	word := contact.Word{Contact: of, Channel: string(channel), Purpose: purpose, State: state, Source: "form"}
	if _, err := contact.SetConsents(context.Background(), db.Pool(pgtest.App), "test", word); err != nil {
		t.Fatal(err)
	}
}

// What a contact has revoked it is not written for, by an address either that only the
// delivery names: at the reservation, at the provider's door, and where what is in doubt
// would be repeated. What was merged speaks with one voice.
func TestContract_D11_ARevocationIsTheContacts(t *testing.T) {
	t.Parallel()
	for _, merged := range []bool{false, true} {
		for _, key := range []bool{false, true} {
			t.Run(fmt.Sprintf("merged %t, key %t", merged, key), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				ann := person(t, db, mail("ann@example.com"))
				named := ann
				if merged {
					named = person(t, db, contact.Identity{Type: "external_id", Value: "7"})
					if _, err := contact.Merge(t.Context(), db.Pool(pgtest.App), nil, named, ann, audit.Act{Reason: "one person"}); err != nil {
						t.Fatal(err)
					}
				}
				to := func(when, purpose string) delivery.Delivery {
					d := email(when + purpose + "@elsewhere.example")
					d.Purpose, d.Contact, d.Guarantee = purpose, named, delivery.AtLeastOnce
					return d
				}
				f := newFake()
				if key {
					f.withKey(time.Hour)
				}
				f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
					if strings.HasPrefix(r.Recipient(), "meanwhilenews@") && n == 1 {
						consented(t, db, ann, delivery.Email, "news", contact.Revoked)
						return delivery.Unknown(errCut), false
					}
					return delivery.Accepted("m"), true
				}
				_, stop := run(t, db, fast(f))
				until(t, db, reserve(t, db, to("first", "news"))[0].ID, delivery.Sent)
				id := reserve(t, db, to("meanwhile", "news"))[0].ID
				if e := until(t, db, id, delivery.Skipped); f.called(id) != 1 || !strings.Contains(e.SkipReason, "consent revoked") {
					t.Errorf("repeated after a revocation: called %d times, %+v", f.called(id), e)
				}
				stop()
				if r := reserve(t, db, to("early", "news"))[0]; r.Status != delivery.Skipped {
					t.Errorf("reserved as %s after a revocation", r.Status)
				}
				consented(t, db, ann, delivery.Email, "news", contact.Granted)
				late := reserve(t, db, to("late", "news"), to("late", "offers"), to("late", ""))
				consented(t, db, ann, delivery.Email, "news", contact.Revoked)
				stranger := to("stranger", "news")
				stranger.Contact = ""
				late = append(late, reserve(t, db, stranger)...)
				run(t, db, fast(f))
				for i, want := range []delivery.Status{delivery.Skipped, delivery.Sent, delivery.Sent, delivery.Sent} {
					if e := until(t, db, late[i].ID, want); (want == delivery.Skipped) != (f.called(e.ID) == 0) {
						t.Errorf("%d: %s, called %d times", i, e.Status, f.called(e.ID))
					}
				}
			})
		}
	}
}

// By chat somebody is written to as their messenger knows them, however it is written: what
// they revoke, and their erasure, finds all of it, and nothing of a stranger who has the
// same id in another team.
func TestContract_D12_WhatWasSentByChatIsFound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := person(t, db, contact.Identity{Type: "whatsapp", Value: "+49 170 1234567"}, contact.Identity{Type: "slack", Value: "T024BE91L:U024BE7LH"}, contact.Identity{Type: "telegram", Value: "5551234"})
	person(t, db, contact.Identity{Type: "slack", Value: "T0STRANGER:U024BE7LH"})
	person(t, db, contact.Identity{Type: "slack", Value: "U024BE7LH"})
	theirs := []string{"491701234567", "+491701234567", "+49 170 123-4567", "T024BE91L:U024BE7LH", "5551234", "5551234/7"}
	others := []string{"T0STRANGER:U024BE7LH", "C024BE91L", "U024BE7LH", "+491701234568", "-5551234/7"}
	chat := func(key, purpose string) []delivery.Reserved {
		t.Helper()
		var list []delivery.Delivery
		for _, to := range append(append([]string{}, theirs...), others...) {
			d := email(to, key)
			d.Channel, d.Purpose = delivery.Chat, purpose
			list = append(list, d)
		}
		return reserve(t, db, list...)
	}
	consented(t, db, ann, delivery.Chat, "news", contact.Revoked)
	for i, r := range chat("revoked", "news") {
		if (r.Status == delivery.Skipped) != (i < len(theirs)) {
			t.Errorf("revoked: %d is %s", i, r.Status)
		}
	}
	chat("before", "")
	erase(t, db, ann, contact.EraseOptions{})
	erased(t, db, 3)
	left := rowsOf(t, db.Pool(pgtest.Owner), `select recipient from deed.channel_outbox where recipient is not null order by 1`)
	if want := `[+491701234568 +491701234568 -5551234/7 -5551234/7 C024BE91L C024BE91L T0STRANGER:U024BE7LH T0STRANGER:U024BE7LH U024BE7LH U024BE7LH]`; fmt.Sprint(left) != want {
		t.Errorf("left: %v, want %s", left, want)
	}
}
