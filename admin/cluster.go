package admin

import (
	"context"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// NewCluster says why processes that are to hold on a new cluster hold here:
// the server or the database is another than the installation's, or
// [deed.Options.Environment] another environment; if that is empty, only with [deed.Hold]
// is this a reason. Empty: nothing holds. Needs deed_worker or deed_admin.
func (c *Client) NewCluster(ctx context.Context) (why string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	environment := sqlvalue.NullIfZero(c.opts.Environment)
	if c.opts.OnNewCluster == deed.Hold {
		environment = c.opts.Environment
	}
	err = c.pool.QueryRow(ctx, query.Held, environment).Scan(&why)
	return why, deed.WrapError("new cluster", err)
}

// Adopt lets all processes go on that hold, within a second or so: the
// installation belongs to this server and database from now on, and to
// [deed.Options.Environment]; if that is empty, to the environment that it belongs
// to already. act.By is the login by default. It returns what held; if nothing did
// and nothing changes, nothing is recorded. Errors: [deed.Invalid] without a
// reason. Needs deed_admin.
func (c *Client) Adopt(ctx context.Context, act audit.Act) (why string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = c.pool.QueryRow(ctx, query.AdoptCluster, act.Reason, sqlvalue.NullIfZero(act.By), sqlvalue.NullIfZero(c.opts.Environment)).Scan(&why)
	return why, deed.WrapError("adopt", err)
}
