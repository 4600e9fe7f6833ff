package seal_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit/seal"
)

// The audit log is sealed, written to a file, and proved by who has but the file and the
// public key.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	key, err := seal.ParsePrivateKey(os.Getenv("AUDIT_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	sealer, err := seal.New(ctx, pool, key, seal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	go sealer.Run(ctx) // relays with audit.key in deed.yaml do this

	file, err := os.Create("audit.ndjson")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := seal.Export(ctx, pool, file); err != nil {
		log.Fatal(err)
	}
	if _, err := file.Seek(0, 0); err != nil {
		log.Fatal(err)
	}
	proved, err := seal.Check(file, seal.CheckOptions{Keys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}})
	fmt.Println(proved.Sealed, err)
}
