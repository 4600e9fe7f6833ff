package delivery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// Redrive selects failed and dead deliveries to put back; zero fields select
// all. Those of a run are left out, as a run is retried as a new one, and so are those
// that were proved to have been accepted and those of who was erased. Its act must say who and why.
type Redrive struct {
	audit.Act

	Statuses []Status // of Failed and Dead. Default: Dead
	Provider string
	Tenant   *tenant.ID
	Error    string        // part of the last error, in any case of letters
	Since    time.Duration // they have ended so for this long at most
	Limit    int           // at most so many; default: no limit
	Rate     int           // at most so many a second; default: no cap

	// Request names the request. Repeating it goes on where it was cut off, and
	// does nothing once it is done. It is listed and cancelled as those for
	// messages are ([github.com/deedhq/deed/admin.Client.Redrives]). Default: a new name.
	Request string

	// Progress, if not nil, is told after each step how many were put back.
	Progress func(redriven, chosen int64)
}

func (r *Redrive) args(op string, dry bool) ([]any, error) {
	if len(r.Statuses) == 0 {
		r.Statuses = []Status{Dead}
	}
	names := make([]string, len(r.Statuses))
	for i, s := range r.Statuses {
		if s != Failed && s != Dead {
			return nil, invalidf(op, "deliveries that are %s are not put back; failed and dead ones are", s)
		}
		names[i] = string(s)
	}
	if r.Since < 0 {
		return nil, invalidf(op, "since %s is negative", r.Since)
	}
	if err := cmp.Or(checkCount(op, "limit", r.Limit, 0), checkCount(op, "rate", r.Rate, 0)); err != nil {
		return nil, err
	}
	slices.Sort(names)
	var owner any
	if r.Tenant != nil {
		owner = r.Tenant.String()
	}
	var since *float64
	if r.Since > 0 {
		v := r.Since.Seconds()
		since = &v
	}
	return []any{r.Request, slices.Compact(names), sqlvalue.NullIfZero(r.Provider), owner, sqlvalue.NullIfZero(r.Error), since, sqlvalue.NullIfZero(r.Limit), sqlvalue.NullIfZero(r.Rate), r.By, r.Reason, dry}, nil
}

// CountRedrive counts what r would put back now, up to 100,000 and among
// 200,000 that have ended so; more says that there may be more. Nothing changes.
// Needs deed_admin.
func (l *Ledger) CountRedrive(ctx context.Context, r Redrive) (n int64, more bool, err error) {
	args, err := r.args("count deliveries to retry", true)
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var state string
	var chosen, redriven int64
	var wait float64
	err = l.pool.QueryRow(ctx, query.Redrive, args...).Scan(&state, &chosen, &redriven, &wait)
	return chosen, state == "partly", deed.WrapError("count deliveries to retry", err)
}

// Redrive puts failed and dead deliveries back, with their attempts at 0, in
// short transactions, and returns how many the request has put back; their keys
// and requests stay as they are. When ctx ends, or the process, it stops between
// two of them: the same request again goes on. Errors: [deed.Conflict] for a
// request that was for something else or was cancelled, [deed.Invalid]. Needs
// deed_admin.
func (l *Ledger) Redrive(ctx context.Context, r Redrive) (redriven int64, err error) {
	const op = "retry deliveries"
	if r.Request == "" {
		r.Request = idempotency.NewRequest()
	}
	args, err := r.args(op, false)
	if err != nil {
		return 0, err
	}
	defer func() {
		if redriven == 0 {
			return
		}
		l.opts.Logger.Info("deliveries put back by a person", "count", redriven, "request", r.Request, "actor", r.By)
	}()
	for {
		var state string
		var chosen int64
		var wait float64
		bounded, cancel := l.deadline(ctx)
		err := l.pool.QueryRow(bounded, query.Redrive, args...).Scan(&state, &chosen, &redriven, &wait)
		cancel()
		if err != nil {
			return redriven, deed.WrapError(op, err)
		}
		if r.Progress != nil {
			r.Progress(redriven, chosen)
		}
		switch state {
		case "done":
			return redriven, nil
		case "cancelled":
			return redriven, &deed.Error{Op: op, Code: deed.Conflict, Err: fmt.Errorf("the request %q was cancelled after %d deliveries", r.Request, redriven)}
		}
		if wait > 0 && !work.Sleep(ctx, time.Duration(wait*float64(time.Second))) {
			return redriven, deed.WrapError(op, fmt.Errorf("stopped after %d deliveries: %w", redriven, context.Cause(ctx)))
		}
	}
}
