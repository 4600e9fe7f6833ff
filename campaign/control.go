package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
)

// ErrUnconfirmed says that a run is paused, or cancelled, and stays so, but that attempts which began before that took longer to
// leave than they are waited for: what they write may begin still. Ask again: nothing begins once that succeeds.
var ErrUnconfirmed = errors.New("attempts that began before have not ended; ask again: nothing begins once that succeeds")

// Pause lets nothing of a run begin until [Resume]: once it has returned, nothing does but what
// is being sent, of which it returns how many deliveries there are. If db is a transaction, nothing is waited for, and
// what was being written when that commits may begin still: Pause again afterwards waits for it. Its
// jobs go on to be expanded, and the run does not expire meanwhile. Again is harmless. Errors:
// [ErrUnconfirmed], with which it is paused, after two seconds; [deed.NotFound]; [deed.Conflict] for a run that has
// ended or is cancelled; [deed.Forbidden] without a tenant.
func Pause(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) (sending int64, err error) {
	return hold(ctx, db, "pause run", query.Pause, scope, run, act)
}

// UnderWay is what of a run is being sent. What is held is in doubt, and waits for a person.
type UnderWay struct {
	Sending int64    `json:"sending"`            // not what is held
	InDoubt int64    `json:"in_doubt,omitempty"` // of these
	Held    int64    `json:"held,omitempty"`
	HeldIDs []string `json:"held_ids,omitempty"` // the first hundred, by their ids
}

// Sending looks at what of a run is being sent. Of one that is paused, that becomes less until
// nothing but what is held is left: [AwaitPaused] waits for that. Errors: as [Find].
func Sending(ctx context.Context, db deed.DB, run string) (UnderWay, error) {
	u, _, err := sending(ctx, db, run)
	return u, err
}

// sending says, too, whether the run begins nothing: it is paused or cancelled, or has ended.
func sending(ctx context.Context, db deed.DB, run string) (u UnderWay, still bool, err error) {
	const op = "what of a run is being sent"
	if err := checkID("run", run); err != nil {
		return u, false, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Sending, run)
	if err == nil {
		still, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (still bool, err error) {
			return still, row.Scan(&u.Sending, &u.InDoubt, &u.Held, &u.HeldIDs, &still)
		})
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return u, false, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no run of a campaign %s", run)}
	}
	return u, still, wrap(op, err)
}

// AwaitPaused waits until nothing of a run that [Pause] has paused, or [Cancel] cancelled, is being sent any more but
// what is held for a person, and returns that. look, if not nil, is called with each look
// at it. Whatever ends the wait, the run stays as it is. Errors: ctx's cause, with what was being sent at the last look;
// [deed.Conflict] if somebody resumes it meanwhile; as [Find].
func AwaitPaused(ctx context.Context, db deed.DB, run string, look func(UnderWay)) (u UnderWay, err error) {
	for {
		begun := time.Now()
		now, still, err := sending(ctx, db, run)
		if err != nil {
			return u, cmp.Or(context.Cause(ctx), err)
		}
		if u = now; !still {
			return u, &deed.Error{Op: "wait for a run to be paused", Code: deed.Conflict, Err: fmt.Errorf("run %s was resumed meanwhile", run)}
		}
		if look != nil {
			look(u)
		}
		if u.Sending == 0 {
			return u, nil
		}
		if !work.Sleep(ctx, max(100*time.Millisecond, 10*time.Since(begun))) {
			return u, context.Cause(ctx)
		}
	}
}

// Resume lets a run that is paused go on. Again is harmless. Errors: as [Pause], but [ErrUnconfirmed].
func Resume(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) error {
	_, err := control[any](ctx, db, "resume run", query.Resume, scope, run, act)
	return err
}

// Cancel ends a run: nothing of it begins any more, as of [Pause], but what is being sent, of
// which it returns how many deliveries there are. What is queued, and who was not reached, is skipped as
// cancelled by a [Worker]. There is no way back; [AwaitPaused] waits for what is being sent. Errors: as [Pause]; with [ErrUnconfirmed] it
// is cancelled.
func Cancel(ctx context.Context, db deed.DB, scope Scope, run string, act audit.Act) (sending int64, err error) {
	return hold(ctx, db, "cancel run", query.Cancel, scope, run, act)
}

