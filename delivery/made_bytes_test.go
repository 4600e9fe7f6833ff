package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a batch has no room for is not called alone, without a token: it goes back, and claims learn how
// many a batch has room for.
func TestBatch_WhatDoesNotFitPaysForItself(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	v := newVan(100)
	v.render = func(d delivery.Draft) ([]byte, error) {
		return append(bytes.Clone(d.Payload), bytes.Repeat([]byte(" "), 130_000)...), nil
	}
	made := v.reserve(t, db, several(200, nil)...)
	run(t, db, fast(v))
	for _, m := range made {
		until(t, db, m.ID, delivery.Sent)
		if n := v.times(m.ID); n != 1 {
			t.Errorf("%s was taken %d times", m.ID, n)
		}
	}
	for _, c := range v.batches() {
		if len(c.body) > 4<<20+len(c.ids) {
			t.Errorf("%d bytes in one call", len(c.body))
		}
	}
	if alone, together := len(v.all()), len(v.batches()); alone > 2 || together > 20 { // 32 fit; the last one may be alone
		t.Errorf("%d calls of one delivery and %d of several", alone, together)
	}
}

// manyBytes makes a large payload of any row.
type manyBytes struct{}

func (manyBytes) Compose(context.Context, delivery.Draft) (json.RawMessage, error) {
	return json.RawMessage(`{"text": "` + strings.Repeat("x", 1<<20) + `"}`), nil
}

// What a campaign's deliveries say counts as what is in hand, of which the rows are small: no more of it is
// made than there is room for.
func TestDispatch_WhatACampaignSaysIsInHand(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.render = func(delivery.Draft) ([]byte, error) { return []byte("small"), nil }
	hold := make(chan struct{})
	f.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Composer = manyBytes{}
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Concurrency: 8, Hanging: 200, Timeout: 10 * time.Minute}
	registered(t, db, opts)
	var list []delivery.Delivery
	for i := range 100 {
		list = append(list, email(fmt.Sprintf("a@%d.example", i)))
	}
	for _, m := range reserve(t, db, list...) {
		ofRun(t, db, m.ID, "6f1c2d3e-0000-4000-8000-000000000001")
	}
	l, _ := run(t, db, opts)
	eventually(t, "half of 64 MiB to be in hand, each with its request", func() bool { return len(f.all()) >= 16 })
	begun, calls := time.Now(), 0
	for n := len(f.all()); n > calls || time.Since(begun) < 3*time.Second; n = len(f.all()) {
		if n > calls {
			calls, begun = n, time.Now()
		}
		time.Sleep(10 * time.Millisecond)
	}
	if calls > 16+8 {
		t.Errorf("%d deliveries of 1 MiB are under way, and as many requests", calls)
	}
	close(hold)
	drained(t, l)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`); n != len(list) {
		t.Errorf("%d were sent, want %d", n, len(list))
	}
}
