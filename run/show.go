package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Run is a run as it was asked for, and where it is.
type Run struct {
	ID          string     `json:"run_id"`
	Tenant      tenant.ID  `json:"tenant_id"`
	Project     string     `json:"project"`
	Environment string     `json:"environment"`
	Plan        string     `json:"plan_id"`
	Version     string     `json:"plan_version"`
	Engine      string     `json:"engine"`
	Status      Status     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	FinishedAt  *time.Time `json:"finished_at,omitempty"`
	RedactedAt  *time.Time `json:"redacted_at,omitempty"` // since when what people put into it is gone
	Original    string     `json:"original_run_id,omitempty"`
	Parent      string     `json:"parent_run_id,omitempty"`
	ParentStep  string     `json:"parent_step_id,omitempty"`
	// StaleSince is since when an event is missing that the projector waits for (R7).
	StaleSince *time.Time `json:"stale_since,omitempty"`
	// Differing counts repeats of events whose data said something else.
	Differing int `json:"differing,omitempty"`
}

// Filter chooses runs; zero fields choose all.
type Filter struct {
	Tenant               *tenant.ID
	Status               Status
	Plan                 string
	Project, Environment string
	Stale                bool          // only those that miss an event
	Unserved             bool          // only those with a step that is due and that no worker serves ([Unserved]); for workers and operators
	Since                time.Duration // only those that were asked for at most so long ago; not negative
	Cursor               string        // [page.Of.Next] of the page before
	Limit                int           // default 100
}

// List returns the runs that db may see, newest first. Errors: [deed.Invalid].
func List(ctx context.Context, db deed.DB, f Filter) (list page.Of[Run], err error) {
	const op = "list runs"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	if checkOptionalID("", f.Cursor) != nil {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	if f.Since < 0 {
		return list, invalidf(op, "since %s is negative", f.Since)
	}
	if f.Status != "" && !slices.Contains(statuses[:], f.Status) {
		return list, invalidf(op, "status %q is none of a run's", errortext.Clip(string(f.Status)))
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	var queues []string
	if f.Unserved {
		unserved, err := Unserved(ctx, db)
		if err != nil || len(unserved) == 0 {
			return list, err
		}
		for _, u := range unserved {
			queues = append(queues, u.Queue)
		}
	}
	list.Items, err = runs(ctx, db, query.List, sqlvalue.NullIfZero(f.Cursor), owner, sqlvalue.NullIfZero(string(f.Status)), sqlvalue.NullIfZero(f.Plan),
		sqlvalue.NullIfZero(f.Project), sqlvalue.NullIfZero(f.Environment), f.Stale, sqlvalue.NullIfZero(f.Since.Seconds()), f.Limit, queues)
	if err != nil {
		return page.Of[Run]{}, wrap(op, err)
	}
	if len(list.Items) == f.Limit {
		list.Next = list.Items[f.Limit-1].ID
	}
	return list, nil
}

func runs(ctx context.Context, db deed.DB, sql string, args ...any) ([]Run, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Run, err error) {
		var owner string
		if err = row.Scan(&r.ID, &owner, &r.Project, &r.Environment, &r.Plan, &r.Version, &r.Engine, &r.Status, &r.CreatedAt, &r.StartedAt, &r.FinishedAt,
			&r.RedactedAt, &r.Original, &r.Parent, &r.ParentStep, &r.StaleSince, &r.Differing); err == nil {
			r.Tenant, err = tenant.Parse(owner)
		}
		return r, err
	})
}

// Find returns a run as it was asked for, and its status. Errors: [deed.NotFound], also for
// another tenant's; [deed.Invalid].
func Find(ctx context.Context, db deed.DB, id string) (Run, error) {
	const op = "find run"
	if err := checkID("run", id); err != nil {
		return Run{}, invalidf(op, "%w", err)
	}
	list, err := runs(ctx, db, query.Run, id)
	if err != nil {
		return Run{}, wrap(op, err)
	}
	if len(list) == 0 {
		return Run{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no run %s", id)}
	}
	return list[0], nil
}

// Shown is a run and what it is by its events.
type Shown struct {
	Run
	Snapshot Snapshot `json:"snapshot"`
}

// Show returns a run as it is after its newest event: it reads the newest snapshot and
// applies what came after it, so it is never behind. With seq above 0 it is the run as it
// was after that event. Errors: [deed.NotFound], also for an event that the run does not
// have; [deed.Invalid]; a [*GapError] where an event is missing.
func Show(ctx context.Context, db deed.DB, id string, seq int64) (s Shown, err error) {
	const op = "show run"
	if seq < 0 {
		return s, invalidf(op, "event %d: they count from 1", seq)
	}
	if s.Run, err = Find(ctx, db, id); err != nil {
		return s, err
	}
	if s.Snapshot, err = newest(ctx, db, id, seq); err != nil {
		return s, wrap(op, err)
	}
	for {
		events, err := Events(ctx, db, id, s.Snapshot.LastEventSeq, eventsAtOnce)
		if err != nil {
			return s, err
		}
		last := len(events) < eventsAtOnce
		if n := slices.IndexFunc(events, func(e Event) bool { return e.Seq >= seq }); seq > 0 && n >= 0 {
			events, last = events[:n+1], true // where it is missing, the one after it says so
		}
		if seq == 0 || s.Snapshot.LastEventSeq < seq {
			if s.Snapshot, err = s.Snapshot.Apply(events...); err != nil {
				return s, err
			}
		}
		if last {
			break
		}
	}
	if s.Snapshot.RunID = s.ID; seq > s.Snapshot.LastEventSeq {
		return s, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("run %s has no event %d; its last one is %d", id, seq, s.Snapshot.LastEventSeq)}
	}
	return s, nil
}

// eventsAtOnce bounds how many events are read in one statement.
const eventsAtOnce = 1000

// newest is a run's newest stored snapshot, up to seq if that is above 0; the zero value
// where there is none.
func newest(ctx context.Context, db deed.DB, id string, seq int64) (s Snapshot, err error) {
	rows, err := db.Query(ctx, query.Newest, id, sqlvalue.NullIfZero(seq))
	if err != nil {
		return s, err
	}
	text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if errors.Is(err, pgx.ErrNoRows) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

// Events returns up to limit events of a run that come after number after, in order; none
// for a run that db does not see. Errors: [deed.Invalid].
func Events(ctx context.Context, db deed.DB, id string, after int64, limit int) ([]Event, error) {
	const op = "events of run"
	if err := errors.Join(checkID("run", id), sqlvalue.Count("limit", limit, 1)); err != nil {
		return nil, invalidf(op, "%w", err)
	} else if after < 0 {
		return nil, invalidf(op, "after event %d: they count from 1", after)
	}
	rows, err := db.Query(ctx, query.Events, id, after, limit)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, scanEvent)
	return list, wrap(op, err)
}

func scanEvent(row pgx.CollectableRow) (e Event, err error) {
	var run uuid.UUID
	err = row.Scan((*[16]byte)(&run), &e.Seq, &e.ID, &e.Type, &e.Step, &e.Attempt, &e.EngineAttempt, (*[]byte)(&e.Data), &e.Key, &e.EmittedAt, &e.PersistedAt,
		&e.AdapterVersion, (*[]byte)(&e.EngineRunRef), &e.Signal, &e.Parent)
	e.RunID = run.String()
	e.EmittedAt, e.PersistedAt = e.EmittedAt.UTC(), e.PersistedAt.UTC()
	return e, err
}
