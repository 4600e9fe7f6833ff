package deed

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/stream"
	"github.com/deedhq/deed/tenant"
)

// attempted has an attempt at d of a tenant's message come to an outcome.
func attempted(t *testing.T, d *destination, of tenant.ID, outcome error) {
	t.Helper()
	round, _, cause := d.breaker.Admit()
	if cause != nil {
		t.Fatal("no attempt is admitted:", cause)
	}
	var results []error
	if outcome != nil {
		results = []error{claim.Describe(outcome)}
	}
	d.report(round, []Message{{Tenant: of}}, results)
}

// A probe that fails for its message's sake neither closes the breaker nor makes
// it wait, and the next one is of another tenant.
func TestBreaker_StaysHalfOpenBehindAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSource(Options{Logger: slog.New(slog.DiscardHandler)}, Subscription{Topic: "t", Name: "s"}, stream.NewFeed()).dest
		try := func(of byte, outcome error) { t.Helper(); attempted(t, d, tenant.ID{of}, outcome) }
		try(0xa, Unavailable(errors.New("it errs"), 20*time.Millisecond))
		if over := d.failing.list(); len(over) != 0 {
			t.Errorf("before a probe it passes over %v", over)
		}
		<-time.After(20 * time.Millisecond)
		try(0xa, errors.New("it errs"))
		if n, _ := d.Limit(10); n != 1 || d.breaker.State() != "half-open" {
			t.Errorf("it is %s and allows %d claims, want 1", d.breaker.State(), n)
		}
		if over := d.failing.list(); len(over) != 1 || over[0] != (tenant.ID{0xa}) {
			t.Errorf("the next probe passes over %v", over)
		}
		try(0xb, nil)
		if d.breaker.State() != "closed" || len(d.failing.list()) != 0 {
			t.Error("what is delivered does not close it")
		}
	})
}

// A probe that finds the sink down is followed by one of another tenant: a sink may say that it is down of one tenant's messages alone, of which there
// may be so many that each is probed once before any of another's is.
func TestBreaker_ProbesTenantsInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newSource(Options{Logger: slog.New(slog.DiscardHandler)}, Subscription{Topic: "t", Name: "s"}, stream.NewFeed()).dest
		try := func(of byte, outcome error) { t.Helper(); attempted(t, d, tenant.ID{of}, outcome) }
		try(0xa, Unavailable(errors.New("it is down"), time.Second)) // opens it
		for _, of := range []byte{0xa, 0xc} {
			<-time.After(time.Second)
			try(of, Unavailable(errors.New("it is down"), time.Second))
		}
		if over := d.PassOver(); len(over) != 2 {
			t.Errorf("the next probe passes over %v, want those of two probes", over)
		}
		<-time.After(time.Second)
		try(0xb, nil)
		if to := d.Favoured(); to == nil || *to != (tenant.ID{0xb}) || len(d.PassOver()) != 0 {
			t.Errorf("after an answer %v is favoured, and it passes over %v", to, d.PassOver())
		}
	})
}

// A pause is told of while probes show that the sink is down, and not for ever where
// there is nothing to probe it with.
func TestBreaker_PauseIsToldWhileItIsProbed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSource(Options{Logger: slog.New(slog.DiscardHandler)}, Subscription{Topic: "t", Name: "s"}, stream.NewFeed())
		d := s.dest
		probe := func(outcome error) { t.Helper(); attempted(t, d, tenant.ID{}, outcome) }
		figure := func(want bool) {
			t.Helper()
			if stats, _ := s.snapshot(); stats.SinkDown != want {
				t.Errorf("SinkDown is %t, want %t", stats.SinkDown, want)
			}
		}
		figure(false)
		if _, why := d.paused(); why != nil {
			t.Errorf("at first it pauses: %v", why)
		}
		began := time.Now()
		for range 10 {
			probe(Unavailable(errors.New("it is down"), breakerMaxPause))
			<-time.After(breakerMaxPause + probedWithin - time.Second)
			if since, why := d.paused(); why == nil || !since.Equal(began) {
				t.Fatalf("it pauses since %s: %v", since, why)
			}
			figure(true)
		}
		<-time.After(time.Second)
		if _, why := d.paused(); why != nil {
			t.Errorf("a minute after it could be probed it pauses: %v", why)
		}
		figure(false)
		probe(Unavailable(errors.New("it is down"), breakerMaxPause))
		if _, why := d.paused(); why == nil {
			t.Error("after a probe that fails it does not pause")
		}
		figure(true)
		<-time.After(breakerMaxPause)
		probe(nil)
		if _, why := d.paused(); why != nil {
			t.Errorf("after one that is answered it pauses: %v", why)
		}
		figure(false)
	})
}
