package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/page"
)

// Removal names what to remove, and why: the reason of its act is required, and
// By is the login by default.
type Removal struct {
	Topic        string
	Subscription string // empty: the topic, with all of its subscriptions
	audit.Act

	// Progress, if not nil, is told after each step how many messages have been
	// given up.
	Progress func(taken int64)
}

// Removed is what a removal has come to.
type Removed struct {
	Taken int64 // messages that waited, or were dead, and are given up
	// Waits: transactions that were open when it began may still publish to it.
	// What they do is taken away by a relay, or by the same removal again, when
	// they have ended.
	Waits bool
}

// RemovalCount is what would be given up with a subscription. One without a
// name is of what was published to a topic that had none.
type RemovalCount struct {
	Subscription string    `json:"subscription,omitempty"`
	Mode         deed.Mode `json:"mode"`
	Door         bool      `json:"door"`
	Waiting      int64     `json:"waiting"`      // not delivered and not dead; what a stream has put aside, but not what it has still to read
	Claimed      int64     `json:"claimed"`      // of those waiting, in some worker's hands
	Aside        int64     `json:"aside"`        // of those waiting, what a stream has put aside
	Dead         int64     `json:"dead"`         // dead letters
	BlockedKeys  int64     `json:"blocked_keys"` // keys that wait for one of their messages
	Unread       int64     `json:"unread"`       // what a stream has still to read, counted up to 10,000 a lane
	AtLeast      bool      `json:"at_least,omitempty"`
	Workers      []string  `json:"workers"` // seen at work on it; one that has nothing to do is not seen
}

// CountRemoval counts what would be given up with a subscription, or, if that is
// empty, with a topic: a row for each of its subscriptions. Its cost grows with what
// waits. Errors: [deed.NotFound]. Needs deed_admin.
func (c *Client) CountRemoval(ctx context.Context, topic, subscription string) ([]RemovalCount, error) {
	rows, err := c.pool.Query(ctx, query.CountRemoval, topic, sqlvalue.NullIfZero(subscription))
	if err != nil {
		return nil, deed.WrapError("count removal", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemovalCount])
	return list, deed.WrapError("count removal", err)
}

// Remove removes a subscription, or a topic with all of its, and gives up what
// is owed to it. First a short transaction: from then on publishers give it
// nothing, its workers stop, and it keeps nothing. Then what waited is taken
// away in short steps. When ctx ends, or the process, it stops between two of
// them; relays go on with it, and so does the same removal again. What was
// delivered stays recorded until retention. Errors: [deed.NotFound]; [deed.Invalid] without a
// reason. Needs deed_admin.
func (c *Client) Remove(ctx context.Context, r Removal) (Removed, error) {
	var done Removed
	removals, err := c.beginRemoval(ctx, r)
	if err != nil {
		return done, deed.WrapError("remove", err)
	}
	for _, n := range removals {
		before := done.Taken
		waits, err := c.keeper().ClearRemoval(ctx, n, func(total int64) {
			done.Taken = before + total
			if r.Progress != nil {
				r.Progress(done.Taken)
			}
		})
		if err != nil {
			return done, deed.WrapError("remove", fmt.Errorf("it is removed, and %d messages of it are given up so far; relays go on with it: %w", done.Taken, err))
		}
		done.Waits = done.Waits || waits
	}
	return done, nil
}

// beginRemoval is the short transaction. It is tried again for a while if
// another is just changing the same.
func (c *Client) beginRemoval(ctx context.Context, r Removal) (removals []int64, err error) {
	args := []any{r.Topic, r.Subscription, r.Reason, sqlvalue.NullIfZero(r.By)}
	statement := query.RemoveSubscription
	if r.Subscription == "" {
		statement, args = query.RemoveTopic, []any{r.Topic, r.Reason, sqlvalue.NullIfZero(r.By)}
	}
	for try := 1; ; try++ {
		err = func() error {
			ctx, cancel := c.deadline(ctx)
			defer cancel()
			return pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, statement, args...).Scan(&removals)
			})
		}()
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || try == 5 || (pg.Code != "55P03" && pg.Code != "40P01") || !work.Sleep(ctx, work.Backoff(try, 50*time.Millisecond, time.Second)) {
			return removals, err
		}
	}
}

// RemovalStatus is how far a removal is.
type RemovalStatus struct {
	Topic        string     `json:"topic"`
	Subscription string     `json:"subscription,omitempty"` // empty: the topic itself
	State        string     `json:"state"`                  // going, waits or done
	Taken        int64      `json:"taken"`                  // messages given up so far
	RemovedAt    time.Time  `json:"removed_at"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	By           string     `json:"by"`
	Reason       string     `json:"reason"`
}

// Removals lists what was removed, newest first, at most limit, until the log
// has nothing left of the time before; from cursor on: [page.Of.Next] of the page
// before, or "". Errors: [deed.Invalid]. Needs deed_worker or deed_admin.
func (c *Client) Removals(ctx context.Context, cursor string, limit int) (list page.Of[RemovalStatus], err error) {
	const op = "removals"
	if err := checkCount(op, "limit", limit, 1); err != nil {
		return list, err
	}
	below := int64(math.MaxInt64)
	if cursor != "" {
		if below, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(cursor))
		}
	}
	rows, err := c.pool.Query(ctx, query.Removals, limit, below)
	if err != nil {
		return list, deed.WrapError(op, err)
	}
	var n int64
	list.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r RemovalStatus, err error) {
		err = row.Scan(&r.Topic, &r.Subscription, &r.State, &r.Taken, &r.RemovedAt, &r.FinishedAt, &r.By, &r.Reason, &n)
		return r, err
	})
	if len(list.Items) == limit {
		list.Next = strconv.FormatInt(n, 10)
	}
	return list, deed.WrapError(op, err)
}
