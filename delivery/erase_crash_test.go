package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// Beside workers that are killed, and one that freezes with deliveries in its hand, people
// revoke and are erased: no attempt begins for somebody whose word had been committed before it,
// and of the erased nothing is left, whoever had their deliveries in hand.
func TestContract_D12_ErasedAndRevokedBesideCrashes(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/deliverer")
	for kind, points := range map[string][]string{"smtp": {"writing:3", "frozen"}, "resend": {"written:3", "settling:2", "frozen"}} {
		for _, point := range points {
			t.Run(kind+" "+point, func(t *testing.T) {
				t.Parallel()
				besideCrash(t, program, kind, point)
			})
		}
	}
}

// parted is somebody who revokes or is erased, and when that had been committed.
type parted struct {
	contact, news, named string
	erased               bool
	at                   time.Time
}

func besideCrash(t *testing.T, program harness.Program, kind, point string) {
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	f := newFar(t, kind, db)
	env := []string{
		"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_PROVIDER=" + kind, "VICTIM_ADDRESS=" + f.address,
		"VICTIM_GUARANTEE=" + string(delivery.AtLeastOnce), "VICTIM_DELIVERIES=0",
	}
	other := program.Start(t, "", env...)
	eventually(t, "the provider", func() bool {
		return pgtest.One[bool](t, owner, `select exists (select from deed.providers where name = 'p')`)
	})
	const persons = 18
	var list []delivery.Delivery
	all := make([]parted, persons)
	for i := range all {
		name := fmt.Sprintf("stays%d", i)
		if all[i].erased = i%3 == 0; all[i].erased {
			name = fmt.Sprintf("zqcanary%d", i)
		}
		all[i].contact = person(t, db, mail(name+"@example.com"))
		for k, d := range []delivery.Delivery{email(name+"@example.com", "news"), email(name+"@elsewhere.example", "named")} {
			d.Provider, d.Guarantee, d.Payload = "p", delivery.AtLeastOnce, delivery.EmailPayload{From: "a@example.com", Subject: name, Text: fmt.Sprintf("delivery-%d-", 2*i+k)}.JSON()
			if d.Purpose = "news"; k == 1 {
				d.Purpose, d.Contact = "", all[i].contact
			}
			list = append(list, d)
		}
	}
	crashes := point
	if point == "frozen" {
		crashes = ""
	}
	victim := program.Start(t, crashes, env...)
	made, err := delivery.Reserve(context.Background(), db.Pool(pgtest.App), list...)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first call, or a crash", func() bool {
		select {
		case <-f.calls:
			return true
		default:
			return !victim.Running()
		}
	})
	if point == "frozen" {
		victim.Freeze()
	}
	for i := range slices.Backward(all) { // against the order in which they are called
		p := &all[i]
		p.news, p.named = made[2*i].ID, made[2*i+1].ID
		switch {
		case p.erased:
			erase(t, db, p.contact, contact.EraseOptions{})
		case i%3 == 1:
			consented(t, db, p.contact, delivery.Email, "news", contact.Revoked)
		default:
			continue
		}
		p.at = pgtest.One[time.Time](t, owner, `select clock_timestamp()`)
	}
	if point == "frozen" {
		victim.Thaw()
	} else {
		victim.Kill() // it has died at its point, unless the other one had everything
	}
	erased(t, db, 100)
	eventually(t, "everything to end", func() bool {
		return pgtest.One[bool](t, owner, `select bool_and(finished_at is not null) from deed.channel_outbox`)
	})
	other.Stop()
	victim.Stop()
	for i, p := range all {
		if p.at.IsZero() {
			continue
		}
		of := []string{p.news}
		if p.erased {
			of = append(of, p.named)
		}
		// What is claimed to be repeated has a time of a call, and is not called; nothing is
		// known by a key at a mail server.
		for _, id := range rowsOf(t, owner, `select id::text from deed.channel_outbox where id = any ($1::text[]::uuid[]) and (first_called_at > $2 or called_at > $2 and $3)`, of, p.at, kind == "smtp") {
			t.Errorf("%d: an attempt of %s began after the word of %s had been committed: %+v", i, id, p.contact, entry(t, db, id))
		}
	}
	if found := traces(t, db, "zqcanary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
}
