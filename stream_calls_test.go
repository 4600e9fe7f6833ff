package deed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// A function that never returns holds its lane, and any other process is told
// by status which message it has, where, and for how long; once it has
// returned, nothing is shown.
func TestStream_CallThatNeverReturnsIsShown(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	release := make(chan struct{})
	sink := &recorder{}
	fn := deed.SinkFunc(func(ctx context.Context, m deed.Message) error {
		if m.Key == "stuck" {
			<-release // whatever becomes of ctx
		}
		return sink.Deliver(ctx, []deed.Message{m})[0]
	})
	c, _ := runStream(t, db, stream(fn, func(o *deed.Options) { o.Worker, o.Topics[0].Lanes = "w1", 1 }))
	stuck := publish(t, db, keyed("stuck", 0))[0]
	for i := range 20 {
		publish(t, db, keyed(fmt.Sprint(i), i))
	}
	other, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	oldest := func() *admin.RunningCall {
		topics, err := other.Status(t.Context())
		if err != nil || len(topics) != 1 || len(topics[0].Subscriptions) != 1 {
			t.Fatalf("%+v, %v", topics, err)
		}
		return topics[0].Subscriptions[0].OldestCall
	}
	eventuallyWithin(t, time.Minute, "the call to be shown", func() bool { return oldest() != nil })
	if got := oldest(); got.Seq != stuck.Seq || got.ID != stuck.ID || got.Worker != "w1" || got.Messages != 1 || got.Age < admin.Seconds(10*time.Second) {
		t.Errorf("got %+v, want message %d", got, stuck.Seq)
	}
	close(release)
	eventuallyWithin(t, time.Minute, "the call to be shown no more", func() bool { return oldest() == nil })
	drained(t, c)
	if n, repeats := sink.counts(); n != 21 || repeats != 0 {
		t.Errorf("%d messages came, %d again", n, repeats)
	}
}
