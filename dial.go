package deed

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// closeGrace bounds how long the driver listens to a connection that it has
// given up, once it could ask the server to cancel over a new one. Its own bound
// is 15 seconds, for which the connection keeps its place in the pool: a few
// that have gone silent would use it up.
const closeGrace = time.Second

// boundCloses makes the connections of config leave within [closeGrace].
func boundCloses(config *pgx.ConnConfig) {
	dial, handler := config.DialFunc, config.BuildContextWatcherHandler
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return briefConn{c}, nil
	}
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return briefHandler{handler(conn), conn}
	}
}

type briefConn struct{ net.Conn }

// SetDeadline is given a time in the future only when a statement or the
// connection has been given up.
func (c briefConn) SetDeadline(t time.Time) error {
	if until := time.Now().Add(closeGrace); t.After(until) {
		t = until
	}
	return c.Conn.SetDeadline(t)
}

// briefHandler keeps the bound where the driver loses it: it gives up a
// connection in the background, and may set the deadline of that before the
// statement that was cancelled takes its own deadline away.
type briefHandler struct {
	ctxwatch.Handler
	conn *pgconn.PgConn
}

func (h briefHandler) HandleUnwatchAfterCancel() {
	h.Handler.HandleUnwatchAfterCancel()
	if h.conn.IsClosed() {
		_ = h.conn.Conn().SetDeadline(time.Now().Add(closeGrace)) // fails if it is closed already
	}
}

// readCommitted makes connections begin transactions as the functions need them
// where the database's or the role's default is stricter: windows are opened
// under READ COMMITTED only, and what a second statement is to see of others it
// would not see. Behind a pooler the setting may stay with another's session:
// there the worker's role is to have it.
func readCommitted(next func(context.Context, *pgx.Conn) error) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `
			select set_config('default_transaction_isolation', 'read committed', false)
			where current_setting('default_transaction_isolation') <> 'read committed'`)
		if err != nil || next == nil {
			return err
		}
		return next(ctx, conn)
	}
}
