package webhook_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/webhook"
	"github.com/deedhq/deed/tenant"
)

// Messages of one tenant that the endpoint answers with an error hold up no
// other tenant's, however many they are and whatever error it is.
func TestPoisonOfATenantHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode           deed.Mode
		poison, status int
	}{
		{deed.ModeQueue, 20, http.StatusInternalServerError},
		{deed.ModeQueue, 100, http.StatusInternalServerError},
		{deed.ModeQueue, 5000, http.StatusInternalServerError},
		{deed.ModeQueue, 100, http.StatusServiceUnavailable},
		{deed.ModeStream, 100, http.StatusInternalServerError},
	} {
		t.Run(fmt.Sprintf("%s%dTimes%d", c.mode, c.poison, c.status), func(t *testing.T) {
			t.Parallel()
			p := startPoisoned(t, c.mode, c.status)
			a, b := tenant.ID{0xa}, tenant.ID{0xb}
			p.soon(t, b, 5*time.Second, func() {
				p.publish(t, a, c.poison, "poison")
				for range 10 {
					p.publish(t, b, 1, "good")
					<-time.After(200 * time.Millisecond)
				}
			})
		})
	}
}

// Within one tenant they give way too: to an endpoint that answers, the next
// message follows soon.
func TestPoisonGivesWayToTheTenantsOwn(t *testing.T) {
	t.Parallel()
	p := startPoisoned(t, deed.ModeQueue, http.StatusInternalServerError)
	own := tenant.ID{0xa}
	p.soon(t, own, time.Minute, func() { // a hundred probes of a breaker take an hour
		p.publish(t, own, 100, "poison")
		p.publish(t, own, 10, "good")
	})
}

// poisoned is a relay whose endpoint answers what says poison with an error.
type poisoned struct {
	db      *pgtest.DB
	good    int // published
	arrived atomic.Int64
}

func startPoisoned(t *testing.T, mode deed.Mode, status int) *poisoned {
	p := &poisoned{db: pgtest.New(t)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || bytes.Contains(body, []byte("poison")) {
			w.WriteHeader(status)
			return
		}
		p.arrived.Add(1)
	}))
	t.Cleanup(srv.Close)
	sink, err := webhook.New(webhook.Options{URL: srv.URL, Secret: secret, AllowHosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	client, err := deed.New(t.Context(), p.db.Pool(pgtest.Worker), deed.Options{
		Topics:        []deed.Topic{{Name: "orders", Mode: mode}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Sink: sink, From: deed.FromBeginning}},
		Deadline:      25 * time.Second, // what is given up may have been done, and waits for its lease
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return p
}

func (p *poisoned) publish(t *testing.T, id tenant.ID, n int, text string) {
	t.Helper()
	msgs := make([]deed.Message, n)
	for i := range msgs {
		msgs[i] = deed.Message{Topic: "orders", Payload: fmt.Appendf(nil, "%q", text)}
	}
	err := pgx.BeginFunc(t.Context(), p.db.Pool(pgtest.App), func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, id); err != nil {
			return err
		}
		_, err := deed.Publish(t.Context(), tx, msgs...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if text == "good" {
		p.good += n
	}
}

// soon has all good messages arrive within the limit after some were published, with poison before them. It gives that ten
// chances, each with poison of its own: the machine may be busy with something else, for longer than some of them.
func (p *poisoned) soon(t *testing.T, id tenant.ID, limit time.Duration, publish func()) {
	t.Helper()
	p.publish(t, id, 1, "good")
	p.await(t) // the relay works
	for again := 9; ; again-- {
		publish()
		began := time.Now()
		p.await(t)
		took := time.Since(began)
		if took <= limit {
			return
		}
		if again == 0 {
			t.Fatalf("the good messages have arrived after %s, want %s at the most", took, limit)
		}
		t.Logf("the good messages have arrived after %s", took)
	}
}

// await waits until all good messages have arrived.
func (p *poisoned) await(t *testing.T) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, func() bool { return int(p.arrived.Load()) >= p.good }) {
		t.Fatalf("%d of %d good messages have arrived within %s", p.arrived.Load(), p.good, pgtest.Patience)
	}
}
