package admin_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
)

// How each topic's messages stand.
func ExampleClient_Status() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_admin
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	operator, err := admin.New(ctx, pool, admin.Options{})
	if err != nil {
		log.Fatal(err)
	}
	topics, err := operator.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range topics {
		fmt.Println(t.Topic, "pending", t.Pending, "dead", t.Dead, "oldest due for", t.OldestDue)
	}
}

// What a receiver's outage has left dead is counted, and then put back.
func ExampleClient_Redrive() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	operator, err := admin.New(ctx, pool, admin.Options{})
	if err != nil {
		log.Fatal(err)
	}

	dead := admin.DeadFilter{Topic: "orders", Error: "status 503", NewerThan: 24 * time.Hour}
	counts, err := operator.CountDead(ctx, dead)
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range counts {
		fmt.Println(n.Subscription, n.Dead)
	}
	n, err := operator.Redrive(ctx, admin.Redrive{
		DeadFilter: dead,
		Act:        audit.Act{By: "ann", Reason: "INC-211 is over"},
		Request:    "inc-211", // cut off, the same request again goes on
		Rate:       50,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "messages are tried again")
}

// A message by its number or by its id, as an operator types it.
func ExampleParseRef() {
	seq, _, err := admin.ParseRef("01a1fc88-7193-7000-8000-00000000002a")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(seq)
	// Output: 42
}
