package delivery

import (
	"sync"
	"time"
)

const (
	breakerFailures = 5 // in a row
	breakerPause    = time.Second
	breakerMaxPause = 30 * time.Second
	mostPause       = time.Hour // that a provider may ask for
)

// breakers keeps calls away from destinations that fail, so that an outage
// costs few attempts and holds up nobody else. It looks at the process's
// monotonic clock, which decides only when this process tries again.
type breakers struct {
	mu   sync.Mutex
	dest map[string]*breaker // guarded by mu; without those that have not failed lately
}

type breaker struct {
	failures int
	pause    time.Duration
	until    time.Time // zero: closed
	probe    time.Time // when a probe was let through; zero: none is under way
}

// admit reports whether a call may be made now, and whether it is a probe.
func (b *breakers) admit(dest string) (probe, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dest[dest]
	switch {
	case d == nil || d.until.IsZero():
		return false, true
	case time.Now().Before(d.until), !d.probe.IsZero() && time.Since(d.probe) < breakerMaxPause:
		return false, false
	}
	d.probe = time.Now()
	return true, true
}

// forgo gives a probe's place back: it was not called after all.
func (b *breakers) forgo(dest string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.dest[dest]; d != nil {
		d.probe = time.Time{}
	}
}

// report records the outcome of a call that was admitted.
func (b *breakers) report(dest string, failed bool, asked time.Duration) (opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dest[dest]
	if !failed && asked == 0 {
		if d != nil {
			delete(b.dest, dest)
		}
		return false
	}
	if d == nil {
		d = &breaker{}
		if b.dest == nil {
			b.dest = map[string]*breaker{}
		}
		b.dest[dest] = d
	}
	d.failures++
	now := time.Now()
	if asked > 0 {
		asked = min(asked, mostPause)
		opened = d.until.IsZero()
		d.until, d.probe = later(d.until, now.Add(asked)), time.Time{}
		return opened
	}
	if d.failures < breakerFailures && d.until.IsZero() || !d.until.IsZero() && now.Before(d.until) {
		return false // not yet, or one that was under way when it opened
	}
	opened = d.until.IsZero()
	d.pause = min(max(2*d.pause, breakerPause), breakerMaxPause)
	d.until, d.probe = now.Add(d.pause), time.Time{}
	return opened
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// open lists the destinations that may not be called now, and returns for how
// long dest may not.
func (b *breakers) open(dest string) (list []string, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, d := range b.dest {
		if d.until.IsZero() {
			continue
		}
		left := time.Until(d.until)
		if left <= 0 && !d.probe.IsZero() && time.Since(d.probe) < breakerMaxPause {
			left = 10 * time.Millisecond // its probe is under way
		}
		if left > 0 {
			list = append(list, name)
			if name == dest {
				wait = left
			}
		}
	}
	return list, wait
}

// half reports whether the next call to dest is a probe.
func (b *breakers) half(dest string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.dest[dest]
	return d != nil && !d.until.IsZero()
}
