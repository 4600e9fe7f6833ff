package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/work"
)

// down is a destination that is down, and may be probed.
type down struct{ claim.Destination }

func (down) Limit(n int) (int, time.Duration) { return min(n, 1), 0 }

// While a lane waits to probe a destination that is down, probes are the lane's: what
// is put aside has failed before. All but one a second, since a lane may never go on.
func TestAttention_LeavesTheProbeToTheLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &stream{Subscription: &claim.Subscription{Options: claim.Options{Destination: down{}, Batch: 10}}}
		a := &attention{stream: st}
		if n, _ := a.Limit(10); n != 1 {
			t.Fatalf("no lane waits, and it may claim %d, want 1", n)
		}
		page := newPage(t)
		page.st = st
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			page.awaitProbe()
		}()
		synctest.Wait()
		if n, wait := a.Limit(10); n != 0 || wait <= 0 {
			t.Errorf("beside a lane that waits it may claim %d, and asks again in %s", n, wait)
		}
		<-waited
		if n, _ := a.Limit(10); n != 1 {
			t.Errorf("the lane waits no more, and it may claim %d, want 1", n)
		}
		st.probes.Add(1) // a lane that waits for ever
		<-time.After(givesWay)
		if n, _ := a.Limit(10); n != 1 {
			t.Errorf("after %s it may claim %d, want 1", givesWay, n)
		}
		if n, _ := a.Limit(10); n != 0 {
			t.Errorf("just after that it may claim %d", n)
		}
	})
}

// refusesThenPanics refuses the first message of its first call, takes the second one's, and panics at the next call.
type refusesThenPanics struct {
	claim.Destination
	calls int
}

var errForGood = errors.New("refused for good")

func (d *refusesThenPanics) Deliver(context.Context, []*claim.Message) []error {
	if d.calls++; d.calls > 1 {
		panic("at the second message")
	}
	return []error{errForGood, nil}
}

// rounds has an attention attempt some chains together, once.
type rounds struct {
	*attention
	chains   []*chain
	outcomes map[*chain]error
}

func (r *rounds) Exchange(_ context.Context, done []work.Done[*chain], _ int) ([]*chain, time.Duration, error) {
	for _, d := range done {
		r.outcomes[d.Item] = d.Err
	}
	claimed := r.chains
	r.chains = nil
	return claimed, time.Hour, nil
}

func (r *rounds) Extend(context.Context, []*chain) ([]*chain, error) { return nil, nil }
func (r *rounds) Limit(n int) (int, time.Duration)                   { return n, 0 }

// A panic at a later message of a chain is the outcome of those that were called with it, and not of the chains that had one before.
func TestAttention_APanicIsOfItsRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused, taken := &chain{items: []*claim.Item{{}, {}}}, &chain{items: []*claim.Item{{}, {}}}
		st := &stream{Subscription: &claim.Subscription{Options: claim.Options{Destination: &refusesThenPanics{}}}}
		r := &rounds{attention: &attention{stream: st}, chains: []*chain{refused, taken}, outcomes: map[*chain]error{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := work.Run(ctx, r, work.Options{Concurrency: 1, Group: 2, Batch: 2}); err != nil {
			t.Fatal(err)
		}
		if err := r.outcomes[refused]; !errors.Is(err, errForGood) || refused.delivered != 0 {
			t.Errorf("the chain that was refused in the first round ends with %v, %d delivered", err, refused.delivered)
		}
		if _, panicked := errors.AsType[*work.Panic](r.outcomes[taken]); !panicked || taken.delivered != 1 {
			t.Errorf("the chain at whose second message it panicked ends with %v, %d delivered", r.outcomes[taken], taken.delivered)
		}
	})
}

// Together the chains that are claimed at once weigh no more than a page, and none has
// a second message before it is known how large they are.
func TestAttention_ClaimsWhatThereIsRoomFor(t *testing.T) {
	for _, c := range []struct{ size, n, heads, run int }{
		{0, 200, 200, 0}, {100, 200, 200, mostBehind}, {32 << 10, 200, 200, 4}, {1 << 20, 200, 32, 0}, {1 << 20, 1, 1, 31}, {64 << 20, 200, 1, 0},
	} {
		a := &attention{stream: &stream{Subscription: &claim.Subscription{}}}
		if c.size > 0 {
			a.Weigh(c.size, 1)
		}
		if heads, run := a.room(c.n); heads != c.heads || run != c.run {
			t.Errorf("of %d messages of %d bytes: %d, each with %d, want %d and %d", c.n, c.size, heads, run, c.heads, c.run)
		}
	}
	empty := &attention{stream: &stream{Subscription: &claim.Subscription{}}}
	empty.Weigh(0, 1)
	if _, run := empty.room(1); run != mostBehind {
		t.Errorf("of messages without a payload one comes with %d, want %d", run, mostBehind)
	}
}
