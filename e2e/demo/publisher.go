package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

const (
	publishers  = 8
	rollBackOne = 20 // in so many
)

// publisher is the business: it stores each flight and publishes it in one
// transaction.
type publisher struct {
	pool    *pgxpool.Pool
	flights []flight
	pace    time.Duration

	next atomic.Int64

	mu         sync.Mutex
	committed  map[string]time.Time // guarded by mu: when each commit had returned
	rolledBack map[string]bool      // guarded by mu: on purpose
	interrupts int                  // guarded by mu: transactions that the server's death cut short
	unanswered int                  // guarded by mu: of those, at their commit
	foundThere int                  // guarded by mu: commits without an answer that the flights table confirmed
}

func newPublisher(pool *pgxpool.Pool, flights []flight, pace time.Duration) *publisher {
	return &publisher{pool: pool, flights: flights, pace: pace, committed: map[string]time.Time{}, rolledBack: map[string]bool{}}
}

// done is how many flights are stored, or rolled back as meant.
func (p *publisher) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.committed) + len(p.rolledBack)
}

// run publishes all flights, each at its time; what an outage has held up comes
// at once afterwards.
func (p *publisher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := time.Now()
	var workers sync.WaitGroup
	for range publishers {
		workers.Go(func() {
			for {
				n := int(p.next.Add(1)) - 1
				if n >= len(p.flights) {
					return
				}
				due := started.Add(p.pace * time.Duration(n) / time.Duration(len(p.flights)))
				if err := sleep(ctx, time.Until(due)); err != nil {
					return
				}
				if err := p.publish(ctx, p.flights[n], n%rollBackOne == rollBackOne-1); err != nil {
					cancel(fmt.Errorf("flight %s: %w", p.flights[n].ID, err))
					return
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// publish tries until the flight is stored, or rolled back as meant. After a
// commit whose answer was lost, the flights table knows what became of it.
func (p *publisher) publish(ctx context.Context, f flight, rollBack bool) error {
	var unanswered time.Time // when such a commit was sent
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		sent, there, err := p.try(attempt, f, rollBack)
		cancel()
		p.mu.Lock()
		switch {
		case err == nil && there && unanswered.IsZero():
			err = &deed.Error{Op: "publish", Code: deed.Conflict, Err: errors.New("it was stored before it was published")}
		case err == nil && there:
			p.committed[f.ID] = unanswered
			p.foundThere++
		case err == nil && rollBack:
			p.rolledBack[f.ID] = true
		case err == nil:
			p.committed[f.ID] = time.Now()
		case !sent.IsZero():
			unanswered = sent
			p.interrupts++
			p.unanswered++
		default:
			p.interrupts++
		}
		p.mu.Unlock()
		if err == nil || deed.CodeOf(err) != deed.Internal {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// try is one transaction. sent is when its commit was sent, there says that the
// flight was stored already.
func (p *publisher) try(ctx context.Context, f flight, rollBack bool) (sent time.Time, there bool, err error) {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return sent, false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	tag, err := tx.Exec(ctx, `insert into flights (id, details) values ($1, $2) on conflict do nothing`, f.ID, string(f.line))
	if err != nil || tag.RowsAffected() == 0 {
		return sent, true, err
	}
	_, err = deed.Publish(ctx, tx, deed.Message{
		Topic: topic, Key: f.key(), Type: "flight.departed", Payload: f.line, IdempotencyKey: f.ID,
	})
	if err != nil || rollBack {
		return sent, false, err
	}
	sent = time.Now()
	return sent, false, tx.Commit(ctx)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
