package delivery

import (
	"context"

	"github.com/deedhq/deed/internal/crash"
)

// writeAttempt returns once the attempt is committed, or will not be.
func (s *source) writeAttempt(ctx context.Context, it *item) verdict {
	w := &writing{it: it, answer: make(chan verdict, 1)}
	select {
	case s.writing <- w:
	case <-ctx.Done():
		return verdict{err: ctx.Err()}
	}
	// Not cut short by ctx: the row may be written by now. Statements have a
	// deadline.
	return <-w.answer
}

// write writes attempts until ctx ends, all that wait at a time in one
// statement: the next ones gather while it is under way.
func (s *source) write(ctx context.Context) {
	for {
		var list []*writing
		select {
		case <-ctx.Done():
			return
		case w := <-s.writing:
			list = append(list, w)
		}
		for more := true; more && len(list) < s.opts.Concurrency; {
			select {
			case w := <-s.writing:
				list = append(list, w)
			default:
				more = false
			}
		}
		verdicts, err := s.writeAll(ctx, list)
		if err != nil {
			s.log.Warn("attempts not written; nobody was called", "error", err, "deliveries", len(list))
		}
		for _, w := range list {
			v := verdicts[w.it.id]
			v.err = err
			w.answer <- v
		}
	}
}

func (s *source) writeAll(ctx context.Context, list []*writing) (map[string]verdict, error) {
	ids, claims, requests := make([]string, len(list)), make([]int64, len(list)), make([][]byte, len(list))
	for i, w := range list {
		ids[i], claims[i], requests[i] = w.it.id, w.it.claim, w.it.request
	}
	var window *float64
	if s.caps.Key == HasKey {
		seconds := s.caps.KeyWindow.Seconds()
		window = &seconds
	}
	ctx, cancel := s.ledger.deadline(ctx)
	defer cancel()
	crash.Point("writing")
	rows, err := s.ledger.pool.Query(ctx, query.Attempt, ids, claims, requests, window, s.ledger.opts.Lease.Seconds(), s.ledger.opts.Worker,
		s.caps.Kind, s.caps.Account, s.opts.Sandbox != "")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	verdicts, begun := make(map[string]verdict, len(list)), make([]string, 0, len(list))
	for rows.Next() {
		var id string
		var v verdict
		if err := rows.Scan(&id, &v.status, &v.attempts, &v.why); err != nil {
			return nil, err
		}
		verdicts[id] = v
		if v.status == string(Sending) {
			begun = append(begun, id)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	crash.Point("written")
	s.tellAttempts(begun)
	return verdicts, nil
}
