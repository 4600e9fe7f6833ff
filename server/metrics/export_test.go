package metrics

import (
	"context"
	"time"
)

// Refresh asks for the installation's figures now, as Run does from time to time.
func (m *Collector) Refresh(ctx context.Context) error { return m.refresh(ctx) }

// Examine counts the doctor's findings now, as Run does once a minute. Run must not run.
func (m *Collector) Examine(ctx context.Context) {
	m.examineAt = time.Time{}
	m.examine(ctx)
}
