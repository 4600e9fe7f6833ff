package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/importer"
)

// importShare is how many contacts a file has: ten times as many as a call.
func importShare(messages int) int { return 10 * messages }

// importBatch is how many rows of a file are a transaction, as deed contacts import has it.
const importBatch = 1000

// contacts measures how fast people are made who are new, and found who are known, in
// one call; and how fast a file of many is read, which is cut off in the middle and gone
// on with.
func contacts(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	n := e.opts.messages
	persons := make([]contact.Person, n)
	for i := range persons {
		persons[i] = contact.Person{
			Identities: []contact.Identity{{Type: "email", Value: fmt.Sprintf("person%d@example%d.com", i, i%50)}},
			Data:       fmt.Appendf(nil, `{"name": "Person %d", "city": "Lyon"}`, i),
		}
	}
	for _, pass := range []struct {
		metric string
		want   contact.Outcome
	}{{"made in a call", contact.Created}, {"known, in a call", contact.Unchanged}} {
		began := time.Now()
		list, err := contact.Upsert(ctx, pool, "bench", persons...)
		if err != nil {
			return err
		}
		e.record(pass.metric, "contacts/s", float64(n)/time.Since(began).Seconds())
		got := 0
		for _, u := range list {
			if u.Outcome == pass.want {
				got++
			}
		}
		e.expect(pass.metric, got, n)
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	return importing(ctx, e, pool, importShare(n))
}

// importing reads a file of n rows, half of it and then the rest.
func importing(ctx context.Context, e *env, pool *pgxpool.Pool, n int) error {
	half, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	tally, err := readPeople(half, pool, n, importer.ContactOptions{}, importer.UpsertOptions{Batch: importBatch, Progress: func(t importer.ContactTally) {
		if t.Created >= n/2 {
			stop()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the import was not cut off in the middle: %d made, %w", tally.Created, err)
	}
	rest, err := readPeople(ctx, pool, n, importer.ContactOptions{FromLine: tally.NextLine}, importer.UpsertOptions{Batch: importBatch})
	if err != nil {
		return err
	}
	e.record("imported from CSV", "contacts/s", float64(n)/time.Since(began).Seconds())
	e.expect("imported", tally.Created+rest.Created, n)
	e.expect("imported and known before", tally.Stored()+rest.Stored(), n)
	var stored int
	if err := e.owner.QueryRow(ctx, `select count(*) from deed.contacts`).Scan(&stored); err != nil {
		return err
	}
	e.expect("contacts in the database", stored, n+e.opts.messages)
	return nil
}

// readPeople imports a CSV file that is written while it is read.
func readPeople(ctx context.Context, pool *pgxpool.Pool, n int, opts importer.ContactOptions, upsert importer.UpsertOptions) (importer.ContactTally, error) {
	in, out := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, err := io.WriteString(out, "email,zone,data.name,data.city\n")
		for i := 0; i < n && err == nil; i++ {
			_, err = fmt.Fprintf(out, "reader%d@example%d.com,Europe/Paris,Reader %d,Lyon\n", i, i%50, i)
		}
		out.CloseWithError(err) // nil: the end of the file
	}()
	defer func() {
		in.Close() // ends the writer
		<-written
	}()
	opts.Format = "csv"
	rows, err := importer.NewContacts(in, "people.csv", opts)
	if err != nil {
		return importer.ContactTally{}, err
	}
	return importer.Upsert(ctx, pool, rows, upsert)
}
