package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/held"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/schema"
)

// Ledger attempts, settles and reconciles deliveries, and answers questions
// about them. It may be used by several goroutines at once.
type Ledger struct {
	pool    *pgxpool.Pool
	opts    Options
	gate    *held.Gate
	sources []*source
	inHand  weights     // of claimed contents
	events  *work.Rooms // being recorded, by provider
}

// What others have locked is waited for where events are recorded, and whoever brings them brings them again: the rest of
// the connections is the deliveries', and one of these is another provider's.
const (
	mostRecording   = 3 // statements at once
	mostRecordingOf = 2 // of one provider
)

// newGate is what holds the ledger. One without a provider calls nobody.
func newGate(l *Ledger) *held.Gate {
	on := l.opts.OnNewCluster
	if len(l.opts.Providers) == 0 {
		on = deed.Continue
	}
	return &held.Gate{
		Pool: l.pool, What: "deliveries", OnNewCluster: string(on), Environment: l.opts.Environment,
		Logger: l.opts.Logger, Deadline: l.opts.Deadline, Passing: passing,
	}
}

// Held says why [Ledger.Run] waits on a new cluster; empty: it does not.
func (l *Ledger) Held() string { return l.gate.Held() }

// New checks opts and the installed schema; it starts nothing.
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Ledger, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, invalidf("new ledger", "%w", err)
	}
	if _, err := schema.Check(ctx, pool); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, max(opts.Deadline, 10*time.Second))
	defer cancel()
	err = pool.AcquireFunc(bounded, func(conn *pgxpool.Conn) error { return sqlfile.Check(bounded, conn.Conn(), query) })
	if err != nil {
		return nil, deed.WrapError("new ledger", err)
	}
	l := &Ledger{pool: pool, opts: opts, events: work.NewRooms(mostRecording, mostRecordingOf)}
	l.gate = newGate(l)
	for _, name := range slices.Sorted(maps.Keys(opts.Providers)) {
		l.sources = append(l.sources, newSource(l, name, opts.Providers[name]))
	}
	return l, nil
}

// Wake makes the ledger look for deliveries now, after a reservation's commit.
// Nothing depends on it.
func (l *Ledger) Wake() {
	for _, s := range l.sources {
		s.wake()
	}
}

// Drained reports whether nothing of the ledger's providers is unfinished but
// what waits for a person, and what is due in more than a minute.
func (l *Ledger) Drained(ctx context.Context) (bool, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var unfinished bool
	err := l.pool.QueryRow(ctx, query.Unfinished, slices.Sorted(maps.Keys(l.opts.Providers)), 60).Scan(&unfinished)
	return err == nil && !unfinished, deed.WrapError("drained", err)
}

// deadline is the context of one statement.
func (l *Ledger) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.opts.Deadline)
}
