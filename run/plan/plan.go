package plan

import (
	"crypto/sha256"
	"encoding/json"
	"time"
)

// SchemaVersion is the version of the form that plans are written in.
const SchemaVersion = 1

// A Kind is what a step does.
type Kind string

// The kinds of steps.
const (
	Go       Kind = "go"       // calls a handler of the engine's process
	HTTP     Kind = "http"     // makes a request
	Publish  Kind = "publish"  // publishes a message
	Deliver  Kind = "deliver"  // reserves a delivery
	External Kind = "external" // is done by a worker of any language, from a queue
	Sleep    Kind = "sleep"    // waits
)

// Plan is a plan that has been checked. Nothing changes it; it may be used by any number of
// goroutines.
type Plan struct {
	ID, Version string
	// Approval: a person has to approve a run before it begins.
	Approval bool
	// Hold is for how long a run waits for a person when a step has failed; 0: it fails.
	Hold time.Duration
	// Params is a JSON object that expressions see as params.
	Params json.RawMessage
	// Steps are in the order of the file.
	Steps []*Step

	body []byte
	hash [sha256.Size]byte
}

// Step is a step of a plan.
type Step struct {
	ID   string
	Kind Kind
	// After are the steps that must have ended before.
	After []string
	// NeedsSuccess: it is skipped unless all of After succeeded.
	NeedsSuccess bool
	// When is the condition as it is written, and is empty without one.
	When string
	// Attempts is how many logical ones the plan allows, and Backoff what the second waits.
	Attempts int
	Backoff  time.Duration
	Timeout  time.Duration // 0: the engine's own
	// AtMostOnce: an attempt of which nobody knows whether it was made is not repeated.
	AtMostOnce bool
	// Uses are the steps that its expressions ask about.
	Uses []string
	// Secrets are references by the name that the step knows them by, never values (R9).
	Secrets map[string]string

	Handler           string        // of go
	Queue             string        // of external
	Topic             string        // of publish
	Channel, Provider string        // of deliver
	WaitSent          bool          // of deliver: it ends when the provider has taken it
	Method            string        // of http
	For               time.Duration // of sleep, unless Until says when
	fields            map[string]*value
	when              *expression
	afterLines        []int // of After
}

// Body is the plan in its canonical form: JSON without spaces, its keys sorted, but for the
// steps, which stay in their order. What is stored and hashed.
func (p *Plan) Body() []byte { return append([]byte(nil), p.body...) }

// SHA256 is that of [Plan.Body].
func (p *Plan) SHA256() []byte { return append([]byte(nil), p.hash[:]...) }

// Step is the one of that name, or nil.
func (p *Plan) Step(id string) *Step {
	for _, s := range p.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}
