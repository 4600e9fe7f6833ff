package deed_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A sink that is down loses nothing and does not stop the others, be the topic
// a queue or a stream.
func TestContract_O12_OneSinkDownStopsNoOther(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.Queue, deed.Stream} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var down atomic.Bool
			down.Store(true)
			away := &recorder{fail: func(deed.Message) error {
				if down.Load() {
					return deed.Unavailable(errors.New("away"), 10*time.Millisecond)
				}
				return nil
			}}
			well := &recorder{}
			c, _ := runStream(t, db, deed.Options{
				Topics: []deed.Topic{{Name: "orders", Mode: mode}},
				Subscriptions: []deed.Subscription{
					{Topic: "orders", Name: "away", Sink: away}, {Topic: "orders", Name: "well", Sink: well},
				},
			})
			for i := range 100 {
				publish(t, db, keyed(fmt.Sprint(i%5), i))
			}
			eventually(t, "the sink that is well to have all", func() bool { n, _ := well.counts(); return n == 100 })
			if n, _ := away.counts(); n != 0 {
				t.Errorf("the sink that is away has %d", n)
			}
			down.Store(false)
			drained(t, c)
			if n, _ := away.counts(); n != 100 {
				t.Errorf("the sink that was away has %d of 100", n)
			}
		})
	}
}
