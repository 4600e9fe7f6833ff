package stream

import (
	"context"
	"testing"
)

// After a failover the steps over windows that it took back lead nowhere: a lane
// goes on from its durable position to the newest window.
func TestFeed_ForgetsWindowsTakenBack(t *testing.T) {
	low := int64(0)
	for name, to := range map[string]window{"a lower number": {46, "new"}, "the same number": {47, "new"}, "a higher number": {60, "new"}} {
		t.Run(name, func(t *testing.T) {
			f := NewFeed()
			w45, w46, w47 := window{45, "45"}, window{46, "gone"}, window{47, "gone"}
			f.publish(windowStep{to: w45})
			f.publish(windowStep{from: w45, to: w46, slots: []int32{}, late: lateRows{low: &low}})
			f.publish(windowStep{from: w46, to: w47, slots: []int32{}, late: lateRows{low: &low}})
			f.publish(windowStep{from: w47, to: to}) // deed.watch does not know where it comes from
			step, seen, ok := f.next(context.Background(), w45, 1, 1, slots{0, 63}, nil)
			if !ok || seen != w45 || step.from != w45 || step.to != to {
				t.Errorf("from 45: %+v, seen up to %+v, %v", step, seen, ok)
			}
			// One that stands at a window that is gone does not wait for a later number.
			if _, _, ok := f.next(t.Context(), w47, 0, 1, slots{0, 63}, nil); ok || f.broken() != 1 {
				t.Errorf("from 47: %v, %d breaks", ok, f.broken())
			}
		})
	}
}
