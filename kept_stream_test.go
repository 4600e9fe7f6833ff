package deed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A stream that begins at the beginning is given what the topic still holds
// outside the log, too: what another has put aside, and retention has moved. It
// comes first, in the order of its key.
func TestContract_O18_StreamIsGivenWhatWasMoved(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	refuses := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" {
			return deed.Permanent(errors.New("never"))
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(refuses))
	for n := range 3 {
		publish(t, db, keyed("bad", n), keyed("good", n))
	}
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	nextDay(t, db)
	older(t, db)
	same(t, "steps", retain(t, db, pgtest.Worker), []string{"0 began 0", "0 moved 3", "0 emptied 0", "0 dropped 0"})
	for n := 3; n < 6; n++ {
		publish(t, db, keyed("bad", n), keyed("good", n))
	}

	var tries atomic.Int64
	all := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" && tries.Add(1) == 1 {
			return deed.AfterError(20*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}}
	second, _ := runStream(t, db, stream(all, func(o *deed.Options) {
		o.Subscriptions[0].Name, o.Subscriptions[0].From = "all", deed.FromBeginning
	}))
	drained(t, second)
	if n, repeats := all.counts(); n != 9 || repeats != 0 {
		t.Errorf("%d messages came, %d again; want 9 and none", n, repeats)
	}
	inOrder(t, all.succeeded())
}

// A stream that begins while retention is moving what it is owed gets that once:
// not from the log and from outside it, nor from neither.
func TestContract_O18_StreamBeginsWhileRetentionMoves(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	refuses := &recorder{fail: func(deed.Message) error { return deed.Permanent(errors.New("never")) }}
	c, stop := runStream(t, db, stream(refuses))
	for n := range 3 {
		publish(t, db, keyed("a", n), keyed("b", n))
	}
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	nextDay(t, db)
	older(t, db)
	same(t, "first step", pgtest.One[string](t, db.Pool(pgtest.Worker), `select did from deed.retention_step()`), "began")
	moving := openTx(t, db, pgtest.Worker, `select did from deed.retention_step(4)`)

	all := &recorder{}
	second, _ := runStream(t, db, stream(all, func(o *deed.Options) {
		o.Subscriptions[0].Name, o.Subscriptions[0].From = "all", deed.FromBeginning
	}))
	worker := db.Pool(pgtest.Worker)
	eventually(t, "the relay to have asked for lanes", func() bool {
		publish(t, db, keyed("c", 1))
		return pgtest.One[bool](t, worker, `select count(*) > 0 from deed.relays r join deed.subscriptions s on s.id = r.subscription where s.name = 'all'`)
	})
	same(t, "lanes meanwhile", pgtest.One[int](t, worker, `select count(*) from deed.lanes l join deed.subscriptions s on s.id = l.subscription where s.name = 'all'`), 0)
	if err := moving.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	drained(t, second)
	var log, kept int
	if err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `
		select (select count(*) from deed.log where topic = 'orders'), (select count(*) from deed.kept where topic = 'orders')`).Scan(&log, &kept); err != nil {
		t.Fatal(err)
	}
	if kept < 4 { // and more, where the relay's own retention has come by
		t.Errorf("%d were moved, want 4", kept)
	}
	if n, repeats := all.counts(); n != log+kept || repeats != 0 {
		t.Errorf("%d messages came, %d again; want %d and none", n, repeats, log+kept)
	}
	inOrder(t, all.succeeded())
}
