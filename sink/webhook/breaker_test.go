package webhook

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed"
)

var errDown = errors.New("it is down")

func testEndpoint() *endpoint {
	return newEndpoint(Options{Breaker: Breaker{Failures: 3, Pause: time.Second, MaxPause: 5 * time.Second}}.withDefaults().Breaker)
}

// try makes one attempt with the given result and says what came of it.
func try(t *testing.T, b *endpoint, seq int64, v verdict) string {
	t.Helper()
	round, pause, cause := b.Admit()
	if cause != nil {
		return "refused " + pause.String()
	}
	outage, pause := b.report(round, deed.NewID(time.UnixMilli(0), seq), attempt{err: errDown, verdict: v})
	if outage {
		return "outage " + pause.String()
	}
	return "made"
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	type step struct {
		wait    time.Duration
		seq     int64
		verdict verdict
		want    string
		state   string
	}
	for name, steps := range map[string][]step{
		"OpensAfterARun": {
			{0, 1, failed, "made", "closed"},
			{0, 2, unreachable, "made", "closed"},
			{0, 3, failed, "made", "open"},
			{0, 4, answered, "refused 1s", "open"},
			{400 * time.Millisecond, 4, answered, "refused 600ms", "open"},
		},
		"AnAnswerEndsTheRun": {
			{0, 1, failed, "made", "closed"},
			{0, 2, failed, "made", "closed"},
			{0, 3, answered, "made", "closed"},
			{0, 4, failed, "made", "closed"},
			{0, 5, neutral, "made", "closed"},
			{0, 6, failed, "made", "closed"},
			{0, 7, failed, "made", "open"},
		},
		"ProbeCloses": {
			{0, 1, failed, "made", "closed"},
			{0, 2, failed, "made", "closed"},
			{0, 3, failed, "made", "open"},
			{time.Second, 4, answered, "made", "closed"},
			{0, 5, failed, "made", "closed"},
		},
		"PauseDoublesUpToItsBound": {
			{0, 1, failed, "made", "closed"},
			{0, 2, failed, "made", "closed"},
			{0, 3, failed, "made", "open"},
			{time.Second, 4, unreachable, "outage 2s", "open"},
			{time.Second, 4, unreachable, "refused 1s", "open"},
			{time.Second, 4, unreachable, "outage 4s", "open"},
			{4 * time.Second, 4, unreachable, "outage 5s", "open"},
			{5 * time.Second, 4, unreachable, "outage 5s", "open"},
			{5 * time.Second, 4, answered, "made", "closed"},
			{0, 5, failed, "made", "closed"},
			{0, 5, failed, "made", "closed"},
			{0, 5, failed, "made", "open"},
			{time.Second, 5, failed, "outage 2s", "open"},
		},
		"OneMessageCannotProbeForEver": {
			{0, 1, failed, "made", "closed"},
			{0, 1, failed, "made", "closed"},
			{0, 1, failed, "made", "open"},
			{time.Second, 1, failed, "outage 2s", "open"},
			{2 * time.Second, 1, failed, "outage 4s", "open"},
			{4 * time.Second, 1, failed, "made", "open"},
			{5 * time.Second, 2, failed, "outage 5s", "open"},
			{5 * time.Second, 1, failed, "outage 5s", "open"},
			{5 * time.Second, 2, failed, "outage 5s", "open"},
		},
		"AnErrorMakesWayForTheNextMessage": {
			{0, 1, erred, "made", "closed"},
			{0, 2, erred, "made", "closed"},
			{0, 3, erred, "made", "open"},
			{0, 4, erred, "refused 20ms", "open"},
			{20 * time.Millisecond, 4, erred, "made", "open"},
			{20 * time.Millisecond, 5, failed, "outage 1s", "open"},
			{time.Second, 5, failed, "outage 2s", "open"},
			{2 * time.Second, 4, erred, "made", "open"},
			{20 * time.Millisecond, 6, answered, "made", "closed"},
		},
		"NeutralProbeLeavesItHalfOpen": {
			{0, 1, failed, "made", "closed"},
			{0, 2, failed, "made", "closed"},
			{0, 3, failed, "made", "open"},
			{time.Second, 4, neutral, "made", "half-open"},
			{0, 5, answered, "made", "closed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := testEndpoint()
				for i, s := range steps {
					<-time.After(s.wait)
					if got := try(t, b, s.seq, s.verdict); got != s.want || b.State() != s.state {
						t.Fatalf("step %d: %s and %s, want %s and %s", i+1, got, b.State(), s.want, s.state)
					}
				}
			})
		})
	}
}

func TestBreakerLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := testEndpoint()
		late, _, _ := b.Admit()
		for range 3 {
			try(t, b, 1, failed)
		}
		b.report(late, deed.ID{}, attempt{verdict: answered})
		if b.State() != "open" {
			t.Errorf("an answer from before it opened made it %s", b.State())
		}
		<-time.After(time.Second)
		if b.State() != "half-open" {
			t.Errorf("after the pause it is %s", b.State())
		}
		var admitted atomic.Int32
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if _, _, cause := b.Admit(); cause == nil {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		if n := admitted.Load(); n != 1 {
			t.Errorf("%d probes were let through, want 1", n)
		}
	})
}

