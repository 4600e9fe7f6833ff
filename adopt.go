package deed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/deedhq/deed/internal/held"
)

// OnNewCluster is what a process that sends does where the installation is a
// copy: on another server or database than the one that it belongs to (after a
// restore, pg_upgrade or a cut-over), or in another environment.
//
// An installation belongs to the server and the database on which a process of
// it first ran, and to the environment that the first one names. A standby that
// was promoted is the same server.
type OnNewCluster string

const (
	// Continue goes on, whatever the cluster and the environment.
	Continue OnNewCluster = held.Continue
	// Hold claims and delivers nothing until [Client.Adopt]; publishing goes on.
	// A process that names no environment holds where the installation has one.
	Hold OnNewCluster = held.Hold
)

// Check says what is wrong with the word, or with the name of an environment
// beside it.
func (o OnNewCluster) Check(environment string) error {
	var errs []error
	if o != "" && o != Continue && o != Hold {
		errs = append(errs, fmt.Errorf("option OnNewCluster %q is neither %q nor %q", clip(string(o)), Continue, Hold))
	}
	if utf8.RuneCountInString(environment) > 100 || !utf8.ValidString(environment) || strings.ContainsRune(environment, 0) {
		errs = append(errs, errors.New("option Environment is no text of at most 100 characters"))
	}
	return errors.Join(errs...)
}

// A Holder is a [Sink] for which a process holds on a new cluster by default:
// whom it reaches, it reaches from a copy, too.
type Holder interface {
	HoldOnNewCluster() bool
}

// newGate is what holds the client's process.
func newGate(c *Client) *held.Gate {
	on := c.opts.OnNewCluster
	if on == "" {
		for _, s := range c.opts.Subscriptions {
			if h, ok := s.Sink.(Holder); ok && h.HoldOnNewCluster() {
				on = Hold
			}
		}
	}
	return &held.Gate{
		Pool: c.pool, What: "subscriptions", OnNewCluster: string(on), Environment: c.opts.Environment,
		Logger: c.opts.Logger, Deadline: c.opts.Deadline, Passing: passing,
	}
}

// Held says why [Client.Run] waits on a new cluster; empty: it does not.
func (c *Client) Held() string { return c.gate.Held() }

// NewCluster says why processes that are to hold on a new cluster hold here:
// the server or the database is another than the installation's, or
// [Options.Environment] another environment; if that is empty, only with [Hold]
// is this a reason. Empty: nothing holds. Needs deed_worker or deed_admin.
func (c *Client) NewCluster(ctx context.Context) (why string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	environment := nullIfZero(c.opts.Environment)
	if c.opts.OnNewCluster == Hold {
		environment = c.opts.Environment
	}
	err = c.pool.QueryRow(ctx, query["held"], environment).Scan(&why)
	return why, opError("new cluster", err)
}

// Adopt lets all processes go on that hold, within a second or so: the
// installation belongs to this server and database from now on, and to
// [Options.Environment]; if that is empty, to the environment that it belongs to
// already. The audit log keeps the reason, and by, who does it; default: the
// login. It returns what held; if nothing did and nothing changes, nothing is
// recorded. Errors: [Invalid] without a reason. Needs deed_admin.
func (c *Client) Adopt(ctx context.Context, reason, by string) (why string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = c.pool.QueryRow(ctx, query["adopt_cluster"], reason, nullIfZero(by), nullIfZero(c.opts.Environment)).Scan(&why)
	return why, opError("adopt", err)
}
