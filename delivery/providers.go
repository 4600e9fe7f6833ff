package delivery

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// ProviderState is a provider and what waits for it.
type ProviderState struct {
	Name             string             `json:"name"`
	Kind             string             `json:"kind,omitempty"`
	Account          string             `json:"account,omitempty"`
	Sandbox          bool               `json:"sandbox,omitempty"` // everything goes there
	Registered       bool               `json:"registered"`        // some ledger has served it
	KeyWindowSeconds float64            `json:"key_window_seconds,omitempty"`
	LookUp           bool               `json:"look_up"`
	Queued           int64              `json:"queued"`
	Due              int64              `json:"due"`                      // of these
	Deferred         int64              `json:"deferred"`                 // of the queued: put off for now, as by a server that greylists; they go on by themselves
	DeferredSince    *time.Time         `json:"deferred_since,omitempty"` // when the first of those was
	Sending          int64              `json:"sending"`
	InDoubt          int64              `json:"in_doubt"`
	Held             int64              `json:"held"`
	Dead             int64              `json:"dead"`             // that may be put back: not a run's, nor of who was erased, nor proved to have been accepted
	Paused           int64              `json:"paused"`           // 1 if it is, and 1 for each of its destinations and tenants that is
	Pauses           []Pause            `json:"pauses,omitempty"` // the oldest 20 of them, the provider's own first
	Limits           map[string]float64 `json:"limits,omitempty"` // calls a second, by domain; "" is the provider's own
	Idle             *Idle              `json:"idle,omitempty"`   // nil: nobody has said that it waits
}

// MostCounted is up to how many deliveries of a provider are counted in each state,
// and pauses of it: where there are so many there may be more.
const MostCounted = 10_000

// Pause says that a provider, or one of its destinations, is left alone: it
// could not be reached, or takes nothing now. Deliveries wait and lose nothing.
type Pause struct {
	Destination string    `json:"destination,omitempty"` // such as a webhook's host; "" is all of the provider
	Tenant      string    `json:"tenant,omitempty"`      // whose deliveries to the destination wait; "" is everybody's
	Since       time.Time `json:"since"`
	Until       time.Time `json:"until"`   // then a delivery finds out whether it is over
	Probing     bool      `json:"probing"` // one does so now
	Failures    int       `json:"failures"`
	Why         string    `json:"why"`
}

// Providers lists the providers that were registered or that something waits
// for, by name.
func (l *Ledger) Providers(ctx context.Context) ([]ProviderState, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	rows, err := l.pool.Query(ctx, query.Providers, MostCounted)
	if err != nil {
		return nil, deed.WrapError("providers", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ProviderState, error) {
		var p ProviderState
		var window *float64
		var limits, pauses, idle *string
		if err := row.Scan(&p.Name, &p.Kind, &p.Account, &p.Sandbox, &p.Registered, &window, &p.LookUp,
			&p.Queued, &p.Due, &p.Sending, &p.InDoubt, &p.Held, &p.Dead, &p.Paused, &pauses, &limits, &idle, &p.Deferred, &p.DeferredSince); err != nil {
			return p, err
		}
		if window != nil {
			p.KeyWindowSeconds = *window
		}
		if pauses != nil {
			if err := json.Unmarshal([]byte(*pauses), &p.Pauses); err != nil {
				return p, err
			}
		}
		if idle != nil {
			if err := json.Unmarshal([]byte(*idle), &p.Idle); err != nil {
				return p, err
			}
		}
		if limits != nil {
			return p, json.Unmarshal([]byte(*limits), &p.Limits)
		}
		return p, nil
	})
	return list, deed.WrapError("providers", err)
}

// Resume ends a provider's pauses, or with a destination only that one's, for all
// tenants, and says how many. What is still down is paused again by
// the next calls. Errors: [deed.NotFound] if nothing is paused;
// [deed.Invalid] unless act says who and why. Needs deed_admin.
func (l *Ledger) Resume(ctx context.Context, provider, destination string, act audit.Act) (int64, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var n int64
	err := l.pool.QueryRow(ctx, query.Resume, provider, sqlvalue.NullIfZero(destination), act.Reason, act.By).Scan(&n)
	return n, deed.WrapError("resume provider", err)
}
