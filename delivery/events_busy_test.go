package delivery_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
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
