package tenant_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/tenant"
)

// A transaction that acts for a tenant sees and publishes that tenant's only.
func ExampleSet() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_app
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	acme, err := tenant.Parse("6f1c2d3e-0000-4000-8000-000000000001")
	if err != nil {
		log.Fatal(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := tenant.Set(ctx, tx, acme); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRow(ctx, `select count(*) from deed.log`).Scan(&n); err != nil {
			return err
		}
		fmt.Println(n, "messages of", acme)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A login that is bound sees its tenants, whatever it sets.
func ExampleBind() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_admin
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	acme, err := tenant.Parse("6f1c2d3e-0000-4000-8000-000000000001")
	if err != nil {
		log.Fatal(err)
	}

	if err := tenant.Add(ctx, pool, acme, "acme"); err != nil {
		log.Fatal(err)
	}
	_, err = tenant.Bind(ctx, pool, "acme_reports", []tenant.ID{acme}, audit.Act{By: "ann", Reason: "their own login"})
	if err != nil {
		log.Fatal(err)
	}
}

// An ID is a UUID, in either case; none is the default tenant's.
func ExampleParse() {
	id, err := tenant.Parse("6F1C2D3E-0000-4000-8000-000000000001")
	fmt.Println(id, err)
	fmt.Println(tenant.Default)
	// Output:
	// 6f1c2d3e-0000-4000-8000-000000000001 <nil>
	// 00000000-0000-0000-0000-000000000000
}
