package deed_test

import (
	"context"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// What one transaction publishes is shown once and in order, however much it is, with
// what commits meanwhile.
func TestClient_TailOfAHugeTransaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := pgtest.New(t)
	c := operator(t, db)
	const n = 7003
	got := make(chan int64, 2*n)
	tail := make(chan error, 1)
	go func() {
		tail <- c.Tail(ctx, "orders", false, func(l admin.MessageRecord) error {
			got <- l.Seq
			return nil
		})
	}()
	first := int64(0)
	for first == 0 { // until the tail has begun
		publish(t, db, message("orders", 0))
		select {
		case first = <-got:
		case <-time.After(100 * time.Millisecond):
		}
	}
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 { // others' numbers lie between
		do(t, tx, `select deed.publish('orders', '{}') from generate_series(1, $1::int)`, n/7+i%2)
		publish(t, db, message("other", i))
		publish(t, db, message("orders", i))
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'orders' and id >= $1`, first)
	if want < n {
		t.Fatalf("%d were published", want)
	}
	seen := map[int64]bool{first: true}
	last, back := first, 0
	for len(seen) < want {
		select {
		case seq := <-got:
			if seen[seq] {
				t.Errorf("%d was shown twice", seq)
			}
			if seen[seq] = true; seq < last {
				back++
			}
			last = seq
		case <-time.After(pgtest.Patience):
			t.Fatalf("%d of %d were shown", len(seen), want)
		}
	}
	if back > 10 { // once for each look
		t.Errorf("the order went back %d times", back)
	}
	cancel()
	if err := <-tail; err != nil {
		t.Error(err)
	}
}

// A transaction whose messages lie on both sides of the day's end, between which the
// numbers leap, is shown as any other, to a login of the application too.
func TestClient_TailAcrossTheNextDay(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := pgtest.New(t)
	c, err := admin.New(ctx, db.Pool(pgtest.App), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan int64, 10_000)
	tail := make(chan error, 1)
	go func() {
		tail <- c.Tail(ctx, "orders", false, func(l admin.MessageRecord) error {
			got <- l.Seq
			return nil
		})
	}()
	first := int64(0)
	for first == 0 { // until the tail has begun
		publish(t, db, message("orders", 0))
		select {
		case first = <-got:
		case <-time.After(100 * time.Millisecond):
		}
	}
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	do(t, tx, `select deed.publish('orders', '{}') from generate_series(1, 1300)`)
	nextDay(t, db)
	do(t, tx, `select deed.publish('orders', '{}') from generate_series(1, 1300)`)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where topic = 'orders' and id >= $1`, first)
	seen := map[int64]bool{first: true}
	for len(seen) < want {
		select {
		case seq := <-got:
			if seen[seq] {
				t.Errorf("%d was shown twice", seq)
			}
			seen[seq] = true
		case err := <-tail:
			t.Fatalf("it ended with %d of %d shown: %v", len(seen), want, err)
		case <-time.After(pgtest.Patience):
			t.Fatalf("%d of %d were shown", len(seen), want)
		}
	}
	cancel()
	if err := <-tail; err != nil {
		t.Error(err)
	}
}

func TestClient_Tail(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := pgtest.New(t)
	c, err := admin.New(ctx, db.Pool(pgtest.Worker), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	early, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deed.Publish(ctx, early, message("orders", 1)); err != nil {
		t.Fatal(err)
	}
	publish(t, db, message("orders", 0))
	got := make(chan string, 10)
	tail := make(chan error, 1)
	go func() {
		tail <- c.Tail(ctx, "orders", true, func(l admin.MessageRecord) error {
			got <- string(l.Payload)
			return nil
		})
	}()
	seen := map[string]bool{}
	for n := 2; len(seen) == 0; n++ { // until the tail has begun
		publish(t, db, message("orders", n), message("other", n))
		select {
		case p := <-got:
			seen[p] = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := early.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for !seen[`{"n":1}`] {
		p := <-got
		if seen[p] {
			t.Errorf("%s was shown twice", p)
		}
		seen[p] = true
	}
	if seen[`{"n":0}`] {
		t.Error("a message from before the tail was shown")
	}
	cancel()
	if err := <-tail; err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }
