package audit_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
)

// Every act of an operator says who and why.
func ExampleAct() {
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

	// Message 17 is given up, for all of its topic's subscriptions.
	_, err = operator.Discard(ctx, 17, "", audit.Act{By: "ann", Reason: "the order was cancelled"})
	if err != nil {
		log.Fatal(err)
	}
}
