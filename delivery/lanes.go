package delivery

import (
	"sync"
	"time"
)

const (
	leastPatience = 500 * time.Millisecond
	mostLanes     = 500 // that are remembered without anything in hand
)

// lanes is what a process knows of the destinations of one provider: which of
// them answer. A lane is known to answer while its last call was answered in
// time; any other has one call at a time, so that destinations that hang hold a
// place each and no more; one more, if it answered before. While several calls
// hang, it is to have answered since they began: destinations that answered until
// now may all hang at once. Deliveries without one
// are all of one lane, which has no name and of which nothing is known: it is
// the provider. Of lanes that are recipients nothing is remembered either, once
// nothing of them is in hand: there are too many, and each has little. It looks at the process's monotonic clock, which decides only how
// many calls are made here. A stream's lanes are something else.
type lanes struct {
	most      int  // calls of a lane; 0: no bound
	remembers bool // of lanes without anything in hand

	several int // calls that hang, from which on lanes are to have answered lately

	mu    sync.Mutex
	lane  map[string]*lane // guarded by mu
	usual time.Duration    // guarded by mu: how long an answer takes, lately
	since time.Time        // guarded by mu: when the last call that hangs began

	hanging int // guarded by mu: calls under way that hang
}

type lane struct {
	inHand   int // claimed deliveries
	calls    int // under way
	answers  bool
	chance   bool      // it hangs, and answered before
	answered time.Time // when it last answered in time
}

// newLanes is for a provider that may have so many calls at once, and of one lane so many.
func newLanes(calls, most int, remembers bool) *lanes {
	return &lanes{most: most, remembers: remembers, several: max(1, calls/4), lane: map[string]*lane{}}
}

// bound is how many calls a lane may have at once; 0: any number. mu is held.
func (l *lanes) bound(name string, d *lane) int {
	late := l.hanging >= l.several
	switch {
	case name == "":
		return 0
	case !d.answers && d.chance && !late:
		return 2
	case !d.answers, late && d.answered.Before(l.since):
		return 1
	}
	return l.most
}

// claimed counts a delivery into a lane, and settled out of it.
func (l *lanes) claimed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of(name).inHand++
}

func (l *lanes) settled(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.lane[name]; d != nil {
		d.inHand = max(d.inHand-1, 0)
		l.forget(name, d)
	}
}

func (l *lanes) of(name string) *lane {
	d := l.lane[name]
	if d == nil {
		d = &lane{}
		l.lane[name] = d
	}
	return d
}

// forget drops what need not be known of a lane, and what is too much to know.
func (l *lanes) forget(name string, d *lane) {
	if d.inHand > 0 || d.calls > 0 {
		return
	}
	if !d.answers || !l.remembers || len(l.lane) > mostLanes {
		delete(l.lane, name)
	}
}

// rooms are the lanes that may not take the usual one delivery more, and how
// many each may take: nil is any number.
func (l *lanes) rooms() (names []string, rooms []*int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, d := range l.lane {
		if name == "" {
			continue
		}
		var room *int
		if bound := l.bound(name, d); bound > 0 {
			n := max(bound-d.inHand, 0)
			room = &n
		}
		names, rooms = append(names, name), append(rooms, room)
	}
	return append(names, ""), append(rooms, nil)
}

// admit reports whether a call to a lane may begin, and counts it.
func (l *lanes) admit(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.of(name)
	if bound := l.bound(name, d); bound > 0 && d.calls >= bound {
		return false
	}
	d.calls++
	return true
}

// left counts a call out that was admitted.
func (l *lanes) left(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.lane[name]; d != nil {
		d.calls = max(d.calls-1, 0)
		l.forget(name, d)
	}
}

// patience is how long a call may take before it is taken to hang: four times
// what is usual for the provider.
func (l *lanes) patience() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(leastPatience, 4*l.usual)
}

// hang records that a call to lanes that began then has taken too long: they are not known
// to answer any more, until another call is answered.
func (l *lanes) hang(began time.Time, names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hanging++
	if began.After(l.since) {
		l.since = began
	}
	for _, name := range names {
		d := l.of(name)
		d.chance, d.answers = d.answers, false
	}
}

// hangsNoMore records that such a call has ended.
func (l *lanes) hangsNoMore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hanging--
}

// ended records a call: answered says that there was an answer, in time whether
// it came before the patience was over.
func (l *lanes) ended(name string, answered, inTime bool, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.usual += (took - l.usual) / 8
	}
	if inTime {
		d := l.of(name)
		d.answers, d.chance, d.answered = true, false, time.Now()
	}
}
