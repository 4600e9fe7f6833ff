package stream

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/claim"
)

// An answer that was under way while a lane was given back names it: it is not begun again
// under the fence that is over, beside its next owner. One that could not be given back is,
// and one that was taken again, or of which a later answer says that it is not given back, as after a failover.
func TestLanes_OneThatWasGivenBackIsNotBegunAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		released bool
		later    bool  // it was asked for then
		fence    int64 // of which the answer tells
		begun    bool
	}{
		"given back":                    {true, false, 7, false},
		"not given back":                {false, false, 7, true},
		"given back, taken again":       {true, false, 8, true},
		"given back, and that was lost": {true, true, 7, true},
	} {
		ls := newLanes(&stream{Subscription: claim.New(claim.Options{Log: slog.New(slog.DiscardHandler)})})
		before := newLane(ls.st, assignedLane{no: 3, fence: 7, slots: slots{0, 63}})
		asked := time.Now()
		if released := asked.Add(time.Millisecond); c.released {
			before.released.Store(&released)
		}
		if c.later {
			asked = asked.Add(time.Second)
		}
		ls.ended[3] = before // and never done: the next one of its number waits for it, and reads nothing
		ls.assign(context.Background(), &assignment{asked: asked, lanes: []assignedLane{{no: 3, fence: c.fence, slots: slots{0, 63}}}})
		if _, begun := ls.running[3]; begun != c.begun {
			t.Errorf("%s: begun %t", name, begun)
		}
	}
}
