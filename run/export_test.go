package run

import (
	"context"
	"time"
)

// Statements are what the tests check against the installed schema.
var Statements = query

// Waiting is how many events wait that are in no statement.
func (a *Appender) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

// Retain removes old runs for so long.
func (p *Projector) Retain(ctx context.Context, long time.Duration) (more bool, err error) {
	return p.retain(ctx, long)
}
