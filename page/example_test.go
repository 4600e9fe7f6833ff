package page_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/admin"
)

// All messages of a topic, a hundred at a time.
func Example() {
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

	filter := admin.Filter{Topic: "orders"}
	for more := true; more; more = filter.Cursor != "" {
		list, err := operator.Messages(ctx, filter)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range list.Items {
			fmt.Println(m.Seq, m.Key)
		}
		filter.Cursor = list.Next
	}
}
