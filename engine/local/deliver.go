package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// owed is the delivery of a step, which is reserved in the transaction that records its end, or that it waits.
type owed struct {
	delivery.Delivery
	reserved bool // in a transaction before: it is only looked at
	wait     bool // until it has ended
}

// deliver makes the delivery of a step. One that waited for its delivery has been woken, and looks at it.
func (it *item) deliver(p *plan.Plan, st *plan.Step, data plan.Data, started time.Time) error {
	d := delivery.Delivery{Channel: delivery.Channel(st.Channel), Provider: st.Provider, Key: it.keySum(), CorrelationID: it.run}
	if it.begun != nil {
		started = *it.begun
	}
	if !it.parked {
		var err error
		if d.Recipient, err = it.text(p, st, data, "to"); err != nil {
			return err
		}
		if d.Payload, err = st.Resolve(p, "payload", data); err != nil {
			return err
		}
	}
	it.end = it.completed(nil, started)
	it.end.owed = &owed{d, it.parked, st.WaitSent}
	return nil
}

// reserve reserves the deliveries of ends, and returns ends as what became of those says.
func reserve(ctx context.Context, tx pgx.Tx, ends []*ending) ([]*ending, error) {
	byTenant := map[tenant.ID][]delivery.Delivery{}
	var tenants []string
	var keys [][]byte
	var at []int
	for i, end := range ends {
		if end.owed == nil {
			continue
		}
		if !end.owed.reserved {
			byTenant[end.it.tenant] = append(byTenant[end.it.tenant], end.owed.Delivery)
		}
		tenants, keys, at = append(tenants, end.it.tenant.String()), append(keys, end.owed.Key[:]), append(at, i)
	}
	if len(at) == 0 {
		return ends, nil
	}
	for _, owner := range slices.SortedFunc(maps.Keys(byTenant), func(a, b tenant.ID) int { return cmp.Compare(a.String(), b.String()) }) {
		if _, err := delivery.ReserveFor(ctx, tx, owner, byTenant[owner]...); err != nil {
			return nil, err
		}
	}
	crash.Point("reserved deliveries")
	rows, err := tx.Query(ctx, query.Deliveries, tenants, keys)
	if err != nil {
		return nil, err
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[deliveryState])
	if err != nil {
		return nil, err
	}
	ends = slices.Clone(ends)
	for n, i := range at {
		ends[i] = ends[i].owing(states[n])
	}
	return ends, nil
}

// deliveryState is what has become of a delivery; without an ID it is there no more.
type deliveryState struct {
	ID        string          `json:"delivery"`
	Status    delivery.Status `json:"status"`
	MessageID string          `json:"provider_message_id,omitempty"`
	Why       string          `json:"-"`
	Unsure    bool            `json:"-"` // it may have been done, although it ended badly
}

// owing is the end of a step whose delivery is s. What has failed or is dead may be put back, and be sent then: another
// attempt of the step is for the same delivery, unless a person wants another one.
func (end *ending) owing(s deliveryState) *ending {
	said := func(category, code string, notDone bool) *ending {
		err := errors.New(cmp.Or(s.Why, "the delivery is "+string(s.Status)))
		return end.it.failed(&run.Failure{Category: category, Code: code, Final: true, NotDone: notDone, Err: err}, end.started)
	}
	switch s.Status {
	case "":
		s.Why = "the delivery is there no more: retention has removed it, or somebody has; nobody knows whether it was sent"
		return said("infrastructure", "DELIVERY_GONE", false)
	case delivery.Failed:
		return said("provider", "DELIVERY_FAILED", false)
	case delivery.Dead:
		return said("provider", "DELIVERY_DEAD", false)
	case delivery.Skipped:
		return said("user", "DELIVERY_SKIPPED", !s.Unsure)
	case delivery.Queued, delivery.Sending:
		if end.owed.wait {
			return &ending{it: end.it, outcome: "waiting", started: end.started, woken: true}
		}
	}
	output, err := json.Marshal(s)
	if err != nil {
		return end.it.failed(err, end.started)
	}
	return end.it.completed(output, end.started)
}

// wakeEvery is how often it is asked at the most whether deliveries have ended that steps wait for.
const wakeEvery = 100 * time.Millisecond

// waker asks, for all steps that wait for deliveries, which of those have ended, until ctx does: a thousand at once.
func (e *Engine) waker(ctx context.Context) {
	var next struct {
		run   *string
		place *int
	}
	for work.Sleep(ctx, max(e.opts.PollInterval, wakeEvery)) {
		bounded, cancel := context.WithTimeout(ctx, e.opts.Deadline)
		var woken int
		err := e.pool.QueryRow(bounded, query.Wake, next.run, next.place).Scan(&woken, &next.run, &next.place)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			e.opts.Logger.Warn("whether deliveries have ended that steps wait for is not known; it is asked again", "error", deed.WrapError("wake steps", err))
		case woken > 0:
			e.Wake()
		}
	}
}
