package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Status is where a run is.
type Status string

// The statuses of runs.
const (
	Queued    Status = "queued"
	Running   Status = "running"
	Completed Status = "completed"
	Partial   Status = "partial"
	Failed    Status = "failed"
)

// Run is a run of a campaign.
type Run struct {
	ID           string     `json:"run_id"`
	Tenant       tenant.ID  `json:"tenant_id"`
	Workspace    tenant.ID  `json:"workspace_id"`
	Campaign     string     `json:"campaign_id"`
	Name         string     `json:"campaign"`
	Status       Status     `json:"status"`
	Channel      Channel    `json:"channel"`
	Provider     string     `json:"provider"`
	Purpose      string     `json:"purpose,omitempty"`
	From         string     `json:"-"` // of e-mails; proofs have no address
	RequestID    string     `json:"request_id"`
	Audience     string     `json:"audience_id"`
	Content      string     `json:"content_id"`
	Members      int64      `json:"members"`
	CreatedAt    time.Time  `json:"created_at"`
	ScheduledFor time.Time  `json:"scheduled_for"`
	ExpiresAt    time.Time  `json:"expires_at"`
	StartedAt    *time.Time `json:"started_at,omitempty"`
	PausedAt     *time.Time `json:"paused_at,omitempty"`
	PausedWhy    string     `json:"paused_why,omitempty"` // it has paused itself ([PauseOn])
	CancelledAt  *time.Time `json:"cancelled_at,omitempty"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	RetryOf      string     `json:"retry_of,omitempty"` // the run that it tries again ([Retry])
	// SealedAt is since when its deliveries are being removed, as its retention is over, and PurgedAt since when
	// they are gone; what is said of it since is what was known then.
	SealedAt *time.Time `json:"sealed_at,omitempty"`
	PurgedAt *time.Time `json:"purged_at,omitempty"`
	// LastDue is when the last of its members is due, where that goes by their zones.
	LastDue *time.Time `json:"last_due,omitempty"`
	Window
	PauseOn *PauseOn `json:"pause_on,omitempty"` // as it was asked for
	// Variants are the names of those that it has, in order.
	Variants []string `json:"variants,omitempty"`
	// Test is of a run of which a part gets the variants first; nil: there is none.
	Test *TestOf `json:"test,omitempty"`
}

// TestOf is a run's test, and what came of it.
type TestOf struct {
	By    By      `json:"by"`
	Share float64 `json:"share"`
	// Wait is for how many seconds clicks or complaints are waited for.
	Wait float64 `json:"wait_seconds,omitempty"`
	// Winner is what the rest gets, since WinnerAt; "": that is not decided.
	Winner   string     `json:"winner,omitempty"`
	WinnerAt *time.Time `json:"winner_at,omitempty"`
}

// Window is when and how fast a run goes, as it was asked for ([Request]).
type Window struct {
	LocalTime  string `json:"local_time,omitempty"`
	IfPassed   string `json:"if_passed,omitempty"`
	QuietHours string `json:"quiet_hours,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Rate       string `json:"rate,omitempty"`
	Ramp       string `json:"ramp,omitempty"` // as the database has it
}

// Filter chooses runs; zero fields choose all.
type Filter struct {
	Tenant   *tenant.ID
	Campaign string // its name
	Status   Status
	Cursor   string // [page.Of.Next] of the page before
	Limit    int    // default 100
}

// List returns the runs that db may see, newest first. Errors: [deed.Invalid].
func List(ctx context.Context, db deed.DB, f Filter) (list page.Of[Run], err error) {
	const op = "list runs of campaigns"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	if f.Cursor != "" && checkID("", f.Cursor) != nil {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	if f.Status != "" && !slices.Contains([]Status{Queued, Running, Completed, Partial, Failed}, f.Status) {
		return list, invalidf(op, "status %q is none of a run's", errortext.Clip(string(f.Status)))
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	list.Items, err = runs(ctx, db, query.Runs, sqlvalue.NullIfZero(f.Cursor), owner, sqlvalue.NullIfZero(string(f.Status)), sqlvalue.NullIfZero(f.Campaign), f.Limit)
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
		var owner, space string
		var test TestOf
		err = row.Scan(&r.ID, &owner, &space, &r.Campaign, &r.Name, &r.Status, &r.Channel, &r.Provider, &r.Purpose, &r.RequestID, &r.Audience, &r.Content, &r.Members,
			&r.CreatedAt, &r.ScheduledFor, &r.ExpiresAt, &r.StartedAt, &r.PausedAt, &r.CancelledAt, &r.FinishedAt, &r.RetryOf,
			&r.LastDue, &r.LocalTime, &r.IfPassed, &r.QuietHours, &r.Zone, &r.Rate, &r.Ramp, &r.PausedWhy, &r.PauseOn,
			&r.Variants, &test.By, &test.Share, &test.Wait, &test.Winner, &test.WinnerAt, &r.From, &r.SealedAt, &r.PurgedAt)
		if test.By != "" {
			r.Test = &test
		}
		if err == nil {
			r.Tenant, err = tenant.Parse(owner)
		}
		if err == nil {
			r.Workspace, err = tenant.Parse(space)
		}
		return r, err
	})
}

