package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Destinations that hang hold up those of no other tenant, however many they are:
// nobody waits for one of these, whose time is up after ten minutes.
func TestDispatch_ATenantsHangingHostsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	for _, attackers := range []int{1, 3} {
		t.Run(fmt.Sprint(attackers), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := newFake()
			hold := make(chan struct{})
			defer close(hold)
			f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
				if strings.Contains(r.Recipient(), "hangs") {
					select {
					case <-hold:
					case <-ctx.Done():
					}
					return delivery.Unknown(errors.New("timeout")), false
				}
				return delivery.Accepted("m"), true
			}
			opts := fast(f)
			opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute, Concurrency: 16, Hanging: 32}
			ids := tenants(t, db, attackers+1)
			for _, id := range ids[:attackers] {
				for i := range 300 {
					queue(t, db, id, "fake", fmt.Sprintf("%d-%d.hangs.example", id[0], i), 1)
				}
			}
			run(t, db, opts)
			eventually(t, "many to hang", func() bool { return len(f.all()) >= 30 })
			<-time.After(2 * time.Second) // until no more of them begin
			hanging := len(f.all())
			began := time.Now()
			var good []delivery.Delivery
			for i := range 60 {
				good = append(good, email(fmt.Sprintf("a@%d.example", i)))
			}
			if _, err := delivery.ReserveFor(t.Context(), db.Pool(pgtest.Worker), ids[attackers], good...); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the other tenant's to be sent", func() bool {
				return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == len(good)
			})
			t.Logf("%d hung; the others' were sent within %s", hanging, time.Since(began))
			if n := len(f.all()) - len(good); n > 16+2*32 {
				t.Errorf("%d calls hang at once", n)
			}
		})
	}
}

// What a tenant's deliveries hold is measured as it comes to the process, where
// a control character takes six bytes, and leaves room for other tenants'.
func TestDispatch_ATenantsBytesHoldUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.render = func(delivery.Draft) ([]byte, error) { return []byte("small"), nil }
	hold := make(chan struct{})
	defer close(hold)
	f.send = func(ctx context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if strings.Contains(r.Recipient(), "hangs") {
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return delivery.Unknown(errors.New("timeout")), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Timeout: 10 * time.Minute}
	ids := tenants(t, db, 2)
	db.Providers(t, "fake", "fake")
	db.Exec(t, pgtest.Worker, `
		select from deed.reserve(array_fill('email'::text, array[20]), array_fill('fake'::text, array[20]),
		  array(select n || '@' || n || '.hangs.example' from generate_series(1, 20) n),
		  array_fill(jsonb_build_object('x', repeat(chr(1), 1000000)), array[20]),
		  array(select sha256(n::text::bytea) from generate_series(1, 20) n), p_tenant => $1::text::uuid)`, ids[0].String())
	run(t, db, opts)
	eventually(t, "some to hang", func() bool { return len(f.all()) >= 5 })
	if _, err := delivery.ReserveFor(t.Context(), db.Pool(pgtest.Worker), ids[1], email("a@example.com")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other tenant's to be sent", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == 1
	})
	in := pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(octet_length(payload::text)), 0) from deed.channel_outbox where lease_until is not null`)
	if in > 32<<20 {
		t.Errorf("%d MB of one tenant's are in hand, want half of 64 MiB", in/1e6)
	}
}

// Deliveries that are skipped uncalled at the front of a destination of which nothing is known, as after a relay's start, hold up what is behind them
// by no poll each.
func TestLanes_WhatIsSkippedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := make([]delivery.Delivery, 41)
	gone := make([]string, 40)
	for n := range list {
		list[n] = email(fmt.Sprint("n", n, "@one.example"))
		if n < len(gone) {
			gone[n] = fmt.Sprint("n", n, "@one.example")
		}
	}
	made := reserve(t, db, list...)
	db.Exec(t, pgtest.App, `select deed.suppress('email', $1::text[], 'bounced', 'ann')`, gone)
	opts := fast(newFake())
	opts.PollInterval = time.Minute
	run(t, db, opts)
	until(t, db, made[40].ID, delivery.Sent)
}
