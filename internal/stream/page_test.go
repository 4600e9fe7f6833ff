package stream

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/work"
)

func newPage(t *testing.T) *pageRun {
	return &pageRun{
		st: &stream{Subscription: &claim.Subscription{}}, keys: newBlockedKeys(), working: context.Background(), ctx: t.Context(),
		began: time.Now().Add(-2 * cutAfter), postponed: map[claim.Key]bool{},
	}
}

// A hand that is told that the page has ended leaves a message out; were it told
// otherwise for the next one of the key, that would be delivered before it.
func TestPage_EndedStaysEnded(t *testing.T) {
	d := newPage(t)
	d.keys.add(1) // of the page before, whose record is under way
	d.keys.settle([]int64{1})
	if d.ended() {
		t.Error("a page that has put nothing aside keeps nobody waiting, and ended")
	}
	d.decide()
	if !d.ended() {
		t.Error("the page did not end for the key that waits")
	}
	d.keys.recorded([]int64{1})
	if !d.ended() {
		t.Error("the page had ended, and goes on")
	}
}

// What was only put behind others, or waits for its time, drags nothing aside
// that comes before it; what was delivered does, or it would be again.
func TestPage_AsideIsWhatWasOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		last *aside
		want bool
	}{
		"parked":    {&aside{outcome: claim.Outcome{Kind: park}}, false},
		"scheduled": {&aside{outcome: claim.Outcome{Kind: later}}, false},
		"failed":    {&aside{outcome: claim.Outcome{Kind: claim.Retry}}, true},
		"delivered": {nil, true},
	} {
		d := newPage(t)
		d.cut = true
		first, last := &entry{}, &entry{settled: true, aside: c.last}
		d.asideGaps([]*entry{first, last})
		if first.settled != c.want {
			t.Errorf("before one that was %s: aside is %v", name, first.settled)
		}
	}
}

// counting is a destination that counts the messages it is called with.
type counting struct {
	claim.Destination
	called int
}

func (c *counting) Deliver(_ context.Context, msgs []*claim.Message) []error {
	c.called += len(msgs)
	return nil
}

// A lane that is lost is cancelled, and then the leases of the others are fresh. What
// its page is about to begin is not begun, although the page's own context, which
// ends behind that, is still open.
func TestPage_BeginsNothingOnceItsLaneIsLost(t *testing.T) {
	for name, group := range map[string]int{"one at a time": 0, "by batches": 10} {
		d, sink := newPage(t), &counting{}
		d.st.Lease, d.st.Destination, d.st.Group, d.st.Concurrency = time.Minute, sink, group, 1
		working, cancel := context.WithCancelCause(t.Context())
		d.working = working
		d.st.leases.renew(time.Now())
		first, second := &entry{}, &entry{}
		d.pass([]*entry{first})
		cancel(work.ErrLeaseLost)
		d.st.leases.renew(time.Now())
		d.pass([]*entry{second})
		if sink.called != 1 || !first.settled || second.settled || second.tried {
			t.Errorf("%s: %d calls, want the one before the loss; settled %v and %v", name, sink.called, first.settled, second.settled)
		}
	}
}
