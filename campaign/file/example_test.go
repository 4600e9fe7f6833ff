package file_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/campaign/file"
)

// A campaign from its file to the people of a CSV: checked first, and deployed then.
func Example() {
	ctx := context.Background()
	deploy := func(pool *pgxpool.Pool) error {
		f, err := file.Read("spring.yaml")
		if err != nil {
			return err // all that is wrong with it
		}
		in, err := os.Open("people.csv")
		if err != nil {
			return err
		}
		defer in.Close()
		people, err := f.Read(ctx, in, "people.csv", "")
		if err != nil {
			return err
		}
		defer people.Close()
		opts := file.Options{Source: people}
		if _, err := f.Check(ctx, pool, opts); err != nil {
			return err
		}
		d, err := f.Deploy(ctx, pool, opts)
		if err == nil {
			fmt.Println("run", d.Run)
		}
		return err
	}
	_ = deploy
}
