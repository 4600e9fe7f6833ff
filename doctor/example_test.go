package doctor_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/doctor"
)

// What is wrong with an installation, and what to do about it.
func ExampleExamine() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	findings, err := doctor.Examine(ctx, pool, doctor.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		if f.Level != doctor.OK {
			fmt.Println(f.Level, f.Name, f.Subject, f.Detail, f.Remedy)
		}
	}
}