// An endpoint that answers everything with an error is asked ever more seldom.
func TestBreakerSparesAnEndpointThatErrs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newEndpoint(Options{}.withDefaults().Breaker)
		requests := func(during, every time.Duration) (n int) {
			for began := time.Now(); time.Since(began) < during; <-time.After(every) {
				if try(t, b, int64(n), erred) == "made" {
					n++
				}
			}
			return n
		}
		if n := requests(time.Minute, 10*time.Millisecond); n < 100 || n > 400 {
			t.Errorf("%d requests in the first minute", n)
		}
		requests(3*time.Hour, 500*time.Millisecond)
		if n := requests(time.Hour, 500*time.Millisecond); n > 900 {
			t.Errorf("%d requests in the fifth hour", n)
		}
	})
}

func TestBreakerTakesTheEndpointsWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newEndpoint(Breaker{Failures: 1, Pause: time.Second, MaxPause: 10 * time.Second})
		round, _, _ := b.Admit()
		b.report(round, deed.ID{}, attempt{verdict: failed, after: 7 * time.Second})
		if _, pause, _ := b.Admit(); pause != 7*time.Second {
			t.Errorf("pause = %s, want 7s", pause)
		}
	})
}

// The life of an outage as the relay sees it.
func TestBreakerOfASink(t *testing.T) {
	t.Parallel()
	var status, requests atomic.Int32
	var after atomic.Value // Retry-After, a string
	after.Store("")
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if s := after.Load().(string); s != "" {
			w.Header().Set("Retry-After", s)
		}
		w.WriteHeader(int(status.Load()))
	})
	s := newSink(t, srv.URL, func(o *Options) {
		o.Breaker = Breaker{Failures: 2, Pause: time.Millisecond, MaxPause: time.Hour}
	})
	other := testMessage()
	other.ID = deed.NewID(other.CreatedAt, 43)
	want := func(m deed.Message, kind, state string) error {
		t.Helper()
		err := deliverOne(t, s, m)
		if kindOf(err) != kind || s.State() != state {
			t.Fatalf("outcome = %s (%v), breaker %s; want %s, %s", kindOf(err), err, s.State(), kind, state)
		}
		return err
	}
	status.Store(http.StatusUnprocessableEntity)
	for range 5 {
		want(testMessage(), "dead", "closed")
	}
	status.Store(http.StatusServiceUnavailable)
	want(testMessage(), "attempt", "closed")
	if err := deliverOne(t, s, testMessage()); kindOf(err) != "attempt" {
		t.Fatalf("the failure that opens the breaker is %s", kindOf(err))
	}
	// opened gives the sink a breaker that has just opened for so long.
	opened := func(pause time.Duration) {
		t.Helper()
		s.endpoint = newEndpoint(Breaker{Failures: 1, Pause: pause, MaxPause: time.Hour})
		if err := deliverOne(t, s, testMessage()); kindOf(err) != "attempt" {
			t.Fatalf("the failure that opens the breaker is %s", kindOf(err))
		}
	}
	opened(time.Hour)
	before := requests.Load()
	err := want(testMessage(), "unavailable", "open")
	if pause, _ := deed.RetryAfter(err); pause < 59*time.Minute || !strings.Contains(err.Error(), "status 503") {
		t.Errorf("pause %s of %q, want what is left of it and the cause", pause, err)
	}
	if requests.Load() != before {
		t.Error("a request was made while the breaker was open")
	}
	opened(time.Nanosecond)
	after.Store("3600")
	want(testMessage(), "unavailable", "open") // the probe
	after.Store("")
	opened(time.Nanosecond)
	status.Store(http.StatusOK)
	want(other, "delivered", "closed")
}

func TestNoConnectionOpensTheBreaker(t *testing.T) {
	t.Parallel()
	s := newSink(t, nobody, func(o *Options) { o.Breaker = Breaker{Failures: 2, Pause: time.Hour} })
	for range 2 {
		err := deliverOne(t, s, testMessage())
		if after, _ := deed.RetryAfter(err); kindOf(err) != "unavailable" || after != 0 {
			t.Errorf("outcome = %s after %s (%v)", kindOf(err), after, err)
		}
	}
	err := deliverOne(t, s, testMessage())
	if after, _ := deed.RetryAfter(err); kindOf(err) != "unavailable" || after == 0 {
		t.Errorf("outcome = %s after %s (%v), want the pause", kindOf(err), after, err)
	}
}

// The relay hands out the oldest message first, and one that counted no attempt
// stays the oldest. Messages that make the endpoint fail must give way anyway.
func TestFailingMessagesGiveWay(t *testing.T) {
	t.Parallel()
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("deed-key") == "bad" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s := newSink(t, srv.URL, func(o *Options) {
		o.Breaker = Breaker{Failures: 2, Pause: time.Millisecond, MaxPause: 2 * time.Millisecond}
	})
	var queue []deed.Message
	for i := range 20 {
		m := testMessage()
		m.ID = deed.NewID(m.CreatedAt, int64(i))
		if i < 5 {
			m.Key = "bad"
		}
		queue = append(queue, m)
	}
	delivered := 0
	for range 200 {
		err := deliverOne(t, s, queue[0])
		switch kindOf(err) {
		case "delivered":
			delivered++
			queue = queue[1:]
		case "attempt":
			queue = append(queue[1:], queue[0])
		case "unavailable":
			after, _ := deed.RetryAfter(err)
			<-time.After(after)
		}
		if delivered == 15 {
			return
		}
	}
	t.Errorf("%d of 15 good messages were delivered behind 5 bad ones", delivered)
}
