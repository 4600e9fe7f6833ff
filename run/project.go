package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// GapError says that an event is missing (R7): what comes after it is not applied.
type GapError struct {
	Run           string
	Expected, Got int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("deed: project: run %s: event %d is expected, and %d comes", e.Run, e.Expected, e.Got)
}

// Project is the snapshot of a run's events from the first on, in the order of their
// numbers: [Snapshot.Apply] to nothing.
func Project(events ...Event) (Snapshot, error) { return Snapshot{}.Apply(events...) }

// Apply returns s with what comes after it; s stays as it is. Events are in the order of
// their numbers; those that are in s already change nothing. It is pure: the same events
// give the same snapshot, in whatever portions (R6). An event of a type that it does not know, or
// that the run does not take there, moves LastEventSeq on and nothing else. The error is a
// [*GapError], beside the snapshot of what comes before the gap; or one of two runs' events.
func (s Snapshot) Apply(events ...Event) (Snapshot, error) {
	p := projection{Snapshot: s}
	for i := range events {
		e := &events[i]
		switch {
		case p.RunID != "" && e.RunID != p.RunID:
			return p.done(), fmt.Errorf("deed: project: an event of run %s among those of %s", e.RunID, p.RunID)
		case e.Seq <= p.LastEventSeq:
			continue
		case e.Seq != p.LastEventSeq+1:
			return p.done(), &GapError{Run: e.RunID, Expected: p.LastEventSeq + 1, Got: e.Seq}
		}
		p.own()
		p.RunID, p.LastEventSeq = e.RunID, e.Seq
		p.apply(e)
	}
	return p.done(), nil
}

// cell is an event at a status.
type cell struct {
	typ  Type
	from Status
}

// next is where an event leads; ok is false where the run does not take it. It is what
// deed.run_transitions says.
func (c cell) next() (to Status, ok bool) {
	switch c.typ {
	case RunApproved:
		return Approved, c.from == Pending
	case RunStarted:
		return Running, c.from == Approved
	case RunPaused:
		return Paused, c.from == Running
	case RunResumed:
		return Running, c.from == Paused
	case RunCompleted:
		return Completed, c.from == Running
	case RunFailed:
		return Failed, !c.from.Final()
	case RunCancelled:
		return Cancelled, !c.from.Final()
	case StepStarted, StepCompleted, StepFailed, StepSkipped:
		return c.from, c.from == Running || c.from == Paused
	case SignalAccepted, SignalRejected:
		return c.from, true
	}
	return c.from, false
}

// fieldsOf are the data of an event. What does not read is as if it were absent: the log is
// there, whatever somebody has put into it.
func fieldsOf(e *Event) (fields map[string]json.RawMessage) {
	if json.Unmarshal(e.Data, &fields) != nil {
		return nil
	}
	return fields
}

func field[T any](fields map[string]json.RawMessage, name string) T {
	var v, none T
	if json.Unmarshal(fields[name], &v) != nil {
		return none
	}
	return v
}

// projection is a snapshot that is being made: what it shares with the one before it copies
// before it changes it, once.
type projection struct {
	Snapshot
	owned bool
	at    map[string]int // where each step is in Steps; nil until it is asked for
}

func (p *projection) own() {
	if !p.owned {
		p.Steps, p.owned = slices.Clone(p.Steps), true
	}
}

func (p *projection) done() Snapshot {
	if p.Status == "" {
		p.Status = Pending
	}
	if p.Steps == nil {
		p.Steps = []StepSnapshot{}
	}
	if p.Artifacts == nil {
		p.Artifacts = []Artifact{}
	}
	return p.Snapshot
}

func (p *projection) apply(e *Event) {
	if p.Status == "" {
		p.Status = Pending
	}
	to, ok := cell{e.Type, p.Status}.next()
	if !ok {
		return
	}
	p.Status = to
	switch e.Type {
	case RunStarted:
		data := fieldsOf(e)
		p.StartedAt, p.EngineRunRef = moment(e.EmittedAt), data["engine_run_ref"]
		for _, id := range field[[]string](data, "steps") {
			p.step(id)
		}
	case StepStarted, StepCompleted, StepFailed, StepSkipped:
		p.applyStep(e)
	case RunCompleted, RunFailed, RunCancelled:
		p.end(e)
	}
}

// applyStep changes one step. Of an attempt that has ended, or that another came after,
// nothing is said any more.
func (p *projection) applyStep(e *Event) {
	s := p.step(e.Step)
	ended := s.Status != StepPending && s.Status != StepRunning
	if e.Attempt < s.Attempt || e.Attempt == s.Attempt && ended {
		return
	}
	if s.Status == StepFailure {
		p.FailedSteps--
	}
	if e.Attempt > s.Attempt {
		*s = StepSnapshot{ID: s.ID, Attempt: e.Attempt, Artifacts: []Artifact{}}
	}
	s.LastEventSeq = e.Seq
	if e.EngineAttempt > 0 {
		s.EngineAttempt = e.EngineAttempt
	}
	if e.Type == StepStarted {
		s.Status, s.StartedAt = StepRunning, moment(e.EmittedAt)
		return
	}
	data := fieldsOf(e)
	s.CompletedAt = moment(e.EmittedAt)
	switch e.Type {
	case StepCompleted:
		s.Status = StepSuccess
		if made := field[[]Artifact](data, "artifacts"); made != nil {
			s.Artifacts = made
		}
	case StepFailed:
		s.Status, s.Error = StepFailure, field[*Error](data, "error")
		p.FailedSteps++
	case StepSkipped:
		s.Status, s.Reason = StepSkip, field[string](data, "reason")
	}
}

func (p *projection) end(e *Event) {
	p.CompletedAt = moment(e.EmittedAt)
	if p.StartedAt != nil {
		ms := max(0, p.CompletedAt.Sub(*p.StartedAt).Milliseconds())
		p.TotalDurationMs = &ms
	}
	p.Artifacts = nil
	var first *StepSnapshot
	for i := range p.Steps {
		s := &p.Steps[i]
		p.Artifacts = append(p.Artifacts, s.Artifacts...)
		if s.Status == StepFailure && (first == nil || s.LastEventSeq < first.LastEventSeq) && !p.wentOn(s) {
			first = s
		}
	}
	if e.Type != RunFailed {
		return
	}
	p.RootCause = &RootCause{Error: field[*Error](fieldsOf(e), "error")}
	if first != nil {
		p.RootCause = &RootCause{Step: first.ID, Error: first.Error}
	}
}

// wentOn says of one that has failed that it is an inner step (STEP/NAME), and that its outer step has not failed: the code went on.
func (p *projection) wentOn(s *StepSnapshot) bool {
	outer, _, _ := strings.Cut(s.ID, "/")
	i, ok := p.index()[outer]
	return ok && p.Steps[i].Status != StepFailure
}

// step is the one of that id, which is made where there is none. The pointer holds until the
// next one is asked for.
func (p *projection) step(id string) *StepSnapshot {
	i, ok := p.index()[id]
	if !ok {
		i = len(p.Steps)
		p.at[id] = i
		p.Steps = append(p.Steps, StepSnapshot{ID: id, Status: StepPending, Artifacts: []Artifact{}})
	}
	return &p.Steps[i]
}

func (p *projection) index() map[string]int {
	if p.at == nil {
		p.at = make(map[string]int, len(p.Steps)+1)
		for i := range p.Steps {
			p.at[p.Steps[i].ID] = i
		}
	}
	return p.at
}

// moment is a time as snapshots have it: in UTC, to the microsecond, as the store keeps it.
func moment(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}
