package delivery_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who has locked a delivery, or anything that an event of it would write, holds up the events of no other one:
// those are recorded, the service is told to say all again, and once nothing is
// locked all is as if it had been said then.
func TestContract_D13_WhatIsLockedHoldsUpNoOtherEvents(t *testing.T) {
	t.Parallel()
	for what, lock := range map[string]string{
		"the delivery":      `select from deed.channel_outbox where recipient = 'bob@example.com' for update`,
		"what it would say": `select deed.suppress('email', array['bob@example.com'], 'asked for', 'somebody', '00000000-0000-0000-0000-000000000000')`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			l, stop := run(t, db, said(newFake()))
			ids := sent(t, db, email("ann@example.com"), email("bob@example.com"), email("cat@example.com"))
			stop()
			h := l.EventsHandler(map[string]delivery.EventReader{"fake": &service{}})
			ask := func() int {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/events/fake", strings.NewReader("bounced 1 "+ids[0]+"\nbounced 2 "+ids[1]+"\nbounced 3 "+ids[2]+"\n"))
				r.Header.Set("Signature", "ours")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			bounced := func() (n int) {
				return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.delivery_feedback where bounced_at is not null`)
			}
			end := leftOpen(t, db, pgtest.Owner, lock)
			if code, n := ask(), bounced(); code != http.StatusServiceUnavailable || n != 2 {
				t.Errorf("beside the lock: status %d, and %d of the others' events recorded", code, n)
			}
			if done, err := l.Record(t.Context(), "fake", delivery.StatusEvent{Said: delivery.SaidBounced, ID: "2", Delivery: ids[1]}); !errors.Is(err, delivery.ErrAgain) || done.Busy != 1 || done.Matched != 0 {
				t.Errorf("its own: %+v, %v", done, err)
			}
			end()
			if code, n := ask(), bounced(); code != http.StatusOK || n != 3 {
				t.Errorf("after the lock: status %d, and %d recorded", code, n)
			}
			if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions`); n != 3 {
				t.Errorf("%d suppressions", n)
			}
		})
	}
}

// Events that wait for what somebody has locked take few of the ledger's connections, however many requests bring them
// and bring them again: deliveries go on, and so do the events of another provider.
func TestContract_D13_EventsThatWaitHoldUpNoDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	opts := said(f)
	opts.Providers["other"] = delivery.ProviderOptions{Provider: f}
	pool := db.NewPool(pgtest.Worker, 8)
	l, _ := runOn(t, pool, opts)
	ids := sent(t, db, email("ann@example.com"), email("cat@example.com"))
	byOther := email("bob@example.com")
	byOther.Provider = "other"
	others := sent(t, db, byOther)[0]
	h := l.EventsHandler(map[string]delivery.EventReader{"fake": &service{}, "other": &service{}})
	say := func(ctx context.Context, provider, body string) int {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/events/"+provider, strings.NewReader(body))
		r.Header.Set("Signature", "ours")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	leftOpen(t, db, pgtest.Owner, `select deed.suppress('email', array['ann@example.com'], 'asked for', 'somebody', '00000000-0000-0000-0000-000000000000')`)
	ctx, enough := context.WithCancel(t.Context())
	var services sync.WaitGroup
	defer services.Wait()
	defer enough()
	for range 60 { // fewer than may be read at once
		services.Go(func() {
			for ctx.Err() == nil {
				say(ctx, "fake", "bounced 1 "+ids[0]+"\n")
			}
		})
	}
	most := 0
	waiting := func() int {
		n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted`)
		most = max(most, n)
		return n
	}
	eventually(t, "events to wait", func() bool { return waiting() >= 2 })
	begun := time.Now()
	reserveFor(t, db, tenants(t, db, 1)[0], "https://b.example.com/", "", 20)
	eventually(t, "another tenant's deliveries to be sent", func() bool { waiting(); return sentOf(t, db, "b.example.com") == 20 })
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("another tenant's deliveries took %s", took)
	}
	if code := say(t.Context(), "other", "delivered 1 "+others+"\n"); code != http.StatusOK {
		t.Errorf("another provider's event: %d", code)
	}
	if code := say(t.Context(), "fake", "delivered 2 "+ids[1]+"\n"); code != http.StatusOK {
		t.Errorf("the event of another delivery, behind 60 that wait: %d", code)
	}
	if waiting(); most > 2 {
		t.Errorf("%d connections waited for the lock", most)
	}
}
