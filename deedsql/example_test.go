package deedsql_test

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib" // or any other PostgreSQL driver

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/deedsql"
)

// An order and the message that it was placed exist both, or neither.
func ExamplePublish() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `insert into orders (id) values ($1)`, "42"); err != nil {
		log.Fatal(err)
	}
	if _, err := deedsql.Publish(ctx, tx, deed.Message{Topic: "orders", Key: "42", Value: map[string]string{"id": "42"}}); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}
