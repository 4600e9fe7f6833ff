package work

import (
	"sync"
	"time"

	"github.com/deedhq/deed/internal/crash"
)

// Intake is a second way into a loop ([Receiver]), for who makes items: in the transaction that makes them they are claimed for it, as many as it has
// promised to take. The zero value is ready; it belongs to one loop at most, and any number of goroutines may use it.
type Intake[T comparable] struct {
	mu       sync.Mutex
	loop     *loop[T] // nil: it does not run
	asked    bool     // for a promise, ever
	room     space
	promised int        // of it
	arrived  []*unit[T] // taken, of which the driving goroutine does not know yet; of it, too
}

// space is for so many items, at an instant.
type space struct {
	free  int // beside those that the loop holds
	ahead int // of these, for what is done as fast as others were of late: a while later nobody knows
	at    time.Time
}

func (s space) now() int {
	if time.Since(s.at) > time.Second {
		return s.free - s.ahead
	}
	return s.free
}

// Promise is how many items the loop takes, at most n, and holds room for them until [Intake.Give]: none while more wait to be claimed than it has had room for,
// which came before.
func (in *Intake[T]) Promise(n int) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asked = true
	if in.loop == nil || in.loop.isStopping() {
		return 0
	}
	n = max(min(n, in.room.now()-in.taken()), 0)
	in.promised += n
	return n
}

// Give hands over items, claimed at a time of this process, on a promise of so many; fewer, or none, take it back. It reports whether the loop has
// them; it has not once it stops, and then they are to be given back.
func (in *Intake[T]) Give(promised int, items []T, at time.Time) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.promised -= promised
	l := in.loop
	if l != nil && len(items) < promised {
		select {
		case l.nudge <- struct{}{}: // it may have waited for the room
		default:
		}
	}
	if len(items) == 0 {
		return true
	}
	if l == nil || l.isStopping() {
		return false
	}
	crash.Point("given")
	for _, group := range l.units(items, at) {
		in.arrived = append(in.arrived, group...)
		l.queue <- group // there is room: it was promised
	}
	return true
}

// InHand is how many items the loop has claimed whose outcome is not recorded.
func (in *Intake[T]) InHand() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.loop == nil {
		return 0
	}
	in.loop.mu.Lock()
	defer in.loop.mu.Unlock()
	return len(in.loop.leased)
}

// open has l take items.
func (in *Intake[T]) open(l *loop[T]) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loop = l
}

// close has it take none any more.
func (in *Intake[T]) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loop, in.room = nil, space{}
}

// taken is how much of the room is promised, or of what the driving goroutine does not know yet. Only with mu held.
func (in *Intake[T]) taken() int { return in.promised + len(in.arrived) }

// admit holds what has come by the intake.
func (l *loop[T]) admit() {
	if l.intake == nil {
		return
	}
	l.intake.mu.Lock()
	defer l.intake.mu.Unlock()
	l.hold(l.intake.arrived)
	l.intake.room.free -= len(l.intake.arrived)
	l.intake.arrived = nil
}

// taken is how much of what may be in hand the intake has.
func (l *loop[T]) taken() int {
	if l.intake == nil {
		return 0
	}
	l.intake.mu.Lock()
	defer l.intake.mu.Unlock()
	return l.intake.taken()
}

// divide gives the intake what may be in hand beside what is, and beside a claim of up to n; it returns of how many that is, since half of it is the intake's where that
// is asked for any. While more waits to be claimed than there was room for, or the database does not answer, the intake has none: who came before goes before; nor while a claim is to come and has
// no room yet (n is 0).
func (l *loop[T]) divide(n int) int {
	in := l.intake
	if in == nil {
		return n
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	most := l.most()
	free := most - len(l.held)
	if l.behind || l.failures > 0 || l.split > 0 && len(l.done) > 0 || l.hungry && n == 0 {
		in.room = space{}
		return max(min(n, free-in.taken()), 0)
	}
	if in.asked {
		n = (n + 1) / 2
	}
	n = max(min(n, free-in.taken()), 0)
	in.room = space{free: free - n, ahead: most - l.runners(), at: time.Now()}
	return n
}
