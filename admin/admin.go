// Package admin looks at an installation and acts on it, as an operator does:
// messages, dead letters and redrives, status, topics and their settings, keys
// that wait, partitions, removals, and the audit log.
//
//	operator, err := admin.New(ctx, pool, admin.Options{})
//	topics, err := operator.Status(ctx)
//	n, err := operator.Redrive(ctx, admin.Redrive{
//		DeadFilter: admin.DeadFilter{Topic: "orders"},
//		Act:        audit.Act{By: "ann", Reason: "the shop answers again"},
//	})
//
// Nothing here is needed to publish or to deliver: that is package deed. What a
// call needs of its login it says; package tenant makes a login see one tenant.
package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/upkeep"
	"github.com/deedhq/deed/schema"
)

// Options configures a Client. The zero value works.
type Options struct {
	// OnNewCluster and Environment are those of the processes that deliver, by
	// which [Client.NewCluster] judges: see [deed.Options].
	OnNewCluster deed.OnNewCluster
	Environment  string

	// Deadline bounds the statements of what is done in steps, such as retention
	// and removals; all others are bounded by their context. Default 10s.
	Deadline time.Duration
}

// A Client acts for an operator. Its methods may be called at the same time.
type Client struct {
	pool *pgxpool.Pool
	opts Options
}

// New checks the installed schema; it writes nothing.
func New(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Client, error) {
	if err := opts.OnNewCluster.Check(opts.Environment); err != nil {
		return nil, &deed.Error{Op: "new", Code: deed.Invalid, Err: err}
	}
	opts.Deadline = cmp.Or(opts.Deadline, 10*time.Second)
	ctx, cancel := context.WithTimeout(ctx, opts.Deadline)
	defer cancel()
	if _, err := schema.Check(ctx, pool); err != nil {
		return nil, deed.WrapError("new", err)
	}
	return &Client{pool: pool, opts: opts}, nil
}

func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opts.Deadline)
}

func (c *Client) keeper() *upkeep.Keeper {
	return &upkeep.Keeper{Pool: c.pool, Deadline: c.opts.Deadline, Logger: slog.New(slog.DiscardHandler)}
}

// checkCount refuses a number that the functions have no room for.
func checkCount(op, what string, n, least int) error {
	if err := sqlvalue.Count(what, n, least); err != nil {
		return invalidf(op, "%w", err)
	}
	return nil
}

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}
