package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// linked does what the buttons of links' pages say.
type linked struct {
	pool *pgxpool.Pool
	log  *slog.Logger
	room *work.Rooms // by tenant; the connections are the messages' of platforms, too
}

func newLinked(pool *pgxpool.Pool, log *slog.Logger) *linked {
	return &linked{pool: pool, log: log, room: work.NewRooms(mostLinked, mostLinkedOf)}
}

const (
	mostLinked    = 4 // at once
	mostLinkedOf  = 2 // of one tenant, whose contacts somebody may have locked
	linkedTimeout = 10 * time.Second
)

// errUnsure says that the answer to a commit was lost: nobody knows whether it was done.
var errUnsure = errors.New("nobody knows whether it was committed")

// do has act in a transaction for a tenant's contact, and once more where others were at it. For what somebody has
// locked, such as a contact by an erasure that is left open, it waits as deed.accept_messages
// does: not for as long as that takes. Of any error but errUnsure nothing was changed.
func (l *linked) do(ctx context.Context, owner string, act func(context.Context, contact.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, linkedTimeout)
	defer cancel()
	leave, err := l.room.Enter(ctx, cmp.Or(owner, tenant.Default.String())) // links may leave that one out
	if err != nil {
		return fmt.Errorf("too many at once: %w", err)
	}
	defer leave()
	for n := 1; ; n++ {
		acted := false
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local lock_timeout = '500ms'`); err != nil {
				return err
			}
			err := act(ctx, tx)
			acted = err == nil
			return err
		})
		if acted && err != nil && !isUndone(err) {
			return fmt.Errorf("%w: %w", errUnsure, err)
		}
		if !sqlstate.Again(err) || n == 10 {
			return err
		}
		work.Sleep(ctx, work.Backoff(n, 5*time.Millisecond, 200*time.Millisecond))
	}
}

// isUndone reports whether a commit's error says that it was not done: the server has refused
// it. One by which it ends the connection may come behind the answer, and what pgx says of a
// connection that is closed, too, safe to retry or not.
func isUndone(err error) bool {
	pg, said := errors.AsType[*pgconn.PgError](err)
	return said && pg.SeverityUnlocalized == "ERROR" || errors.Is(err, pgx.ErrTxCommitRollback)
}

// failed answers whoever pressed a button in vain. What keeps them waiting is somebody's
// transaction, or a database that is away: a minute may do.
func (l *linked) failed(w http.ResponseWriter, answer func(int, confirmText), err error, what string, of ...any) {
	of = append(of, "error", err)
	text := confirmText{Title: "Not now", Text: "Nothing was changed. Please try again in a minute."}
	if errors.Is(err, errUnsure) {
		text = confirmText{Title: "Not sure", Text: "It may be done, or not. Please try again in a minute: it does no harm twice."}
	}
	switch {
	case sqlstate.Locked(err):
		l.log.Warn(what+": somebody has the contact locked", of...)
	case errors.Is(err, context.Canceled): // nobody is there any more
	default:
		l.log.Error(what, of...)
	}
	w.Header().Set("Retry-After", "60")
	answer(http.StatusServiceUnavailable, text)
}
