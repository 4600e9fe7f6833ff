package main

import (
	"slices"
	"time"
)

// arrival is one delivery, from the far end's own record.
type arrival struct {
	message string    // its id
	at      time.Time // when the far end had it in hand
	relay   string    // the process that delivered it
	body    string    // the fingerprint of what was delivered
}

// facts are what the verdict is made from: nothing that deed says, but that a
// relay took over what another had left, which is why a message comes again
// on a machine that stands still for longer than the lease.
type facts struct {
	committed map[string]bool      // the flights table
	commits   map[string]time.Time // when the publisher's commits returned
	bodies    map[string]string    // the fingerprint of each flight's line
	events    []event
}

// verdict is what the far end of one subscription has seen.
type verdict struct {
	delivered   int // flights of the flights table that arrived
	lost        int // and that did not
	ghosts      int // flights that arrived and are not in the flights table
	altered     int // arrivals with another body than the published one
	repeats     int // arrivals after a flight's first
	reissued    int // repeats under another message id than the first
	lapsed      int // repeats that no kill explains, of a message whose lease had run out: a relay took it over, and said so
	unexplained int // all other repeats
	byEvent     []int
	all, quiet  []time.Duration // commit to first arrival; quiet: no kill near
	busiest     int             // first arrivals in the busiest second
	first, last time.Time       // of the first arrivals
}

const (
	// settled is how long after its end a kill may still cause repeats and
	// delays: the lease of what was in hand, a retry, and the turn of both.
	settled = lease + 3*time.Second
	// inFlight is how long after a kill the far end may receive what was sent
	// before.
	inFlight = 500 * time.Millisecond
)

// explains reports whether e is why a message came again: the first time,
// shortly before e, its relay could not record the delivery any more, and the
// repeat came as soon as the lease had run out.
func (e event) explains(before, again arrival) bool {
	if e.relay != "" && before.relay != e.relay {
		return false
	}
	end := e.at // a relay's last delivery
	if e.relay == "" {
		end = e.back // meanwhile deliveries go on, and nothing can be recorded
	}
	return !before.at.Before(e.at.Add(-lease)) && !before.at.After(end.Add(inFlight)) &&
		again.at.After(e.at) && !again.at.After(e.back.Add(settled))
}

// near reports whether anything between from and to was in e's time.
func (e event) near(from, to time.Time) bool {
	return !to.Before(e.at) && !from.After(e.back.Add(settled))
}

// judge compares what arrived, by flight, with what was committed. takenOver are
// the messages that the relays say they took over.
func (f facts) judge(seen map[string][]arrival, takenOver map[string]bool) verdict {
	v := verdict{byEvent: make([]int, len(f.events))}
	seconds := map[int64]int{}
	for id, list := range seen {
		slices.SortFunc(list, func(a, b arrival) int { return a.at.Compare(b.at) })
		for _, a := range list {
			if a.body != f.bodies[id] {
				v.altered++
			}
		}
		if !f.committed[id] {
			v.ghosts++
			continue
		}
		v.delivered++
		f.judgeRepeats(&v, list, takenOver)
		at := list[0].at
		seconds[at.Unix()]++
		if v.first.IsZero() || at.Before(v.first) {
			v.first = at
		}
		if at.After(v.last) {
			v.last = at
		}
		commit, ok := f.commits[id]
		if !ok {
			continue
		}
		// The relay may be faster than the commit's answer to the publisher.
		took := max(at.Sub(commit), 0)
		v.all = append(v.all, took)
		if !slices.ContainsFunc(f.events, func(e event) bool { return e.near(commit, at) }) {
			v.quiet = append(v.quiet, took)
		}
	}
	for id := range f.committed {
		if len(seen[id]) == 0 {
			v.lost++
		}
	}
	for _, n := range seconds {
		v.busiest = max(v.busiest, n)
	}
	slices.Sort(v.all)
	slices.Sort(v.quiet)
	return v
}

func (f facts) judgeRepeats(v *verdict, list []arrival, takenOver map[string]bool) {
	for i, again := range list[1:] {
		v.repeats++
		if again.message != list[0].message {
			v.reissued++
		}
		k := slices.IndexFunc(f.events, func(e event) bool { return e.explains(list[i], again) })
		switch {
		case k >= 0:
			v.byEvent[k]++
		case takenOver[again.message]:
			v.lapsed++
		default:
			v.unexplained++
		}
	}
}

// percentile is of a sorted list.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