// Find returns a run. Errors: [deed.NotFound], also for another tenant's; [deed.Invalid].
func Find(ctx context.Context, db deed.DB, id string) (Run, error) {
	const op = "find run of a campaign"
	if err := checkID("run", id); err != nil {
		return Run{}, invalidf(op, "%w", err)
	}
	list, err := runs(ctx, db, query.Run, id)
	if err != nil {
		return Run{}, wrap(op, err)
	}
	if len(list) == 0 {
		return Run{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no run of a campaign %s", id)}
	}
	return list[0], nil
}

// Progress is what has become of a run's members so far.
type Progress struct {
	Waiting int64 `json:"waiting"` // their job is not expanded, and has not ended
	Lost    int64 `json:"lost"`    // their job is dead without having been expanded
	Queued  int64 `json:"queued"`
	Sending int64 `json:"sending"` // in doubt, too
	InDoubt int64 `json:"in_doubt"`
	Held    int64 `json:"held"` // those in doubt that wait for a person
	Sent    int64 `json:"sent"` // called and posted, too
	Skipped int64 `json:"skipped"`
	Missed  int64 `json:"missed"` // skipped since it was cancelled or has expired
	Failed  int64 `json:"failed"`
	Dead    int64 `json:"dead"`
}

// Reason counts members that have the same one.
type Reason struct {
	Status string `json:"status"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// Wait is why of what a run has queued nothing goes now, or no faster.
type Wait struct {
	// Why is quiet hours, local time, winner (of the test), tried again (what failed for now), scheduled, provider paused, or rate.
	Why   string     `json:"why"`
	Until *time.Time `json:"until,omitempty"` // nil: it goes, at Rate, or a person decides
	// LocalTime is Until by the clock of Zone, that of most of them, and of Zones others.
	LocalTime string `json:"local_time,omitempty"`
	Zone      string `json:"zone,omitempty"`
	Zones     int64  `json:"zones,omitempty"`
	// Deliveries is how many wait so, counted among the next 10,000 of the tenant's, and beyond those in ten of the run's jobs.
	Deliveries int64 `json:"deliveries,omitempty"`
	// Rate is how many go a second at the most by now.
	Rate float64 `json:"rate,omitempty"`
}

// Shown is a run, what has become of it, and why of those that did not get it.
type Shown struct {
	Run
	Progress Progress `json:"progress"`
	Reasons  []Reason `json:"reasons"`
	Waits    []Wait   `json:"waits"` // why nothing goes, the nearest first
}

// Show returns a run as it is. A run of many members is not counted anew each time: what has
// become of those of jobs that are under way is up to a minute old, of a run of a million up to two, but for five jobs. Errors: as [Find].
func Show(ctx context.Context, db deed.DB, id string) (s Shown, err error) {
	const op = "show run of a campaign"
	if s.Run, err = Find(ctx, db, id); err != nil {
		return s, err
	}
	rows, err := db.Query(ctx, query.Progress, id)
	if err == nil {
		s.Progress, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (p Progress, err error) {
			var reasons string
			if err := row.Scan(&p.Waiting, &p.Lost, &p.Queued, &p.Sending, &p.InDoubt, &p.Held, &p.Sent, &p.Skipped, &p.Missed, &p.Failed, &p.Dead, &reasons); err != nil {
				return p, err
			}
			return p, json.Unmarshal([]byte(reasons), &s.Reasons)
		})
	}
	if err == nil {
		if rows, err = db.Query(ctx, query.Waits, id); err == nil {
			s.Waits, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Wait])
		}
	}
	return s, wrap(op, err)
}

// Traced is a delivery of a run, or a job of it that has none: the seed's trace from the run
// to the provider's message id, joined by the job.
type Traced struct {
	RunStatus    Status `json:"run_status"`
	Job          string `json:"job_id"`
	JobStatus    string `json:"job_status"`
	Attempts     int    `json:"attempts"` // of its expansion
	JobError     string `json:"job_error,omitempty"`
	Delivery     string `json:"delivery_id,omitempty"`
	Status       string `json:"delivery_status,omitempty"`
	Contact      string `json:"contact_id,omitempty"`
	Reason       string `json:"reason,omitempty"`
	ProviderID   string `json:"provider_message_id,omitempty"`
	Variant      string `json:"variant,omitempty"` // none of who was erased
	n            int64
	afterOfThose string
}

// Trace returns up to limit rows of a run's trace that come after a cursor, in order, and the
// next cursor, "" after the last. Errors: as [Find].
func Trace(ctx context.Context, db deed.DB, id, cursor string, limit int) (list page.Of[Traced], err error) {
	const op = "trace run of a campaign"
	if err := sqlvalue.Count("limit", limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	if _, err := Find(ctx, db, id); err != nil {
		return list, err
	}
	var n int64
	after := "00000000-0000-0000-0000-000000000000"
	if cursor != "" {
		if got, err := fmt.Sscanf(cursor, "%d/%s", &n, &after); got != 2 || err != nil || checkID("", after) != nil {
			return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(cursor))
		}
	}
	rows, err := db.Query(ctx, query.Trace, id, n, after, limit)
	if err == nil {
		list.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Traced, err error) {
			return t, row.Scan(&t.RunStatus, &t.n, &t.Job, &t.JobStatus, &t.Attempts, &t.JobError, &t.Delivery, &t.Status, &t.Contact, &t.Reason, &t.ProviderID, &t.Variant, &t.afterOfThose)
		})
	}
	if err != nil {
		return page.Of[Traced]{}, wrap(op, err)
	}
	if len(list.Items) == limit {
		last := list.Items[limit-1]
		list.Next = fmt.Sprintf("%d/%s", last.n, last.afterOfThose)
	}
	return list, nil
}
