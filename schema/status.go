package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotInstalled says that the database has no schema deed.
var ErrNotInstalled = errors.New("the schema deed is not installed in this database; run: deed migrate up")

// ErrBehind says that the database lacks migrations or functions that this
// program needs.
var ErrBehind = errors.New("the schema deed is older than this program; run: deed migrate up")

// ErrAhead says that a newer program has made a breaking change.
var ErrAhead = errors.New("the schema deed has a breaking change that this program does not know; upgrade the program")

// State is one migration, as [Status] sees it.
type State struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Breaking  bool   `json:"breaking"`
	AppliedAt string `json:"applied_at,omitempty"` // RFC 3339; empty: not applied
	Known     bool   `json:"known"`                // this program has it
	number    int    // of the functions
}

// Querier is what reads need: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Status lists what is applied and what is not, in order. An empty database
// has everything still to come.
func Status(ctx context.Context, q Querier) ([]State, error) {
	migrations, err := Migrations()
	if err != nil {
		return nil, err
	}
	var states []State
	for _, m := range migrations {
		states = append(states, State{Version: m.Version, Name: m.Name, Breaking: m.Breaking, Known: true})
	}
	applied, err := readApplied(ctx, q)
	if errors.Is(err, ErrNotInstalled) {
		return states, nil
	}
	if err != nil {
		return nil, err
	}
	for _, a := range applied {
		if a.Version == 0 {
			continue
		}
		if a.Version <= len(states) {
			states[a.Version-1].AppliedAt = a.AppliedAt
			continue
		}
		states = append(states, a)
	}
	return states, nil
}

func readApplied(ctx context.Context, q Querier) ([]State, error) {
	rows, err := q.Query(ctx, `
		select version, name, breaking, to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
		  coalesce((to_jsonb(m) ->> 'number')::int, 0) -- the column came later
		from deed.migrations m
		order by version
	`)
	if err == nil {
		var states []State
		states, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
			var s State
			err := row.Scan(&s.Version, &s.Name, &s.Breaking, &s.AppliedAt, &s.number)
			return s, err
		})
		if err == nil {
			return states, nil
		}
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code {
		case "42P01", "3F000": // no such table, no such schema
			return nil, ErrNotInstalled
		case "42501":
			return nil, fmt.Errorf("this login may not read the schema deed; grant it deed_app, deed_worker or deed_admin: %w", err)
		}
	}
	return nil, fmt.Errorf("schema: read deed.migrations: %w", err)
}

// Check says whether this program can work with the installed schema. newer
// is true when the database has compatible migrations, or functions, that the
// program does not know. Errors: [ErrNotInstalled], [ErrBehind], [ErrAhead].
func Check(ctx context.Context, q Querier) (newer bool, err error) {
	migrations, err := Migrations()
	if err != nil {
		return false, err
	}
	applied, err := readApplied(ctx, q)
	if err != nil {
		return false, err
	}
	have := map[int]State{}
	for _, a := range applied {
		have[a.Version] = a
	}
	for _, m := range migrations {
		if _, ok := have[m.Version]; !ok {
			return false, fmt.Errorf("%w (it lacks %s)", ErrBehind, m.Name)
		}
		delete(have, m.Version)
	}
	if _, ok := have[0]; !ok {
		return false, fmt.Errorf("%w (it lacks the functions)", ErrBehind)
	}
	if installed := have[0].number; installed < number() {
		return false, fmt.Errorf("%w (its functions are those of number %d, and this program's of %d)", ErrBehind, installed, number())
	}
	newer = have[0].number > number()
	delete(have, 0)
	for _, a := range applied { // the first
		if _, unknown := have[a.Version]; unknown && a.Breaking {
			return true, fmt.Errorf("%w (%s)", ErrAhead, a.Name)
		}
	}
	return newer || len(have) > 0, nil
}