// Winner has the rest of a run's members get this variant of its test, however that is decided
// else and however far it is. It is written once: it returns false for what had been said or decided before,
// and [deed.Conflict] where that was another one. Of a run that has ended without a winner it says what a retry
// brings. Errors: [deed.NotFound]; [deed.Invalid] for what is no variant; [deed.Conflict], too, for a
// run without a test, or that is being cancelled; [deed.Forbidden] without a tenant.
func Winner(ctx context.Context, db deed.DB, scope Scope, run, variant string, act audit.Act) (decided bool, err error) {
	const op = "choose winner of a run"
	if err := checkID("run", run); err != nil {
		return false, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Winner, run, variant, sqlvalue.NullIfZero(act.Reason), scope.tenant(), scope.by(act.By))
	if err == nil {
		decided, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
	return decided, wrap(op, err)
}

// RetryOptions say what [Retry] does. The zero value works.
type RetryOptions struct {
	// RequestID is the caller's own for this request: the same one asks for the same run.
	// Default: one that is made of the run.
	RequestID string
	// Missed has those tried again as well who were skipped since the run was cancelled or had
	// expired.
	Missed bool
}

// Retried is the run that a retry has made.
type Retried struct {
	Run     string
	New     bool  // false for a request that had made it before
	Members int64 // who is tried again
}

// Retry makes a run that tries again what failed of one that has ended, in db's transaction,
// and begins at once (C7). The old one stays as it was. Its audience are those whose delivery is
// dead, or failed for another reason than a bad address, or whose job is dead; never who was
// sent to, was skipped for a reason, or of whom it is not known whether it was done. A run is
// retried once; what fails of its retry, by retrying that. Errors: [deed.NotFound];
// [deed.Invalid] where nobody is to be tried again, or the provider is gone; [deed.Conflict]
// for a run that has not ended, or was retried by another request; [deed.Forbidden] without a
// tenant.
func Retry(ctx context.Context, db deed.DB, scope Scope, run string, opts RetryOptions, act audit.Act) (r Retried, err error) {
	const op = "retry run"
	if err := checkID("run", run); err != nil {
		return r, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Retry, run, cmp.Or(opts.RequestID, "retry of run "+run), opts.Missed, sqlvalue.NullIfZero(act.Reason), scope.tenant(), scope.by(act.By))
	if err == nil {
		r, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Retried])
	}
	return r, wrap(op, err)
}

// hold asks for the hold, and once it stands for how much is under way.
func hold(ctx context.Context, db deed.DB, op, sql string, scope Scope, run string, act audit.Act) (sending int64, err error) {
	sending, err = control[int64](ctx, db, op, sql, scope, run, act)
	if err != nil {
		// What waits for attempts says what to do; a lock_timeout of the caller's session, which has held nothing, does not.
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && sqlstate.Locked(err) && pg.Hint != "" {
			return 0, unconfirmed(op, run, err)
		}
		return 0, err
	}
	if _, open := db.(pgx.Tx); open {
		return sending, nil // nobody sees the hold before the commit: who waited for others would have it undone where they are slow
	}
	now, err := control[int64](ctx, db, op, sql, scope, run, act)
	switch {
	case deed.CodeOf(err) == deed.Conflict:
		return sending, nil // it has ended meanwhile, or was cancelled
	case sqlstate.Locked(err):
		return 0, unconfirmed(op, run, err)
	}
	return now, err
}

// unconfirmed is [ErrUnconfirmed] of a run, with what the server said behind it.
func unconfirmed(op, run string, err error) error {
	return &unconfirmedError{fmt.Sprintf("deed: %s: run %s is held and stays so, but %s", op, run, ErrUnconfirmed), err}
}

type unconfirmedError struct {
	text string
	err  error
}

func (e *unconfirmedError) Error() string   { return e.text }
func (e *unconfirmedError) Unwrap() []error { return []error{ErrUnconfirmed, e.err} }

func control[T any](ctx context.Context, db deed.DB, op, sql string, scope Scope, run string, act audit.Act) (answer T, err error) {
	if err := checkID("run", run); err != nil {
		return answer, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, sql, run, sqlvalue.NullIfZero(act.Reason), scope.tenant(), scope.by(act.By))
	if err == nil {
		answer, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	}
	return answer, wrap(op, err)
}
