package work

import "time"

// mostPatience is how long the first of those that go together waits for the others, at most.
const mostPatience = 5 * time.Millisecond

// Company is what statements lately say of the next. Those whom one has answered ask again, or their like, one after the other: were the first of
// them sent off at once, each second statement would be of one. Who is alone, as before, waits for nobody. The zero value knows of none; it is of
// one goroutine at a time.
type Company struct {
	size float64       // of the greatest, by an eighth less with each that was smaller
	took time.Duration // so long did it take, as much less
}

// Learn notes a statement of n.
func (c *Company) Learn(n int, took time.Duration) {
	if c.size, c.took = c.size*7/8, c.took*7/8; float64(n) >= c.size {
		c.size, c.took = float64(n), took
	}
}

// Awaited is when the rest is waited for no longer, and how many are enough before: as many, for half of the time.
func (c *Company) Awaited() (until <-chan time.Time, enough int) {
	if c.size < 2 {
		return nil, 0
	}
	return time.After(min(c.took/2, mostPatience)), int(c.size)
}
