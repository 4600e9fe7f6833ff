package stream

import "time"

// assignedLane is a lane of this process, as deed.take_lanes tells of it.
type assignedLane struct {
	no int
	slots
	ordered    bool   // the stream keeps the order of each key
	giveBack   bool   // another process is to have it
	fence      int64  // of this ownership
	takeovers  int    // owners in a row that lost it where they had taken it
	lastWindow *int64 // nil: go on; 0: stop between two windows; more: read up to it
}

// assignment is what the assigner tells a reader: its lanes are these, and no
// others.
type assignment struct {
	asked   time.Time // before the leases were renewed
	lanes   []assignedLane
	isQueue bool // the topic is no stream any more
}
