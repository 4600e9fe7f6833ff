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
	size int
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
	// Uses are the steps that its expressions ask about, in the order in which they do first.
	Uses []Use
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
	uses              map[string]int // where each is in Uses
	afterLines        []int          // of After
}

// Use is a step that another one's expressions ask about, and what of it, besides its status: nothing else of it is looked at.
type Use struct {
	Step          string
	Output, Error bool
}

// use notes that an expression asks for what stands under a field of a step, or "": for all of it.
func (s *Step) use(step, field string) {
	i, ok := s.uses[step]
	if !ok {
		if s.uses == nil {
			s.uses = map[string]int{}
		}
		i = len(s.Uses)
		s.uses[step], s.Uses = i, append(s.Uses, Use{Step: step})
	}
	s.Uses[i].Output = s.Uses[i].Output || field == "output" || field == ""
	s.Uses[i].Error = s.Uses[i].Error || field == "error" || field == ""
}

// Body is the plan in its canonical form: JSON without spaces, its keys sorted, but for the
// steps, which stay in their order. What is stored and hashed.
func (p *Plan) Body() []byte { return append([]byte(nil), p.body...) }

// SHA256 is that of [Plan.Body].
func (p *Plan) SHA256() []byte { return append([]byte(nil), p.hash[:]...) }

// Size is about how many bytes the plan takes in memory: what is compiled of its expressions, mostly.
func (p *Plan) Size() int { return p.size }

// Step is the one of that name, or nil.
func (p *Plan) Step(id string) *Step {
	for _, s := range p.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}
