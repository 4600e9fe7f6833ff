package work

import "time"

// room is how many more items may be claimed: what the runners take that are
// free, and what they will end in the next second or [Options.Ahead], so that slow
// attempts do not hoard what other workers could do; and never more than two
// batches in all. A few are only claimed for a runner that is free, and if
// outcomes wait with these.
func (l *loop[T]) room() int {
	runners, busy := l.runners(), l.most()
	room := min(busy-len(l.held)-l.taken(), l.opts.Batch)
	if room < min(busy, l.opts.Batch)/2 && (len(l.held) >= runners || len(l.done) > 0 && !l.flushes()) {
		return 0
	}
	return max(room, 0)
}

// most is how many items may be in hand.
func (l *loop[T]) most() int {
	return min(l.runners()+max(l.opts.Ahead, int(l.rateNow())), 2*l.opts.Batch)
}

// runners is how many are attempted at once.
func (l *loop[T]) runners() int { return min(l.opts.Concurrency*l.opts.Group, 2*l.opts.Batch) }

// rateNow is the rate, or what is left of it: in the time since it was counted
// the runners cannot have ended more than what has come out of them, and what
// they have in hand.
func (l *loop[T]) rateNow() float64 {
	most := l.counted + len(l.done) + l.opts.Concurrency*l.opts.Group
	return min(l.rate, float64(most)/time.Since(l.countAt).Seconds())
}

func (l *loop[T]) measure(finished int) {
	l.counted += finished
	elapsed := time.Since(l.countAt)
	if elapsed < 50*time.Millisecond {
		return
	}
	l.rate = (l.rateNow() + float64(l.counted)/elapsed.Seconds()) / 2
	l.counted, l.countAt = 0, time.Now()
}
