package run

import (
	"encoding/json"
	"time"
)

// Status is where a run is.
type Status string

// The statuses of runs. A run that nothing has happened to is Pending; the last three are
// final.
const (
	Pending   Status = "PENDING"
	Approved  Status = "APPROVED"
	Running   Status = "RUNNING"
	Paused    Status = "PAUSED"
	Completed Status = "COMPLETED"
	Failed    Status = "FAILED"
	Cancelled Status = "CANCELLED"
)

// statuses are all of them; read-only.
var statuses = [...]Status{Pending, Approved, Running, Paused, Completed, Failed, Cancelled}

// Final reports whether a run of that status has ended.
func (s Status) Final() bool { return s == Completed || s == Failed || s == Cancelled }

// StepStatus is where a step is.
type StepStatus string

// The statuses of steps.
const (
	StepPending StepStatus = "PENDING" // the plan has it, and it has not begun
	StepRunning StepStatus = "RUNNING"
	StepSuccess StepStatus = "SUCCESS"
	StepFailure StepStatus = "FAILED"
	StepSkip    StepStatus = "SKIPPED"
)

// Snapshot is what a run was after an event (R6): a value, which nothing changes. Its JSON
// is spelled as seed 001 has it. The zero value is the run before its first event.
type Snapshot struct {
	RunID  string `json:"runId"`
	Status Status `json:"status"`
	// LastEventSeq is the number of the last event that is in it.
	LastEventSeq int64 `json:"lastEventSeq"`
	// Steps are in the plan's order, and then in that in which they began.
	Steps []StepSnapshot `json:"steps"`
	// Artifacts are those of all steps, once the run has ended.
	Artifacts   []Artifact `json:"artifacts"`
	StartedAt   *time.Time `json:"startedAt,omitempty"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
	// TotalDurationMs is from the start to the end, by the emitters' clocks.
	TotalDurationMs *int64 `json:"totalDurationMs,omitempty"`
	// FailedSteps counts those that are FAILED.
	FailedSteps int `json:"failedSteps"`
	// RootCause is why the run has failed: the step that failed first, but for inner steps whose outer one has not failed.
	RootCause    *RootCause      `json:"rootCause,omitempty"`
	EngineRunRef json.RawMessage `json:"engineRunRef,omitempty"`
}

// StepSnapshot is what a step was.
type StepSnapshot struct {
	ID     string     `json:"stepId"`
	Status StepStatus `json:"status"`
	// Attempt is the newest logical one; 0 before the first.
	Attempt       int        `json:"logicalAttemptId,string"`
	EngineAttempt int        `json:"engineAttemptId,string,omitempty"`
	StartedAt     *time.Time `json:"startedAt,omitempty"`
	CompletedAt   *time.Time `json:"completedAt,omitempty"`
	Artifacts     []Artifact `json:"artifacts"`
	Error         *Error     `json:"error,omitempty"`
	Reason        string     `json:"reason,omitempty"` // why it was skipped
	LastEventSeq  int64      `json:"lastEventSeq"`     // of its own events; 0 before the first
}

// Artifact refers to what a step has made; its bytes are elsewhere (R10).
type Artifact struct {
	URI       string     `json:"uri"`
	Kind      string     `json:"kind"`
	SHA256    string     `json:"sha256,omitempty"`
	SizeBytes int64      `json:"sizeBytes,omitempty"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// Error is why a step or a run has failed.
type Error struct {
	Category  string `json:"category,omitempty"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
}

// RootCause is the error that made a run fail. Step is empty where no step is the cause.
type RootCause struct {
	Step  string `json:"stepId,omitempty"`
	Error *Error `json:"error,omitempty"`
}
