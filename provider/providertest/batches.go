package providertest

import (
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// RunBatches checks the calls for several deliveries of an adapter whose
// capabilities have a batch of 10 or more: a [delivery.Batcher]. The harness has
// RefusedRecipient.
func RunBatches(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	run := func(name string, test func(*testing.T, *fixture)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, newHarness(t))
			if f.Provider.Capabilities().Batch < 10 || f.RefusedRecipient == "" {
				t.Fatal("the harness's provider takes no batches of 10, or it has no RefusedRecipient")
			}
			test(t, f)
		})
	}
	run("EveryDeliveryOnce", batchesOnce)
	run("WithoutAReservation", batchWithoutAReservation)
	run("OneBadMember", oneBadMember)
	for _, fault := range newHarness(t).Faults {
		if expected[fault] == doubtful {
			run(string(fault), func(t *testing.T, f *fixture) { batchInDoubt(t, f, fault) })
		}
		if expected[fault] == retried {
			run(string(fault), func(t *testing.T, f *fixture) { batchRetried(t, f, fault) })
		}
	}
}

// warm has one delivery made, so that the destination is known to answer, and
// begins to count calls.
func (f *fixture) warm() {
	f.t.Helper()
	first := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Key = delivery.NewKey(f.t.Name(), "first") })
	f.start()
	if e := f.ended(first[0]); e.SentAt == nil {
		f.t.Fatalf("%s: %s", e.Status, e.LastError)
	}
	f.Fail("", 0)
}

func batchesOnce(t *testing.T, f *fixture) {
	f.warm()
	ids := f.reserve(35, nil)
	for _, id := range ids {
		e := f.ended(id)
		if e.SentAt == nil || e.Attempts != 1 || e.ProviderMessageID == "" {
			t.Errorf("%s after %d attempts as %q: %s", e.Status, e.Attempts, e.ProviderMessageID, e.LastError)
		}
		f.sentAsStored(e)
	}
	if n, calls := len(f.Accepted()), f.Calls(); n != 36 || calls > 10 {
		t.Errorf("the server accepted %d in %d calls, want 36 in a few", n, calls)
	}
	if n := pgtest.One[int](t, f.db.Pool(pgtest.Owner), `select count(distinct provider_message_id) from deed.channel_outbox`); n != 36 {
		t.Errorf("the server's names for 36 deliveries are %d", n)
	}
}

// A zero batch calls nobody.
func batchWithoutAReservation(t *testing.T, f *fixture) {
	outs := f.Provider.(delivery.Batcher).SendBatch(t.Context(), delivery.Batch{})
	if len(outs) != 0 || f.Calls() != 0 || len(f.Accepted()) != 0 {
		t.Errorf("without a reservation: %v, %d calls", outs, f.Calls())
	}
}

// What is wrong with one is its own.
func oneBadMember(t *testing.T, f *fixture) {
	f.warm()
	ids := f.reserve(7, func(i int, d *delivery.Delivery) {
		if i == 3 {
			d.Recipient = f.RefusedRecipient
		}
	})
	for i, id := range ids {
		e := f.ended(id)
		if i == 3 && (e.Status != delivery.Failed || e.LastError == "") || i != 3 && (e.SentAt == nil || e.Attempts != 1) {
			t.Errorf("%d is %s: %s", i, e.Status, e.LastError)
		}
	}
	if n := len(f.Accepted()); n != 7 {
		t.Errorf("%d accepted, want 7", n)
	}
}

// All of a batch is in doubt, repeated whole, and accepted once.
func batchInDoubt(t *testing.T, f *fixture, fault Fault) {
	f.expect(fault)
	f.warm()
	f.Fail(fault, 1)
	ids := f.reserve(7, nil)
	batches := map[string]bool{}
	for _, id := range ids {
		e := f.ended(id)
		if e.SentAt == nil || e.Attempts != 2 || e.Batch == nil {
			t.Fatalf("%s after %d attempts: %s", e.Status, e.Attempts, e.LastError)
		}
		batches[e.Batch.ID] = true
		f.sentAsStored(e)
	}
	if accepted, calls := len(f.Accepted()), f.Calls(); accepted != 8 || calls != 2 || len(batches) != 1 {
		t.Errorf("%d accepted, %d calls, %d batches; want 8 by one batch, repeated once", accepted, calls, len(batches))
	}
}

// A batch that certainly was not taken is no doubt, and nothing of it is lost.
func batchRetried(t *testing.T, f *fixture, fault Fault) {
	f.warm()
	f.Fail(fault, 1)
	started := time.Now()
	for _, id := range f.reserve(7, nil) {
		if e := f.ended(id); e.SentAt == nil {
			t.Errorf("%s: %s", e.Status, e.LastError)
		}
	}
	if n := len(f.Accepted()); n != 8 {
		t.Errorf("%d accepted, want 8", n)
	}
	if fault == ForNowAfter && time.Since(started) < 900*time.Millisecond {
		t.Errorf("Retry-After: 1 was not obeyed: all was over in %s", time.Since(started))
	}
	if n := pgtest.One[int](t, f.db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'doubt'`); n != 0 {
		t.Errorf("%d were in doubt", n)
	}
}
