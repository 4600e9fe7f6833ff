package stub_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/stub"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// dispatch runs a ledger with the stub as "mail" until the test ends.
func dispatch(t *testing.T, db *pgtest.DB, opts stub.Options) *delivery.Ledger {
	t.Helper()
	p, err := stub.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"mail": {Provider: p}}, PollInterval: 10 * time.Millisecond, BaseRetry: time.Millisecond,
		Deadline: 25 * time.Second, // what is given up may have been done, and waits for its lease
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

func reserve(t *testing.T, db *pgtest.DB, channel delivery.Channel, to string) string {
	t.Helper()
	made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
		Channel: channel, Provider: "mail", Recipient: to, Key: delivery.NewKey("a test", string(channel), to), Payload: []byte(`{"anything": "canary"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return made[0].ID
}

// Every channel's deliveries are as if they had been sent.
func TestSend_AcceptsForEveryChannel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "stub", "mail")
	l := dispatch(t, db, stub.Options{})
	for channel, to := range map[delivery.Channel]string{
		delivery.Email: "a@example.com", delivery.SMS: "+4930123456", delivery.Voice: "+4930123456", delivery.Social: "us", delivery.Chat: "42", delivery.Webhook: "https://example.com/",
	} {
		id := reserve(t, db, channel, to)
		want := map[delivery.Channel]delivery.Status{delivery.Voice: delivery.Called, delivery.Social: delivery.Posted}[channel]
		if want == "" {
			want = delivery.Sent
		}
		if !pgtest.Wait(pgtest.Patience, func() bool {
			e, _, err := l.Show(t.Context(), id, false)
			return err == nil && e.Status == want && e.ProviderMessageID == "stub-"+id
		}) {
			e, _, err := l.Show(t.Context(), id, false)
			t.Errorf("%s: %+v, %v", channel, e, err)
		}
	}
}

// Each answer leads where such an answer of a real provider leads.
func TestSend_FailsAsItIsTold(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"refused": "failed", "bad_address": "failed", "opted_out": "skipped", "deferred": "queued", "not_now": "dead", "outage": "queued", "unknown": "sending",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Providers(t, "stub", "mail")
			l := dispatch(t, db, stub.Options{Fail: map[string]float64{answer: 1}})
			id := reserve(t, db, delivery.Email, "a@example.com")
			var e delivery.Entry
			if !pgtest.Wait(pgtest.Patience, func() bool {
				var err error
				e, _, err = l.Show(t.Context(), id, false)
				return err == nil && string(e.Status) == want && (e.LastError == "stub: it was told to fail" || e.DoubtSince != nil)
			}) {
				t.Errorf("%+v, want %s", e, want)
			}
		})
	}
}

func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fail map[string]float64
		want string
	}{
		{map[string]float64{"accepted": 0.1}, `no answer is called "accepted"`},
		{map[string]float64{"refused": -0.1}, "refused is not from 0 to 1"},
		{map[string]float64{"refused": math.NaN()}, "refused is not from 0 to 1"},
		{map[string]float64{"refused": 0.6, "unknown": 0.6}, "which is over 1"},
	} {
		_, err := stub.New(stub.Options{Fail: c.fail})
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%v: %v", c.fail, err)
		}
	}
}
