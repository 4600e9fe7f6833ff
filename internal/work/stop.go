package work

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stop is both phases: give back what has not started, wait for the rest,
// cancel it when the grace is over, and record all outcomes.
func (l *loop[T]) stop(ctx context.Context, cancel context.CancelCauseFunc) error {
	ctx = context.WithoutCancel(ctx)
	if l.intake != nil {
		l.intake.close()
		l.admit()
	}
	for drained := false; !drained; {
		select {
		case group := <-l.queue:
			for _, u := range group {
				u.outcome = Done[T]{Item: u.item, Released: true}
			}
			l.collect(group)
		default:
			drained = true
		}
	}
	grace := time.NewTimer(l.opts.Grace)
	defer grace.Stop()
	var abandon <-chan time.Time
	for len(l.held) > 0 {
		if l.collectReady(); len(l.done) > 0 && time.Until(l.retryAt) <= 0 {
			_ = l.record(ctx) // it is tried again, and logged
		}
		if len(l.held) == 0 {
			break
		}
		wait := time.Hour
		if len(l.done) > 0 {
			wait = max(time.Until(l.retryAt), time.Millisecond)
		}
		again := time.NewTimer(wait)
		select {
		case units := <-l.results:
			l.collect(units)
		case <-again.C:
		case <-grace.C:
			cancel(ErrStopping)
			abandon = time.After(abandonAfter)
		case <-abandon:
			again.Stop()
			if l.collectReady(); len(l.held) > 0 {
				return errors.Join(l.recordAll(ctx),
					fmt.Errorf("%d attempts did not return after they were cancelled; they stay claimed until their lease ends", len(l.held)))
			}
		}
		again.Stop()
	}
	return l.recordAll(ctx)
}

// recordAll tries for about two deadlines to record what is done.
func (l *loop[T]) recordAll(ctx context.Context) error {
	until := time.Now().Add(2 * l.opts.Deadline)
	for len(l.done) > 0 || len(l.aside.units) > 0 {
		record, again := l.record, &l.retryAt
		if len(l.done) == 0 {
			record, again = l.recordAside, &l.aside.at
		}
		err := record(ctx)
		if err == nil {
			continue
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d outcomes could not be recorded, so these may be attempted again once their lease ends: %w", len(l.done)+len(l.aside.units), err)
		}
		Sleep(ctx, time.Until(*again))
	}
	return nil
}

// record brings outcomes to the source without claiming.
func (l *loop[T]) record(ctx context.Context) error {
	part := l.part()
	done := l.settling(part)
	dctx, cancel := context.WithTimeout(ctx, l.opts.Deadline)
	defer cancel()
	_, _, err := l.src.Exchange(dctx, done, 0)
	if part, err = l.setAside(part, err); err != nil {
		l.exchangeFailed(ctx, err, part, false, false)
		return err
	}
	l.exchangeDone()
	l.settled(part)
	return nil
}
