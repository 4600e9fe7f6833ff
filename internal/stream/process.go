package stream

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Process is what works for all subscriptions of a process at once: in one
// statement each, however many they are, it asks what is new (Watch) and holds
// the lanes (AssignLanes). Its subscriptions are registered.
type Process struct {
	DB       *pgxpool.Pool
	Name     string        // of the process, for people
	Deadline time.Duration // of a statement
	Log      *slog.Logger
	Readers  []*Reader // of all its subscriptions, those of queues, too
	Feed     *Feed     // the readers'
}

// streaming reports whether any of the topics is a stream.
func (p *Process) streaming() bool {
	for _, r := range p.Readers {
		if r.IsStream() {
			return true
		}
	}
	return false
}

// bounded is the context of one statement.
func (p *Process) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.Deadline)
}
