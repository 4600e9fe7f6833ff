package metrics

import "context"

// Refresh asks for the installation's figures now, as Run does from time to time.
func (m *Collector) Refresh(ctx context.Context) error { return m.refresh(ctx) }
