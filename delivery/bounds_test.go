package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

func sized(n int) delivery.Delivery {
	d := email("bob@example.com")
	d.Payload, _ = json.Marshal(map[string]string{"text": strings.Repeat("x", n)})
	return d
}

// A payload is bounded, as it is stored and as it is written out, by a setting
// that is 1 MiB and at most 10 MiB.
func TestReserve_PayloadIsBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	reserve(t, db, sized(1<<20-1000))
	_, err := delivery.Reserve(ctx, app, sized(10), sized(1<<20+1))
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "delivery 2") || !strings.Contains(err.Error(), "1048576") {
		t.Errorf("over a MiB: %v", err)
	}
	for _, number := range []string{"1e131071", "-1e131071", "1e-16383"} {
		d := sized(10)
		d.Payload = json.RawMessage(`{"n": [` + strings.Repeat(number+",", 70) + `1]}`)
		if _, err := delivery.Reserve(ctx, app, d); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "1048576") {
			t.Errorf("many %s: %v", number, err)
		}
	}
	// It is more than a gigabyte where it is written out, which nothing does.
	vast := `{"n": [` + strings.Repeat("1e131071,", 10_000) + `1]}`
	if _, err := app.Exec(ctx, `select deed.reserve('{email}', '{fake}', '{x@example.com}', array[$1::text::jsonb], array[deed.idempotency_key('vast'::text)])`, vast); sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "so many digits") {
		t.Errorf("by SQL: %v", err)
	}
	ordinary := sized(10)
	ordinary.Payload = json.RawMessage(`{"n": [` + strings.Repeat("1.7976931348623157e308, -4.9e-324, 12345678901234567890,", 1000) + `1]}`)
	ordinary.Key = delivery.NewKey("ordinary")
	reserve(t, db, ordinary)
	c, err := admin.New(ctx, db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	most, over := 10<<20, 10<<20+1
	if err := c.SetSettings(ctx, admin.SettingsChange{MaxDelivery: &over}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("a setting over 10 MiB: %v", err)
	}
	if err := c.SetSettings(ctx, admin.SettingsChange{MaxDelivery: &most}); err != nil {
		t.Fatal(err)
	}
	big := sized(9 << 20)
	big.Key = delivery.NewKey("big")
	reserve(t, db, big)
}

// A request that an adapter makes too large is not stored and not sent.
func TestDispatch_RequestIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.render = func(d delivery.Draft) ([]byte, error) {
		if d.Recipient == "big@example.com" {
			return bytes.Repeat([]byte("x"), 32<<20+1), nil
		}
		return d.Payload, nil
	}
	made := reserve(t, db, email("big@example.com"), email("small@example.com"))
	l, _ := run(t, db, fast(f))
	drained(t, l)
	e := entry(t, db, made[0].ID)
	if e.Status != delivery.Failed || !strings.Contains(e.LastError, "32 MiB") || f.called(made[0].ID) != 0 || f.called(made[1].ID) != 1 {
		t.Errorf("it is %s (%s) after %d calls; the other was called %d times", e.Status, e.LastError, f.called(made[0].ID), f.called(made[1].ID))
	}
}

// A delivery that says it was due long ago is due now, and none is due after the
// year 9999.
func TestReserve_NobodyJumpsTheQueue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first, jumper, late := email("first@example.com"), email("jumper@example.com"), email("late@example.com")
	jumper.ProcessAfter = time.Date(1, 1, 1, 1, 0, 0, 0, time.UTC)
	reserve(t, db, first)
	reserve(t, db, jumper)
	got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(recipient, ' ' order by ord) from deed.channel_outbox`)
	if got != "first@example.com jumper@example.com" {
		t.Errorf("in the order %s", got)
	}
	late.ProcessAfter = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := delivery.Reserve(context.Background(), db.Pool(pgtest.App), late); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("after the year 9999: %v", err)
	}
}

// What is no number is refused where the options are given: the database would
// refuse it at each outcome.
func TestNew_NumbersAreNumbers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	of := func(p delivery.ProviderOptions) delivery.Options {
		p.Provider = &fake{}
		return delivery.Options{Providers: map[string]delivery.ProviderOptions{"fake": p}}
	}
	for _, rate := range []float64{1e10, 5e-324, -1} { // claims would find no room for them
		for option, opts := range map[string]delivery.Options{
			"Rate":  of(delivery.ProviderOptions{Rate: rate}),
			"Lanes": of(delivery.ProviderOptions{Lanes: map[string]float64{"example.com": rate}}),
		} {
			if _, err := delivery.New(context.Background(), db.Pool(pgtest.Worker), opts); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), option) {
				t.Errorf("%s %g: %v", option, rate, err)
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for option, opts := range map[string]delivery.Options{
			"JitterMin": {JitterMin: bad, JitterMax: 1},
			"JitterMax": {JitterMin: 0.5, JitterMax: bad},
			"Rate":      of(delivery.ProviderOptions{Rate: bad}),
			"Burst":     of(delivery.ProviderOptions{Rate: 1, Burst: bad}),
			"Lanes":     of(delivery.ProviderOptions{Lanes: map[string]float64{"example.com": bad}}),
		} {
			if _, err := delivery.New(context.Background(), db.Pool(pgtest.Worker), opts); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), option) {
				t.Errorf("%s %g: %v", option, bad, err)
			}
		}
	}
}

// A number that the SQL functions have no room for is refused by its name, and
// not by the driver.
func TestBounds_NumbersAreNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	l := ledger(t, db, delivery.Options{})
	const most = math.MaxInt32 + 1
	often := email("bob@example.com")
	often.MaxAttempts = most
	for name, call := range map[string]func() error{
		"limit": func() error {
			_, err := l.Redrive(ctx, delivery.Redrive{Act: audit.Act{By: "ann", Reason: "x"}, Limit: most})
			return err
		},
		"rate": func() error {
			_, _, err := l.CountRedrive(ctx, delivery.Redrive{Rate: most})
			return err
		},
		"deliveries: limit": func() error { _, err := l.List(ctx, delivery.Filter{Limit: most}); return err },
		"suppressions: limit": func() error {
			_, err := delivery.Suppressions(ctx, db.Pool(pgtest.Admin), delivery.SuppressionFilter{Limit: most})
			return err
		},
		"delivery 1: max_attempts": func() error { _, err := delivery.Reserve(ctx, db.Pool(pgtest.App), often); return err },
	} {
		if err := call(); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), name+" 2147483648 is not from ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
