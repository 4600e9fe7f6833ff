package run

import "time"

// Statements are what the tests check against the installed schema.
var Statements = query

// Waiting is how many events wait that are in no statement.
func (a *Appender) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

// Gathers is how many are enough for the next statement after some of these sizes, and whether they are waited for.
func Gathers(sizes ...int) (enough int, waited bool) {
	var g gathering
	for _, n := range sizes {
		g.learn(n, time.Second)
	}
	until, enough := g.company()
	return enough, until != nil
}
