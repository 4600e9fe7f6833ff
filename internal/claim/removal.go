package claim

import (
	"context"

	"github.com/deedhq/deed/internal/upkeep"
)

// LookRemoved ends the work on those of the subscriptions that were removed. All are
// asked about in one statement; the process does so every few seconds, and whoever
// is refused a claim at once.
func LookRemoved(ctx context.Context, keeper *upkeep.Keeper, subs ...*Subscription) {
	ids := make([]int, len(subs))
	for i, s := range subs {
		ids[i] = s.ID
	}
	keeper.Chore(ctx, "look for removed subscriptions", func(ctx context.Context) error {
		var found []int
		if err := keeper.Pool.QueryRow(ctx, query.Removed, ids).Scan(&found); err != nil {
			return err
		}
		for _, s := range subs {
			for _, id := range found {
				if s.ID == id {
					s.becomeRemoved()
				}
			}
		}
		return nil
	})
}

// findRemoved reports whether the subscription was removed, by the database if this
// process does not know: who is refused a claim or a finish may be the first to meet
// it.
func (s *Subscription) findRemoved(ctx context.Context) bool {
	if !s.IsRemoved() {
		LookRemoved(ctx, s.Upkeep, s)
	}
	return s.IsRemoved()
}

// ours are those of the claimed messages that are this subscription's. Another may
// have been made by its name since it was removed, and a claim goes by the name:
// its messages go back as they were, for those who have registered it.
func (s *Subscription) ours(ctx context.Context, items []*Item) []*Item {
	var others []*Item
	kept := items[:0]
	for _, it := range items {
		if it.Subscription == s.ID {
			kept = append(kept, it)
		} else {
			others = append(others, it)
		}
	}
	if len(others) == 0 {
		return items
	}
	LookRemoved(ctx, s.Upkeep, s)
	ids, kinds := make([]int64, len(others)), make([]string, len(others))
	for i, it := range others {
		ids[i], kinds[i] = it.Seq, string(Release)
	}
	s.Upkeep.Chore(ctx, "give back what is a newer subscription's", func(ctx context.Context) error {
		_, err := s.DB.Exec(ctx, query.Fail, others[0].Subscription, others[0].Claim, ids, make([]string, len(ids)), make([]*float64, len(ids)), kinds)
		return err
	})
	return kept
}
