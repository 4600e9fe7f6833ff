package schema_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/schema"
)

// A service that installs what it needs when it starts; any number may do it at
// once.
func ExampleUp() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("MIGRATE_URL")) // of the login that owns the schema
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	done, err := schema.Up(ctx, conn)
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range done.Applied {
		fmt.Println("applied", name)
	}
}

// What somebody else installs is looked at only.
func ExampleCheck() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)

	newer, err := schema.Check(ctx, conn)
	switch {
	case errors.Is(err, schema.ErrNotInstalled), errors.Is(err, schema.ErrBehind):
		log.Fatal(err) // it says what to run
	case err != nil:
		log.Fatal(err)
	case newer:
		log.Print("the schema is newer than this program, and works with it")
	}
}
