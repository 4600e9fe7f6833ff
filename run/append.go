package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// New is an event that is to be appended.
type New struct {
	// Run is the run's id. Required.
	Run string
	// Type is one of a step. Required.
	Type Type
	// Step is the step's id, at most 200 characters. Required.
	Step string
	// Attempt is the logical one, from 1. Required.
	Attempt int
	// EngineAttempt counts the engine's own retries, from 1. Default: not known.
	EngineAttempt int
	// EmittedAt is when it happened, in the years 1970 to 9999. Default: now.
	EmittedAt time.Time
	// Data is a JSON object of at most 64 KiB; that of [StepCompleted] and [StepFailed] has
	// "started_at", in RFC 3339. Default: {}.
	Data json.RawMessage
	// Signal is the id of the signal that caused it. Default: none.
	Signal string
	// Parent is the id of the event that it follows from. Default: none.
	Parent string
}

// Appended is what became of an event.
type Appended struct {
	Seq int64
	ID  string
	// Repeated: the event was in the log, by what it says (R3); nothing was stored, and Seq
	// and ID are the first one's.
	Repeated bool
}

// Append appends events of steps to the logs of their runs, in the order given, in db's
// transaction, all of them or none; adapter is the version of whoever appends, or "". The
// start of a step whose end comes without one is appended before it. For workers: it needs
// deed_worker. The runs are locked until db's transaction ends, so append last.
//
// Errors: [deed.Invalid] for an event that is wrong in itself, [deed.NotFound] for an
// unknown run, [deed.Forbidden] for another tenant's, [deed.Conflict] for an event that its run
// does not take, such as one after its end, or one of a step of its plan, which the engine records that has the run. Of one
// bad event nothing tells the others: split the batch.
func Append(ctx context.Context, db deed.DB, adapter string, events ...New) ([]Appended, error) {
	if len(events) == 0 {
		return nil, nil
	}
	var a columns
	for i, e := range events {
		if err := a.add(e); err != nil {
			return nil, invalidf(opAppend, "event %d: %w", i+1, err)
		}
	}
	rows, err := db.Query(ctx, query.Append, a.args(adapter)...)
	var list []Appended
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Appended])
	}
	return list, wrap(opAppend, err)
}

// columns are events as the function takes them.
type columns struct {
	runs, types, steps, data, signals, parents []*string
	attempts, engineAttempts                   []*int
	emittedAt                                  []*time.Time
}

// Between them an event may have happened; read-only.
var earliest, latest = time.Unix(0, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)

func (a *columns) add(e New) error {
	err := errors.Join(checkID("run", e.Run), checkOptionalID("signal", e.Signal), checkOptionalID("parent", e.Parent),
		sqlvalue.Count("logical attempt", e.Attempt, 1), sqlvalue.Count("engine attempt", e.EngineAttempt, 0))
	if !e.EmittedAt.IsZero() && (e.EmittedAt.Before(earliest) || !e.EmittedAt.Before(latest)) { // the driver would make another time of some
		err = errors.Join(err, errors.New("emitted at: it is not of the years 1970 to 9999"))
	}
	if len(e.Data) > 0 {
		err = errors.Join(err, checkJSON("data", e.Data))
	}
	if err != nil {
		return err
	}
	a.runs = append(a.runs, &e.Run)
	a.types = append(a.types, (*string)(&e.Type))
	a.steps = append(a.steps, nonZero(e.Step))
	a.attempts = append(a.attempts, &e.Attempt)
	a.engineAttempts = append(a.engineAttempts, nonZero(e.EngineAttempt))
	a.emittedAt = append(a.emittedAt, nonZero(e.EmittedAt))
	a.data = append(a.data, nonZero(string(e.Data)))
	a.signals = append(a.signals, nonZero(e.Signal))
	a.parents = append(a.parents, nonZero(e.Parent))
	return nil
}

// args are the arguments of the statements that append.
func (a *columns) args(adapter string) []any {
	return []any{a.runs, a.types, a.steps, a.attempts, a.engineAttempts, a.emittedAt, a.data, a.signals, a.parents, sqlvalue.NullIfZero(adapter)}
}

// nonZero is a pointer to v; nil, which is null, for its zero value.
func nonZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
