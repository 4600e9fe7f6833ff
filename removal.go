package deed

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// errRemoved ends the work on a subscription that was removed.
var errRemoved = errors.New("the subscription was removed")

// lookRemoved ends the work on the subscriptions that were removed.
func (c *Client) lookRemoved(ctx context.Context, sources ...*source) {
	ids := make([]int64, len(sources))
	for i, s := range sources {
		ids[i] = s.id.Load()
	}
	c.upkeep.Chore(ctx, "look for removed subscriptions", func(ctx context.Context) error {
		var found []int64
		if err := c.workers.QueryRow(ctx, query.Removed, ids).Scan(&found); err != nil {
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
	s.mu.Lock()
	if s.changed != nil {
		s.changed(errRemoved)
	}
	s.mu.Unlock()
	s.log.Warn("the subscription was removed: this process stops working on it; if it is declared again it begins as a new one")
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
	s.client.upkeep.Chore(ctx, "give back what is a newer subscription's", func(ctx context.Context) error {
		_, err := s.client.workers.Exec(ctx, query.Fail, others[0].sub, others[0].claim, ids, make([]string, len(ids)), make([]*float64, len(ids)), kinds)
		return err
	})
	return kept
}

// tellAnew says of a subscription that was just made that there was one of its
// name.
func (s *source) tellAnew(ctx context.Context, tx pgx.Tx, start string) error {
	var removed *time.Time
	if err := tx.QueryRow(ctx, query.RemovedAt, s.sub.Topic, s.sub.Name).Scan(&removed); err != nil {
		return WrapError("subscribe "+s.label(), err)
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
