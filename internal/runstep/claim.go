package runstep

import (
	"encoding/json"
	"time"

	"github.com/deedhq/deed/tenant"
)

// Engine is one of the process in which runs are started, as a Starter knows it. Its functions may be called by several goroutines at once.
type Engine struct {
	// Wake says that steps may be due.
	Wake func()
	// InHand is how many steps it has claimed whose end is not recorded.
	InHand func() int
	// Claim is what it takes of what so many requests start; nil: nothing now.
	Claim func(requests int) *Claim
}

// Claim is what an engine asks for of what is started beside it: the first steps of runs, at most so many, in its queues. After the statement Take is called once, with what
// was claimed and when the statement began; with nothing where it was not done.
type Claim struct {
	Queues []string
	Worker string
	Lease  time.Duration
	Most   int
	Take   func(steps []Claimed, at time.Time)
}

// Claimed is a step that was claimed as its run began.
type Claimed struct {
	Run, Step  string
	Place      int
	Claim      int64
	Tenant     tenant.ID
	AtMostOnce bool
	// The plan, and the run's input.
	Plan, Version string
	Hash          []byte
	Input         json.RawMessage
}
