package deed

import "time"

// A Page is a part of a list that may be long, in the list's order. Lists go on by
// key: what is added or taken away meanwhile moves nothing else from one page to
// another.
type Page[T any] struct {
	Items []T

	// Next is the cursor with which the list goes on; "": nothing follows.
	Next string

	// LookedTo is set where no index finds what was asked for and the look ended
	// before it had found as many: it went back to what is from this time. There may
	// be more before that, and Next goes on there.
	LookedTo *time.Time
}
