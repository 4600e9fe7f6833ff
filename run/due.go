package run

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// StepState is where a step is that is due, or waits.
type StepState string

// The states of steps by which a run goes on.
const (
	StepReady   StepState = "READY"   // nobody has claimed it
	StepWaiting StepState = "WAITING" // for its time
	StepClaimed StepState = "CLAIMED" // it is some engine's
	StepHeld    StepState = "HELD"    // it has failed, and waits for a person: [RetryStep], [Cancel]
)

// DueStep is a step by which a run goes on.
type DueStep struct {
	Step  string    `json:"step_id"`
	State StepState `json:"state"`
	// Attempt is the logical one, and EngineAttempt how often that was claimed (R5).
	Attempt       int    `json:"logical_attempt"`
	EngineAttempt int    `json:"engine_attempt"`
	LostClaims    int    `json:"lost_claims"`
	Queue         string `json:"queue"`
	// DueAt is since when it is due, or when it will be; of a step that is held the end of the hold. nil: never by itself.
	DueAt      *time.Time `json:"due_at,omitempty"`
	BegunAt    *time.Time `json:"begun_at,omitempty"`
	ClaimedBy  string     `json:"claimed_by,omitempty"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
}

// Due returns the steps by which a run goes on, in the plan's order: those that are ready, claimed, or wait for their
// time or for a person. A run that has ended, or has not begun, has none; what else its steps are [Show] says.
// Errors: [deed.NotFound], also for another tenant's; [deed.Invalid].
func Due(ctx context.Context, db deed.DB, id string) ([]DueStep, error) {
	if _, err := Find(ctx, db, id); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, query.Due, id)
	if err != nil {
		return nil, wrap("steps of run", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[DueStep])
	return list, wrap("steps of run", err)
}
