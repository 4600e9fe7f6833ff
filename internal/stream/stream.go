package stream

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/internal/work"
)

// errLaneLost ends a lane that has another owner.
var errLaneLost = errors.New("the lane has another owner")

// stream is a subscription while it is read as a stream: what its lanes, and the
// loop for what they put aside, share. It is made anew whenever the topic becomes a
// stream.
type stream struct {
	*claim.Subscription
	feed   *Feed
	page   int // most messages a page
	leases leases
	probes atomic.Int32 // of lanes that wait until the destination may be probed
}

// deliver is one call of the destination. A panic is the outcome of the messages that it was made for.
func (st *stream) deliver(ctx context.Context, msgs []*claim.Message) (results []error) {
	defer func() {
		if v := recover(); v != nil {
			results = slices.Repeat([]error{&work.Panic{Value: v, Stack: debug.Stack()}}, len(msgs))
		}
	}()
	return st.Destination.Deliver(ctx, msgs)
}

// probing reports whether the destination is down, and so attempted at most once at
// a time.
func (st *stream) probing() bool {
	n, _ := st.Destination.Limit(2)
	return n < 2
}

// leases are those of the lanes that this process holds, which are renewed
// together.
type leases struct {
	mu      sync.Mutex
	renewed time.Time // guarded by mu: when they were, at the latest
}

// renew says that the lanes in hand were renewed, or taken, by a statement that
// began at asked. Those that it did not renew must have been ended before: else
// they would be taken for fresh.
func (l *leases) renew(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = asked
}

// stale reports whether the leases may have run out: they are renewed when less
// than two thirds are left. By both clocks, as the monotonic one stands still
// while the machine sleeps.
func (st *stream) stale() bool {
	st.leases.mu.Lock()
	defer st.leases.mu.Unlock()
	now, renewed := time.Now(), st.leases.renewed
	return max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))) > st.Lease*3/5
}

// isLost reports whether the lane of which this is the working context is, or may
// be, another worker's.
func isLost(working context.Context) bool {
	return errors.Is(context.Cause(working), work.ErrLeaseLost)
}

// recorded is the last row of deed.progress of a lane: how far it has come.
type recorded struct {
	position
	n         int64 // of the row
	takeovers int   // owners in a row that lost the lane where they had taken it
}

// recorded reads how far a lane has come, if it is still that owner's.
func (st *stream) recorded(ctx context.Context, lane int, fence int64) (r recorded, err error) {
	err = st.DB.QueryRow(ctx, query.LanePosition, st.ID, lane, fence).
		Scan(&r.takeovers, &r.n, &r.passed.n, &r.passed.h, &r.reading.n, &r.reading.h, &r.slot, &r.id)
	if errors.Is(err, pgx.ErrNoRows) {
		return recorded{}, errLaneLost
	}
	return r, err
}
