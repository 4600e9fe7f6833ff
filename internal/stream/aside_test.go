package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/claim"
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
