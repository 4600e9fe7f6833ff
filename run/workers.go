package run

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// Worker is a process that does steps of runs, as it says itself every few seconds.
type Worker struct {
	Name string `json:"worker"`
	// Queues are those that it claims steps from: go:NAME@VERSION is a version of a Go function, go:HANDLER a handler,
	// external:NAME a queue of workers in other languages, deed all else.
	Queues    []string  `json:"queues"`
	StartedAt time.Time `json:"started_at"`
	SeenUntil time.Time `json:"seen_until"`
}

// Workers returns the workers that are there, and what each serves. For workers and operators.
func Workers(ctx context.Context, db deed.DB) ([]Worker, error) {
	return listOf[Worker](ctx, db, "list workers of runs", query.Workers)
}

// UnservedQueue is a queue in which steps are due and that no worker serves.
type UnservedQueue struct {
	Queue string `json:"queue"`
	// Steps is how many are due and in nobody's hands, up to 10,000, and Oldest since when the oldest is.
	Steps  int       `json:"steps"`
	Oldest time.Time `json:"oldest"`
}

// Unserved returns the queues in which steps are due and that no worker serves, those first that have waited for longest: of a
// version of a function that was taken away too early, say. For workers and operators.
func Unserved(ctx context.Context, db deed.DB) ([]UnservedQueue, error) {
	return listOf[UnservedQueue](ctx, db, "list what no worker serves", query.Unserved)
}

func listOf[T any](ctx context.Context, db deed.DB, op, sql string) ([]T, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	return list, wrap(op, err)
}
