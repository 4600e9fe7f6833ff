package importer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/importer"
)

// A file is published, 1,000 rows a transaction. With an IDField it may be given
// again: what was published is not published twice.
func ExamplePublish() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	file, err := os.Open("orders.csv")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()

	rows, err := importer.New(file, file.Name(), importer.Options{Topic: "orders", KeyField: "customer", IDField: "id"})
	if err != nil {
		log.Fatal(err)
	}
	tally, err := importer.Publish(ctx, pool, rows, importer.PublishOptions{
		Rejected: func(bad *importer.LineError) { log.Print(bad) },
	})
	log.Printf("%+v", tally)
	if err != nil {
		log.Fatal(err)
	}
}

// What a line becomes, and what becomes of a bad one.
func ExampleReader_Next() {
	file := "id,customer\n1,ada\n2\n3,bob\n"
	rows, err := importer.New(strings.NewReader(file), "orders.csv", importer.Options{Topic: "orders", KeyField: "customer"})
	if err != nil {
		log.Fatal(err)
	}
	for {
		m, line, err := rows.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if bad, ok := errors.AsType[*importer.LineError](err); ok {
			fmt.Println(bad)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(line, m.Key, string(m.Payload))
	}
	// Output:
	// 2 ada {"id":"1","customer":"ada"}
	// line 3: 1 fields, but the header has 2
	// 4 bob {"id":"3","customer":"bob"}
}
