package providertest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// tried has n deliveries called once, for nothing, and returns with nobody
// calling them any more.
func (f *fixture) tried(n int) []string {
	f.t.Helper()
	if f.Sandbox == "" || f.Sandbox == f.Recipient || f.Recipients == nil {
		f.t.Fatal("the harness has no Sandbox that is not its Recipient, or no Recipients")
	}
	f.Fail(ForNow, -1)
	// The others go on being tried while one is looked at.
	ids := f.reserve(n, func(_ int, d *delivery.Delivery) { d.MaxAttempts = 1000 })
	stop := f.start()
	for _, id := range ids {
		f.await("the first call", id, func(e delivery.Entry) bool { return e.FirstCalledAt != nil && e.Status == delivery.Queued })
	}
	stop()
	f.Fail("", 0)
	f.db.Exec(f.t, pgtest.Owner, `update deed.channel_outbox set attempts = 1, process_after = null where status = 'queued'`)
	return ids
}

// Whenever a delivery was reserved, and whatever was stored for it: while the
// sandbox is on, it alone is written to, and the delivery says so.
func sandbox(t *testing.T, f *fixture) {
	ids := f.tried(3)
	stored := f.entry(ids[0]).Request
	more := f.reserve(2, func(i int, d *delivery.Delivery) { d.Key = delivery.NewKey(t.Name(), "later", fmt.Sprint(i)) })
	f.serve(f.Sandbox)
	stop := f.start()
	for _, id := range append(ids, more...) {
		e := f.ended(id)
		if e.Status != delivery.Skipped || !e.Sandbox || e.SentAt != nil || e.ProviderMessageID != "" || e.SkipReason == "" {
			t.Errorf("it reads as sent: %+v", e)
		}
		if !bytes.Equal(e.Request, stored) && e.ID == ids[0] {
			t.Error("the stored request has changed")
		}
		if e.RepeatSafeUntil != nil && e.ID != ids[0] && e.ID != ids[1] && e.ID != ids[2] {
			t.Error("the sandbox began the window of the delivery's own key")
		}
	}
	stop()
	if got := f.Recipients(); len(got) != 5 {
		t.Errorf("%d were accepted, want 5", len(got))
	}
	for _, to := range f.Recipients() {
		if to != f.Sandbox {
			t.Errorf("%s was written to", to)
		}
	}
	for _, request := range f.Accepted() {
		for _, id := range append(ids, more...) {
			if bytes.Contains(bytes.ReplaceAll(request, []byte("sandbox-"+id), nil), []byte(id)) {
				t.Errorf("what went to the sandbox bears the delivery's own id: %s", request)
			}
		}
	}
}

// What the sandbox has not taken goes to its recipient when it is off, under
// its own key.
func sandboxOff(t *testing.T, f *fixture) {
	f.serve(f.Sandbox)
	if f.keyed {
		// The server knows the sandbox's keys; it would refuse another request
		// under one of them.
		taken := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Key = delivery.NewKey(t.Name(), "taken") })
		stop := f.start()
		f.ended(taken[0])
		stop()
	}
	before := len(f.Accepted())
	ids := f.tried(2)
	f.serve("")
	f.start()
	for _, id := range ids {
		e := f.ended(id)
		if e.SentAt == nil || e.Sandbox {
			t.Errorf("%s, sandbox %t: %s", e.Status, e.Sandbox, e.LastError)
		}
		f.sentAsStored(e)
	}
	got := f.Recipients()
	if len(got) != before+2 {
		t.Fatalf("%d were accepted, want %d", len(got), before+2)
	}
	for _, to := range got[before:] {
		if to != f.Recipient {
			t.Errorf("%s was written to", to)
		}
	}
}

// An older version put the sandbox into the stored request. Such a one goes to
// nobody when the sandbox is off.
func sandboxStored(t *testing.T, f *fixture) {
	draft := delivery.Draft{ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Key: "deed-key", Channel: f.Channel, Recipient: f.Sandbox, Payload: f.Payload}
	old, err := f.Provider.Render(draft)
	if err != nil {
		t.Fatal(err)
	}
	draft.Recipient = f.Recipient
	if own, err := f.Provider.Render(draft); err != nil || bytes.Equal(own, old) {
		return // its requests name nobody
	}
	ids := f.reserve(1, nil)
	f.db.Exec(t, pgtest.Owner, `update deed.channel_outbox set request = $2 where id = $1::text::uuid`, ids[0], old)
	f.start()
	if e := f.ended(ids[0]); e.Status != delivery.Failed || e.LastError == "" || f.Calls() != 0 || len(f.Accepted()) != 0 {
		t.Errorf("%s with %q after %d calls", e.Status, e.LastError, f.Calls())
	}
}
