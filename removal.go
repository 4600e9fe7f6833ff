package deed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// removeBatch is how many rows one step of a removal takes away.
const removeBatch = 5000

// Removal names what to remove, and why.
type Removal struct {
	Topic        string
	Subscription string // empty: the topic, with all of its subscriptions
	Reason       string // required
	By           string // who asks, for the audit log; default: the login

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
	Subscription string   `json:"subscription,omitempty"`
	Mode         Mode     `json:"mode"`
	Door         bool     `json:"door"`
	Waiting      int64    `json:"waiting"`      // not delivered and not dead; what a stream has put aside, but not what it has still to read
	Claimed      int64    `json:"claimed"`      // of those waiting, in some worker's hands
	Aside        int64    `json:"aside"`        // of those waiting, what a stream has put aside
	Dead         int64    `json:"dead"`         // dead letters
	BlockedKeys  int64    `json:"blocked_keys"` // keys that wait for one of their messages
	Unread       int64    `json:"unread"`       // what a stream has still to read, counted up to 10,000 a lane
	AtLeast      bool     `json:"at_least,omitempty"`
	Workers      []string `json:"workers"` // seen at work on it; one that has nothing to do is not seen
}

// CountRemoval counts what would be given up with a subscription, or, if that is
// empty, with a topic: a row for each of its subscriptions. Its cost grows with what
// waits. Errors: [NotFound]. Needs deed_admin.
func (c *Client) CountRemoval(ctx context.Context, topic, subscription string) ([]RemovalCount, error) {
	rows, err := c.pool.Query(ctx, query["count_removal"], topic, nullIfZero(subscription))
	if err != nil {
		return nil, opError("count removal", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemovalCount])
	return list, opError("count removal", err)
}

// Remove removes a subscription, or a topic with all of its, and gives up what
// is owed to it. First a short transaction: from then on publishers give it
// nothing, its workers stop, and it keeps nothing. Then what waited is taken
// away in short steps. When ctx ends, or the process, it stops between two of
// them; relays go on with it, and so does the same removal again. What was
// delivered stays recorded until retention. Errors: [NotFound]; [Invalid] without a
// reason. Needs deed_admin.
func (c *Client) Remove(ctx context.Context, r Removal) (Removed, error) {
	var done Removed
	removals, err := c.beginRemoval(ctx, r)
	if err != nil {
		return done, opError("remove", err)
	}
	for _, n := range removals {
		before := done.Taken
		waits, err := c.clearRemoval(ctx, c.pool, n, func(total int64) {
			done.Taken = before + total
			if r.Progress != nil {
				r.Progress(done.Taken)
			}
		})
		if err != nil {
			return done, opError("remove", fmt.Errorf("it is removed, and %d messages of it are given up so far; relays go on with it: %w", done.Taken, err))
		}
		done.Waits = done.Waits || waits
	}
	return done, nil
}

// beginRemoval is the short transaction. It is tried again for a while if
// another is just changing the same.
func (c *Client) beginRemoval(ctx context.Context, r Removal) (removals []int64, err error) {
	args := []any{r.Topic, r.Subscription, r.Reason, nullIfZero(r.By)}
	name := "remove_subscription"
	if r.Subscription == "" {
		name, args = "remove_topic", []any{r.Topic, r.Reason, nullIfZero(r.By)}
	}
	for try := 1; ; try++ {
		err = func() error {
			ctx, cancel := c.deadline(ctx)
			defer cancel()
			return pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, query[name], args...).Scan(&removals)
			})
		}()
		pg, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || try == 5 || (pg.Code != "55P03" && pg.Code != "40P01") || !work.Sleep(ctx, work.Backoff(try, 50*time.Millisecond, time.Second)) {
			return removals, err
		}
	}
}

// clearRemoval takes steps until a removal is over, or waits for others'
// transactions.
func (c *Client) clearRemoval(ctx context.Context, pool *pgxpool.Pool, n int64, report func(total int64)) (waits bool, err error) {
	for waited := 0; ; {
		state, total, err := c.removeStep(ctx, pool, n)
		if err != nil {
			return false, err
		}
		report(total)
		crash.Point("clearing")
		switch state {
		case "done":
			return false, nil
		case "waits": // most of them are short
			if waited++; waited == 10 {
				return true, nil
			}
			if !work.Sleep(ctx, 50*time.Millisecond) {
				return true, context.Cause(ctx)
			}
		}
	}
}

