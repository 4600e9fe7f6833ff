package delivery_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A provider of some tenants calls nobody for another, and says why; neither
// does a repeat of what was called before.
func TestDispatch_TenantsOfAProvider(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	ids := tenants(t, db, 2)
	db.Providers(t, "fake", "fake")
	f := newFake().withKey(time.Hour)
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "doubt@example.com" {
			return delivery.Unknown(nil), true
		}
		return delivery.Accepted("m"), true
	}
	made := func(owner tenant.ID, to string) string {
		t.Helper()
		out, err := delivery.ReserveFor(ctx, db.Pool(pgtest.Worker), owner, email(to))
		if err != nil {
			t.Fatal(err)
		}
		return out[0].ID
	}
	doubt := made(ids[1], "doubt@example.com")
	_, stop := run(t, db, fast(f))
	eventually(t, "a doubt", func() bool { return f.called(doubt) > 0 })
	stop()
	called := f.called(doubt)
	own, other := made(ids[0], "own@example.com"), made(ids[1], "other@example.com")
	opts := fast(f)
	p := opts.Providers["fake"]
	p.Tenants = []tenant.ID{ids[0]}
	opts.Providers["fake"] = p
	run(t, db, opts)
	until(t, db, own, delivery.Sent)
	if e := until(t, db, other, delivery.Failed); !strings.Contains(e.LastError, "does not serve this tenant") {
		t.Errorf("%q", e.LastError)
	}
	eventually(t, "the doubt to be held", func() bool { return entry(t, db, doubt).HeldAt != nil })
	if f.called(other) != 0 || f.called(doubt) != called {
		t.Errorf("another tenant's: %d calls, and %d repeats", f.called(other), f.called(doubt)-called)
	}
}
