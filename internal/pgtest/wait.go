package pgtest

import "time"

// Patience is how long a test waits for what must come: on a machine that is busy
// with other things, what takes two seconds may take a minute.
const Patience = 2 * time.Minute

// Wait waits until cond holds, for what happens in another process, and says
// whether it came to hold within the limit. The longer it takes the more rarely
// it looks, so that the looks of many tests are not what they wait for.
func Wait(limit time.Duration, cond func() bool) bool {
	begun := time.Now()
	for !cond() {
		passed := time.Since(begun)
		if passed > limit {
			return false
		}
		<-time.After(min(max(5*time.Millisecond, passed/10), 100*time.Millisecond))
	}
	return true
}