func (c *Client) removeStep(ctx context.Context, pool *pgxpool.Pool, n int64) (state string, total int64, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, query["remove_step"], n, removeBatch).Scan(&state, &total)
	})
	return state, total, err
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
// has nothing left of the time before. Needs deed_worker or deed_admin.
func (c *Client) Removals(ctx context.Context, limit int) ([]RemovalStatus, error) {
	if limit < 1 {
		return nil, invalidf("removals", "limit %d is below 1", limit)
	}
	rows, err := c.pool.Query(ctx, query["removals"], limit)
	if err != nil {
		return nil, opError("removals", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RemovalStatus])
	return list, opError("removals", err)
}

// finishRemovals goes on, now and then, with removals that were cut off, or that
// wait for transactions.
func (c *Client) finishRemovals(ctx context.Context) {
	for pause := rand.N(housekeepEvery / 10); work.Sleep(ctx, pause); pause = housekeepEvery/2 + rand.N(housekeepEvery) {
		var open []int64
		c.chore(ctx, "look for removals", func(ctx context.Context) error {
			return c.workers.QueryRow(ctx, query["open_removals"]).Scan(&open)
		})
		for _, n := range open {
			_, err := c.clearRemoval(ctx, c.workers, n, func(int64) {})
			if err != nil && ctx.Err() == nil {
				c.opts.Logger.Warn("clearing away what was removed failed; will try again", "removal", n, "error", withHint(err))
			}
		}
	}
}

// errRemoved ends the work on a subscription that was removed.
var errRemoved = errors.New("the subscription was removed")

// lookRemoved ends the work on the subscriptions that were removed.
func (c *Client) lookRemoved(ctx context.Context, sources ...*source) {
	ids := make([]int64, len(sources))
	for i, s := range sources {
		ids[i] = s.id.Load()
	}
	c.chore(ctx, "look for removed subscriptions", func(ctx context.Context) error {
		var found []int64
		if err := c.workers.QueryRow(ctx, query["removed"], ids).Scan(&found); err != nil {
			return err
		}
		for _, s := range sources {
			for _, id := range found {
				if s.id.Load() == id {
					s.becomeRemoved()
				}
			}
		}
		return nil
	})
}

// becomeRemoved ends the work on the subscription: nothing new is begun, what is
// under way ends.
func (s *source) becomeRemoved() {
	if s.removed.Swap(true) {
		return
	}
	s.log.Warn("the subscription was removed: this process stops working on it; if it is declared again it begins as a new one")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		s.changed(errRemoved)
	}
}

// changeable is a context for the work on the subscription as what it is now.
func (s *source) changeable(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, changed := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	if s.removed.Load() { // before it could be told
		changed(errRemoved)
	}
	return ctx, changed
}

// ours are those of the claimed messages that are this subscription's. Another may
// have been made by its name since it was removed: its messages go back.
func (s *source) ours(ctx context.Context, messages []*item) []*item {
	var others []*item
	kept := messages[:0]
	for _, it := range messages {
		if it.sub == s.id.Load() {
			kept = append(kept, it)
		} else {
			others = append(others, it)
		}
	}
	if len(others) == 0 {
		return messages
	}
	s.client.lookRemoved(ctx, s)
	ids, kinds := make([]int64, len(others)), make([]string, len(others))
	for i, it := range others {
		ids[i], kinds[i] = it.msg.Seq, "release"
	}
	s.client.chore(ctx, "give back what is a newer subscription's", func(ctx context.Context) error {
		_, err := s.client.workers.Exec(ctx, query["fail"], others[0].sub, others[0].claim, ids, make([]string, len(ids)), make([]*float64, len(ids)), kinds)
		return err
	})
	return kept
}

// tellAnew says of a subscription that was just made that there was one of its
// name.
func (s *source) tellAnew(ctx context.Context, tx pgx.Tx, start string) error {
	var removed *time.Time
	if err := tx.QueryRow(ctx, query["removed_at"], s.sub.Topic, s.sub.Name).Scan(&removed); err != nil {
		return opError("subscribe "+s.label(), err)
	}
	if removed != nil {
		s.log.Warn("one of this name was removed: this is a new subscription, and begins anew", "removed_at", *removed, "from", start)
	}
	return nil
}

// outlast returns err; if the subscription was removed, when ctx ends: a process
// with nothing else to do that ended would be started again, and make it anew.
func (s *source) outlast(ctx context.Context, err error) error {
	if s.removed.Load() {
		<-ctx.Done()
	}
	return err
}
