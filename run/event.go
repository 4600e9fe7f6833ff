package run

import (
	"encoding/json"
	"time"
)

// Topic is the stream on which every event is published, in its own transaction (R13):
// an [Event] as JSON, its key the run's id. Nobody else may publish to it.
const Topic = "deed.run_events"

// Type is what an event says has happened (R4).
type Type string

// The types of events, and who emits them.
const (
	RunApproved    Type = "RunApproved"    // the planner
	RunStarted     Type = "RunStarted"     // the engine; its data list the plan's "steps", and may have "engine_run_ref"
	StepStarted    Type = "StepStarted"    // a worker
	StepCompleted  Type = "StepCompleted"  // a worker; its data have "started_at", and may have "artifacts"
	StepFailed     Type = "StepFailed"     // a worker; its data have "started_at" and an "error"
	StepSkipped    Type = "StepSkipped"    // the engine, or the step itself; its data may have a "reason"
	SignalAccepted Type = "SignalAccepted" // who authorises signals; it changes nothing
	SignalRejected Type = "SignalRejected" // as SignalAccepted
	RunPaused      Type = "RunPaused"      // the engine
	RunResumed     Type = "RunResumed"     // the engine
	RunCompleted   Type = "RunCompleted"   // the engine
	RunFailed      Type = "RunFailed"      // the engine; its data may have an "error"
	RunCancelled   Type = "RunCancelled"   // the engine
)

// Event is one event of a run, as it is stored and published. Its JSON is spelled as
// seed 001 has it.
type Event struct {
	RunID string `json:"runId"`
	// Seq counts a run's events from 1, without a gap (R2).
	Seq  int64  `json:"runSeq"`
	ID   string `json:"eventId"`
	Type Type   `json:"eventType"`
	// Step is empty for events of the run itself.
	Step string `json:"stepId,omitempty"`
	// Attempt is the logical one: it moves on when somebody asks for a retry, or the
	// plan's policy does (R5).
	Attempt int `json:"logicalAttemptId,string"`
	// EngineAttempt counts the engine's own retries. 0: it gave none.
	EngineAttempt int             `json:"engineAttemptId,string,omitempty"`
	Data          json.RawMessage `json:"eventData"`
	// Key is what makes another event a repeat of this one (R3), as 64 hex digits.
	Key            string          `json:"idempotencyKey"`
	EmittedAt      time.Time       `json:"emittedAt"`   // by the emitter's clock
	PersistedAt    time.Time       `json:"persistedAt"` // by the database's
	AdapterVersion string          `json:"adapterVersion,omitempty"`
	EngineRunRef   json.RawMessage `json:"engineRunRef,omitempty"`
	Signal         string          `json:"causedBySignalId,omitempty"`
	Parent         string          `json:"parentEventId,omitempty"`
}
