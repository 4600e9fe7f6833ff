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
// place each and no more; one more, if it answered before. Deliveries without one
// are all of one lane, which has no name and of which nothing is known: it is
// the provider. Of lanes that are recipients nothing is remembered either, once
// nothing of them is in hand: there are too many, and each has little. It looks at the process's monotonic clock, which decides only how
// many calls are made here. A stream's lanes are something else.
type lanes struct {
	most      int  // calls of a lane; 0: no bound
	remembers bool // of lanes without anything in hand

	mu    sync.Mutex
	lane  map[string]*lane // guarded by mu
	usual time.Duration    // guarded by mu: how long an answer takes, lately
}

type lane struct {
	inHand  int // claimed deliveries
	calls   int // under way
	answers bool
	chance  bool // it hangs, and answered before
}

// most is how many calls a lane may have that is not known to answer.
func (d *lane) most() int {
	if d.chance {
		return 2
	}
	return 1
}

func newLanes(most int, remembers bool) *lanes {
	return &lanes{most: most, remembers: remembers, lane: map[string]*lane{}}
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
		switch {
		case name == "":
		case !d.answers:
			room := max(d.most()-d.inHand, 0)
			names, rooms = append(names, name), append(rooms, &room)
		case l.most > 0:
			room := max(l.most-d.inHand, 0)
			names, rooms = append(names, name), append(rooms, &room)
		default:
			names, rooms = append(names, name), append(rooms, nil)
		}
	}
	return append(names, ""), append(rooms, nil)
}

// admit reports whether a call to a lane may begin, and counts it.
func (l *lanes) admit(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.of(name)
	switch {
	case name == "":
	case !d.answers && d.calls >= d.most(), d.answers && l.most > 0 && d.calls >= l.most:
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

// hangs records that a call to a lane has taken too long: it is not known to
// answer any more, until another call is answered.
func (l *lanes) hangs(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.of(name)
	d.chance, d.answers = d.answers, false
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
		d.answers, d.chance = true, false
	}
}
