package delivery

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// queueClaim adds a claim to a batch.
func (s *source) queueClaim(batch *pgx.Batch, n int) *claiming {
	names, rooms, bytes, places := s.hand.ask()
	c := &claiming{}
	batch.Queue(query.Claim, s.name, s.ledger.opts.Worker, n, s.ledger.opts.Lease.Seconds(), names, rooms, bytes, places,
		s.ledger.opts.MaxAttempts, s.mostTogether(), s.ledger.opts.Composer != nil).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			it := &item{}
			w := &it.row
			var id, found *string
			if err := rows.Scan(&id, &w.claim, &w.tenant, &w.workspace, &w.key, &w.channel, &w.lane, &w.recipient, &w.recipientID,
				(*[]byte)(&w.payload), &w.request, &w.guarantee, &w.attempts, &w.correlationID, &w.channelMsgID, &w.lost, &w.takenOver, &found, &w.call, &w.purpose, &w.contact, &w.run); err != nil {
				return err
			}
			if err := c.add(it, id, found); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return c
}

// Extend renews the leases of held.
func (s *source) Extend(ctx context.Context, held []*item) ([]*item, error) {
	return s.extend(ctx, held)
}

// Lost drops what is another worker's by now: what was never begun does not come back.
func (s *source) Lost(items []*item) { s.hand.drop(items...) }

func (s *source) extend(ctx context.Context, held []*item) ([]*item, error) {
	ids, claims := make([]string, len(held)), make([]int64, len(held))
	for i, it := range held {
		ids[i], claims[i] = it.id, it.claim
	}
	var kept []string
	if err := s.ledger.pool.QueryRow(ctx, query.Extend, ids, claims, s.ledger.opts.Lease.Seconds()).Scan(&kept); err != nil {
		return nil, err
	}
	still := make(map[string]int64, len(kept)) // the newest claim of each that is kept: of two only that one can be
	for _, id := range kept {
		still[id] = 0
	}
	for _, it := range held {
		if claim, kept := still[it.id]; kept {
			still[it.id] = max(claim, it.claim)
		}
	}
	var lost []*item
	for _, it := range held {
		if claim, kept := still[it.id]; !kept || it.claim < claim {
			lost = append(lost, it)
		}
	}
	return lost, nil
}
