package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Unrecorded is the error of an Exchange that has done all but one thing: what became of Items is not
// recorded, since somebody keeps locked what it would write. They stay leased, and are brought again by
// themselves, so that they hold up no others.
type Unrecorded[T comparable] struct{ Items []T }

func (u *Unrecorded[T]) Error() string {
	return fmt.Sprintf("%d outcomes wait for what somebody keeps locked", len(u.Items))
}

// aside is what waits for somebody's lock. It belongs to the driving goroutine.
type aside[T comparable] struct {
	units []*unit[T]
	tries int       // in vain, in a row
	split int       // they are brought 1/2^split at a time: one of them fails for another reason
	at    time.Time // when it is brought again
}

// setAside keeps apart those of part, the first of l.done, that err leaves unrecorded, and returns the others;
// part as it is, and err, where that says something else.
func (l *loop[T]) setAside(part []*unit[T], err error) ([]*unit[T], error) {
	left, ok := errors.AsType[*Unrecorded[T]](err)
	if !ok {
		return part, err
	}
	kept, recorded := unrecorded(part, left.Items)
	if len(l.aside.units) == 0 {
		l.aside.tries, l.aside.at = 1, time.Now().Add(Backoff(1, 50*time.Millisecond, 5*time.Second))
		l.opts.Logger.Warn("some outcomes are not recorded yet; will try again, apart from the others", "error", err)
	}
	l.aside.units = append(l.aside.units, kept...)
	l.done = append(slices.Clone(recorded), l.done[len(part):]...)
	return l.done[:len(recorded)], nil
}

// unrecorded divides units by whether they are among items. Those go on being renewed.
func unrecorded[T comparable](units []*unit[T], items []T) (kept, recorded []*unit[T]) {
	left := make(map[T]bool, len(items))
	for _, item := range items {
		left[item] = true
	}
	for _, u := range units {
		if !left[u.item] {
			recorded = append(recorded, u)
			continue
		}
		u.mu.Lock()
		u.settle = false
		u.mu.Unlock()
		kept = append(kept, u)
	}
	return kept, recorded
}

// untilAside is wait, unless what was set aside is to be brought sooner.
func (l *loop[T]) untilAside(wait time.Duration) time.Duration {
	if len(l.aside.units) == 0 {
		return wait
	}
	return min(wait, max(time.Until(l.aside.at), time.Microsecond))
}

// recordAside brings what was set aside, a batch at most, and less where it fails, so that one holds up none of the
// others; what it leaves comes last, and later each time, so that it takes no more than a fifth of the loop's time.
func (l *loop[T]) recordAside(ctx context.Context) error {
	part := slices.Clone(l.aside.units[:max(min(len(l.aside.units), l.opts.Batch)>>l.aside.split, 1)])
	done := l.settling(part)
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Deadline)
	defer cancel()
	started := time.Now()
	_, _, err := l.src.Exchange(dctx, done, 0)
	var kept, recorded []*unit[T]
	left, ok := errors.AsType[*Unrecorded[T]](err)
	switch {
	case ok:
		kept, recorded = unrecorded(part, left.Items)
	case err != nil:
		kept, _ = unrecorded(part, itemsOf(part))
	default:
		recorded = part
	}
	if err != nil && !ok {
		l.aside.split = min(l.aside.split+1, 14)
	} else {
		l.aside.split = max(l.aside.split-1, 0)
	}
	l.forget(recorded)
	l.measure(len(recorded))
	l.aside.units = append(slices.Clone(l.aside.units[len(part):]), kept...)
	l.aside.tries++
	if len(recorded) > 0 {
		l.aside.tries = 1
	}
	l.hungry = l.hungry || len(recorded) > 0 // what these have made ready may wait
	l.aside.at = time.Now().Add(max(Backoff(l.aside.tries, 50*time.Millisecond, 5*time.Second), 4*time.Since(started)))
	if len(l.aside.units) == 0 {
		l.opts.Logger.Info("all outcomes are recorded again")
	}
	return err
}

func itemsOf[T comparable](units []*unit[T]) []T {
	items := make([]T, len(units))
	for i, u := range units {
		items[i] = u.item
	}
	return items
}
