package delivery

import (
	"context"
	"time"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

// writeAttempt returns once the attempt of items is committed, or will not be; with
// a batch's id they are called together.
func (s *source) writeAttempt(ctx context.Context, batch string, items ...*item) (map[string]verdict, error) {
	w := &writing{items: items, batch: batch, answer: make(chan written, 1)}
	select {
	case s.writing <- w:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Not cut short by ctx: the rows may be written by now. Statements have a
	// deadline.
	a := <-w.answer
	return a.verdicts, a.err
}

// mostWritten is how many rows' attempts gather for one statement; a batch is never
// divided.
const mostWritten = 1000

const (
	// fewWritten is how many rows wait for a statement that is under way, since one costs as much as several of them.
	fewWritten = 50
	// longWritten is how long they wait for it at most: it may wait itself, for a lock or a slow disk.
	longWritten = 20 * time.Millisecond
)

// turn is what the writers of a provider share: one of them gathers attempts at a time, and of those who have few one writes.
type turn struct {
	gathering chan struct{} // holds one while somebody gathers
	held      chan struct{} // holds one while somebody has the turn
	company   work.Company  // of who has it
}

func newTurn() *turn { return &turn{gathering: make(chan struct{}, 1), held: make(chan struct{}, 1)} }

// write writes attempts until ctx ends, all that wait at a time in one
// statement: the next ones gather while it is under way.
func (s *source) write(ctx context.Context, t *turn) {
	for {
		list, n, mine := s.gathered(ctx, t)
		if n == 0 {
			return
		}
		began := time.Now()
		verdicts, err := s.writes(ctx, list)
		if mine {
			t.company.Learn(n, time.Since(began))
			<-t.held
		}
		if err != nil {
			s.log.Warn("attempts not written; nobody was called", "error", err, "deliveries", n)
		}
		for _, w := range list {
			w.answer <- written{verdicts, err}
		}
	}
}

// gathered is what one statement writes next; none, ctx has ended. Where it is few the turn is waited for, and then, with it in hand, as many as went
// together of late: who has just written takes none of them away meanwhile.
func (s *source) gathered(ctx context.Context, t *turn) (list []*writing, n int, mine bool) {
	t.gathering <- struct{}{}
	defer func() { <-t.gathering }()
	select {
	case <-ctx.Done():
		return nil, 0, false
	case w := <-s.writing:
		list = append(list, w)
	}
	if list, n = s.gather(list); n >= fewWritten {
		return list, n, false
	}
	if mine = t.take(longWritten); mine {
		list, n = s.await(ctx, &t.company, list)
	} else {
		list, n = s.gather(list) // with those that have come meanwhile
	}
	return list, n, mine
}

// gather adds what waits, and says how many rows it all is.
func (s *source) gather(list []*writing) (_ []*writing, n int) {
	for _, w := range list {
		n += len(w.items)
	}
	for len(list) < s.opts.Concurrency && n < mostWritten {
		select {
		case w := <-s.writing:
			list = append(list, w)
			n += len(w.items)
		default:
			return list, n
		}
	}
	return list, n
}

// await adds what waits, and what comes while there is company to be expected; and says how many rows it all is.
func (s *source) await(ctx context.Context, company *work.Company, list []*writing) (_ []*writing, n int) {
	until, enough := company.Awaited()
	for {
		if list, n = s.gather(list); n >= enough || len(list) >= s.opts.Concurrency {
			return list, n
		}
		select {
		case w := <-s.writing:
			list = append(list, w)
		case <-until:
			return list, n
		case <-ctx.Done():
			return list, n
		}
	}
}

// take reports whether the turn could be taken within a time.
func (t *turn) take(within time.Duration) bool {
	select {
	case t.held <- struct{}{}:
		return true
	default:
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	select {
	case t.held <- struct{}{}:
		return true
	case <-patience.C:
		return false
	}
}

func (s *source) writeAll(ctx context.Context, list []*writing) (map[string]verdict, error) {
	ids, claims, requests := make([]string, 0, len(list)), make([]int64, 0, len(list)), make([][]byte, 0, len(list))
	var batches []*string // nil: there is none
	var made []*time.Time // nil: all requests stay
	newest := map[string]int64{}
	for _, w := range list {
		for _, it := range w.items {
			ids, claims, requests = append(ids, it.id), append(claims, it.claim), append(requests, it.request)
			newest[it.id] = max(newest[it.id], it.claim)
			if s.batch > 1 {
				batches = append(batches, orNil(w.batch))
			}
			if it.run != "" && made == nil {
				made = make([]*time.Time, len(ids)-1, cap(ids))
			}
			if made != nil {
				made = append(made, it.madeAt())
			}
		}
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
		s.caps.Kind, s.caps.Account, s.opts.Sandbox != "", batches, made)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	verdicts, begun := make(map[string]verdict, len(ids)), make([]string, 0, len(ids))
	for rows.Next() {
		var id string
		var v verdict
		if err := rows.Scan(&id, &v.status, &v.attempts, &v.why); err != nil {
			return nil, err
		}
		v.claim = newest[id]
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
