package stream

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/claim"
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
