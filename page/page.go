// Package page is what long lists come in.
//
// A list goes on by key: [Of.Next] is given as the cursor of the same call, with the
// same filter, until it is empty. What is added or taken away meanwhile moves
// nothing else from one page to another.
package page

import "time"

// Of is a part of a list, in the list's order.
type Of[T any] struct {
	Items []T

	// Next is the cursor with which the list goes on; "": nothing follows.
	Next string

	// LookedTo is set where no index finds what was asked for and the look ended
	// before it had found as many: it went back to what is from this time. There may
	// be more before that, and Next goes on there.
	LookedTo *time.Time
}
