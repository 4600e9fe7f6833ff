package deed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// A subscription whose sink is unavailable pauses, and any other process is told by
// status for how long and why, without addresses; once the sink answers, nothing is
// shown.
func TestStatus_SaysWhyASubscriptionPauses(t *testing.T) {
	t.Parallel()
	for _, mode := range []deed.Mode{deed.ModeQueue, deed.ModeStream} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			var up atomic.Bool
			fn := deed.SinkFunc(func(context.Context, deed.Message) error {
				if !up.Load() {
					return deed.Unavailable(errors.New("dial hook.example 10.1.2.3:443: connection refused"), 0)
				}
				return nil
			})
			c, _ := run(t, db, deed.Options{
				Worker: "w1", Topics: []deed.Topic{{Name: "orders", Mode: mode}},
				Subscriptions: []deed.Subscription{{Topic: "orders", Sink: fn, From: deed.FromBeginning}},
			})
			publish(t, db, message("orders", 1))
			pause := func() *admin.SinkPause {
				topics, err := operator(t, db).Status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, topic := range topics {
					for _, s := range topic.Subscriptions {
						if s.Pause != nil {
							return s.Pause
						}
					}
				}
				return nil
			}
			var p *admin.SinkPause
			eventually(t, "the pause to be shown", func() bool { p = pause(); return p != nil })
			if !strings.Contains(p.Why, "connection refused") || strings.Contains(p.Why, "10.1.2.3") {
				t.Errorf("it pauses since %q", p.Why)
			}
			if p.Worker != "w1" || p.Workers != 1 || p.Age <= 0 || p.Age > admin.Seconds(pgtest.Patience) {
				t.Errorf("%+v", p)
			}
			up.Store(true)
			// It is probed after half a minute at the latest.
			eventually(t, "the pause to be shown no more", func() bool { return pause() == nil })
			drained(t, c)
		})
	}
}
