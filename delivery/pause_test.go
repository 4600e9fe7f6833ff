package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// reserveFor reserves n webhooks of a tenant for one URL.
func reserveFor(t *testing.T, db *pgtest.DB, id tenant.ID, url, run string, n int) {
	t.Helper()
	list := make([]delivery.Delivery, n)
	for i := range list {
		list[i] = delivery.Delivery{
			Channel: delivery.Webhook, Provider: "fake", Recipient: url, Payload: []byte(`{}`),
			Key: delivery.NewKey(id.String(), url, run, fmt.Sprint(i)),
		}
	}
	made, err := delivery.ReserveFor(context.Background(), db.Pool(pgtest.Worker), id, list...)
	if err != nil {
		t.Fatal(err)
	}
	if run != "" {
		for _, r := range made {
			ofRun(t, db, r.ID, run)
		}
	}
}

// asItIs composes campaigns' deliveries of their rows' data.
type asItIs struct{}

func (asItIs) Compose(_ context.Context, d delivery.Draft) (json.RawMessage, error) {
	return d.Payload, nil
}

// ofRun makes a delivery a campaign's run's, as its expansion does.
func ofRun(t *testing.T, db *pgtest.DB, id, run string) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set run_id = $2::text::uuid where id = $1::text::uuid`, id, run)
}

// sentOf counts what was sent to addresses that contain a text.
func sentOf(t *testing.T, db *pgtest.DB, text string) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent' and recipient like '%' || $1 || '%'`, text)
}

// badPath fails as an outage of the host for whoever asks for /bad.
func badPath(after time.Duration) *fake {
	return hosts(func(r delivery.Reservation) delivery.Outcome {
		if strings.HasSuffix(r.Recipient(), "/bad") {
			return delivery.Outage(errors.New("429"), after)
		}
		return delivery.Accepted("m")
	})
}

// What one tenant meets at a host, a closed port or a path that asks for an
// hour, pauses that host for itself: another's deliveries there go on.
func TestContract_D6_OneTenantsPauseIsNotAnothers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	f := badPath(time.Hour)
	ids := tenants(t, db, 2)
	db.Providers(t, "fake", "fake")
	for i, id := range ids { // whoever comes first
		reserveFor(t, db, id, fmt.Sprintf("https://%d.example:444/bad", i), "", 5)
	}
	l, _ := run(t, db, patient(f))
	paused := func(n int) func() bool {
		return func() bool { return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pauses`) == n }
	}
	eventually(t, "a pause of each", paused(2))
	reserveFor(t, db, ids[1], "https://0.example/good", "", 20)
	reserveFor(t, db, ids[0], "https://1.example/good", "", 20)
	l.Wake()
	eventually(t, "the others' deliveries", func() bool { return sentOf(t, db, "/good") == 40 })
	if !paused(2)() {
		t.Error("a pause is over")
	}
	states, err := l.Providers(ctx)
	if err != nil || len(states) != 1 || len(states[0].Pauses) != 2 {
		t.Fatal(states, err)
	}
	whose := map[string]string{}
	for _, p := range states[0].Pauses {
		whose[p.Destination] = p.Tenant
	}
	if whose["0.example"] != ids[0].String() || whose["1.example"] != ids[1].String() {
		t.Errorf("the list of providers says %+v", states[0].Pauses)
	}
	// Both at one host: each has its own pause, and an operator ends both.
	reserveFor(t, db, ids[1], "https://0.example/bad", "", 1)
	eventually(t, "another pause", paused(3))
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	if n, err := admin.Resume(ctx, "fake", "0.example", audit.Act{By: "ann", Reason: "mended"}); n != 2 || err != nil {
		t.Errorf("resumed %d, %v", n, err)
	}
}

// Of a provider that is paused the tenants' deliveries take turns in finding
// out: one whose every call looks like an outage holds up nobody.
func TestContract_D6_ProbesTakeTurnsBetweenTenants(t *testing.T) {
	t.Parallel()
	for _, doubts := range []bool{false, true} {
		t.Run(fmt.Sprintf("doubts=%t", doubts), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := badPath(0)
			f.caps.Lanes = delivery.LanePerDomain
			ids := tenants(t, db, 2)
			db.Providers(t, "fake", "fake")
			opts := fast(f)
			if doubts {
				f.withKey(time.Hour)
				opts.Providers["fake"] = delivery.ProviderOptions{Provider: finds{f}}
			}
			reserveFor(t, db, ids[0], "https://a.example/bad", "", 100)
			reserveFor(t, db, ids[1], "https://b.example/good", "", 3)
			if doubts {
				db.Broken()
				inDoubt(t, db)
			}
			db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, since, until, why) values ('fake', clock_timestamp(), clock_timestamp(), 'it was down')`)
			run(t, db, opts)
			eventually(t, "the other tenant's", func() bool { return sentOf(t, db, "/good") == 3 })
		})
	}
}

// finds is a provider that can be asked, and knows of nothing.
type finds struct{ *fake }

func (finds) Find(context.Context, delivery.Reservation) (delivery.Finding, error) {
	return delivery.Finding{}, nil
}

// Of a host that is paused for a tenant a claim takes one probe, of the run that
// has waited longest, whichever is looked at first.
func TestContract_D6_ProbesTakeTurnsBetweenRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := badPath(0)
	id := tenants(t, db, 1)[0]
	db.Providers(t, "fake", "fake")
	for i, path := range []string{"bad", "good", "bad", "good"} {
		reserveFor(t, db, id, "https://a.example/"+path, fmt.Sprintf("00000000-0000-7000-8000-%012d", i), 3)
	}
	pause := func() {
		db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, tenant_id, since, until, why)
			values ('fake', 'a.example', $1::text::uuid, clock_timestamp(), clock_timestamp(), 'it was down')`, id.String())
	}
	for _, longest := range []string{"bad", "good"} {
		pause()
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '1 second' * case when recipient like '%' || $1 then 60 else 30 end`, longest)
		claims := pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(recipient, ' ') from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
		if claims != "https://a.example/"+longest {
			t.Errorf("claimed %s of what is paused", claims)
		}
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, lease_until = null, claimed_at = null, claimed_by = null, process_after = null`)
		db.Exec(t, pgtest.Owner, `delete from deed.pauses`)
	}
	pause()
	run(t, db, fast(f))
	eventually(t, "what can be sent", func() bool { return sentOf(t, db, "/good") == 6 })
}
