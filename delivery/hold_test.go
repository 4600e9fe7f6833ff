package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

const anotherServer = `update deed.settings set system_identifier = 1, database_oid = 1`

// A restored ledger writes to nobody until it is adopted: neither for what is
// queued, nor to find out what is in doubt, by the repeated call that a provider
// with keys would get or by looking it up.
func TestHold_ARestoredLedgerWritesToNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	// One call was under way when the copy was taken.
	doubtful := reserve(t, db, email("a@example.com", "doubt"))[0]
	first := newFake().withKey(24 * time.Hour)
	_, stop := run(t, db, fast(first)) // registers the provider, and the server
	until(t, db, doubtful.ID, delivery.Sent)
	stop()
	doubtful = reserve(t, db, email("a@example.com", "in doubt"))[0]
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 10, '1 second')`)
	if got := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], '1 day', '1 second', 'gone')`, doubtful.ID, claim); got != "sending" {
		t.Fatal(got)
	}
	db.Exec(t, pgtest.Owner, anotherServer)

	fake := newFake().withKey(24 * time.Hour)
	l, _ := run(t, db, fast(fake))
	eventually(t, "it to be held", func() bool { return strings.Contains(l.Held(), "the server is another") })
	queued := reserve(t, db, email("a@example.com", "1"))[0]
	eventually(t, "the doubt to be one for long", func() bool {
		return pgtest.One[bool](t, worker, `select lease_until < clock_timestamp() - interval '2 seconds' from deed.channel_outbox where id = $1::text::uuid`, doubtful.ID)
	})
	if n, unknown := fake.acceptances(); n != 0 || unknown != 0 || fake.called(doubtful.ID)+fake.called(queued.ID) != 0 {
		t.Errorf("it called %d times for the doubt and %d for what is queued", fake.called(doubtful.ID), fake.called(queued.ID))
	}
	if e := entry(t, db, queued.ID); e.Status != delivery.Queued || e.ClaimedBy != "" {
		t.Errorf("what is queued: %+v", e)
	}
	operator, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if why, err := operator.Adopt(ctx, audit.Act{Reason: "a test"}); err != nil || why == "" {
		t.Fatalf("adopt: %q, %v", why, err)
	}
	until(t, db, queued.ID, delivery.Sent)
	until(t, db, doubtful.ID, delivery.Sent)
	if l.Held() != "" || fake.called(queued.ID) != 1 || fake.called(doubtful.ID) != 1 {
		t.Errorf("held: %q; calls: %d, and %d for the doubt", l.Held(), fake.called(queued.ID), fake.called(doubtful.ID))
	}
}

// A ledger that is told to goes on, and one that calls nobody holds nobody up.
func TestHold_ALedgerThatIsToldToGoesOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, anotherServer)
	fake := newFake()
	opts := fast(fake)
	opts.OnNewCluster = deed.Continue
	made := reserve(t, db, email("a@example.com"))[0]
	run(t, db, opts)
	run(t, db, delivery.Options{})
	until(t, db, made.ID, delivery.Sent)
	for _, wrong := range []delivery.Options{{OnNewCluster: "stop"}, {Environment: strings.Repeat("x", 101)}} {
		if _, err := delivery.New(context.Background(), db.Pool(pgtest.Worker), wrong); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// Of two environments on one database the one whose it is goes on; the other,
// which holds, does not even register its own account.
func TestHold_AnotherEnvironmentStopsNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	production, staging := newFake(), newFake()
	staging.caps.Account = "staging's"
	opts := fast(production)
	opts.Environment = "production"
	run(t, db, opts)
	until(t, db, reserve(t, db, email("a@example.com", "1"))[0].ID, delivery.Sent)
	opts = fast(staging)
	opts.Environment = "staging"
	l, _ := run(t, db, opts)
	unnamed, _ := run(t, db, fast(staging))
	eventually(t, "them to be held", func() bool {
		return strings.Contains(l.Held(), `this process to "staging"`) && strings.Contains(unnamed.Held(), "this process names none")
	})
	for _, key := range []string{"2", "3"} {
		until(t, db, reserve(t, db, email("a@example.com", key))[0].ID, delivery.Sent)
	}
	if n, _ := staging.acceptances(); n != 0 {
		t.Errorf("staging sent %d", n)
	}
}
