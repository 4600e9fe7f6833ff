package deed_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// stream is the options of a client that reads the topic "orders", a stream,
// into sink.
func stream(sink deed.Sink, more func(*deed.Options)) deed.Options {
	opts := deed.Options{
		Topics:        []deed.Topic{{Name: "orders", Mode: deed.Stream}},
		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: sink}},
	}
	if more != nil {
		more(&opts)
	}
	return opts
}

// runStream starts a client and waits until its topics are declared.
func runStream(t testing.TB, db *pgtest.DB, opts deed.Options) (*deed.Client, func() error) {
	t.Helper()
	c, stop := run(t, db, opts)
	eventually(t, "the client to be ready", func() bool { return c.Ready(context.Background()) == nil })
	return c, stop
}

// keyed is message n of the topic "orders" and of a key.
func keyed(key string, n int) deed.Message {
	return deed.Message{Topic: "orders", Key: key, Value: map[string]int{"n": n}}
}

// inOrder checks that the first deliveries of each key's messages came in the
// order of their numbers, which is that of their transactions here.
func inOrder(t *testing.T, list []deed.Message) {
	t.Helper()
	last := map[string]int64{}
	seen := map[int64]bool{}
	for _, m := range list {
		if seen[m.Seq] {
			continue
		}
		seen[m.Seq] = true
		if m.Key != "" && m.Seq < last[m.Key] {
			t.Errorf("key %s: message %d came after %d", m.Key, m.Seq, last[m.Key])
		}
		last[m.Key] = m.Seq
	}
}

func TestContract_O13_EachKeyInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{}
	c, stop := runStream(t, db, stream(sink, nil))
	for i := range 300 {
		publish(t, db, keyed(fmt.Sprint(i%7), i))
	}
	var many []deed.Message
	for i := range 3000 {
		many = append(many, keyed(fmt.Sprint(i%50), i))
	}
	publish(t, db, many...)
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n, repeats := sink.counts(); n != 3300 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 3300 and none", n, repeats)
	}
	inOrder(t, sink.list)
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`); n != 0 {
		t.Errorf("%d pending rows", n)
	}
}
