package deed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Mode says how a topic's messages reach their subscriptions.
type Mode string

const (
	// ModeQueue gives each message a row of its own, which is claimed, retried and
	// finished by itself: for handlers that are slow or independent of each
	// other, and for workers that speak SQL.
	ModeQueue Mode = "queue"
	// ModeStream reads messages from the log, page by page, and writes one row a
	// page: for brokers, and for whatever wants order.
	ModeStream Mode = "stream"
)

// Ordering says which messages of a stream come one after the other.
type Ordering string

const (
	// OrderKey keeps the order of the messages of each key; one that fails holds
	// back those of its key.
	OrderKey Ordering = "key"
	// OrderNone keeps no order: a message that fails holds back no other.
	OrderNone Ordering = "none"
)

// Topic declares a topic. A client makes those that the database does not have;
// if it has one with other settings, Run returns [Conflict]. Zero fields take
// what is stored, or the default.
type Topic struct {
	Name string // required
	Mode Mode   // default ModeQueue

	// Lanes is into how many parts a stream is divided, each read by one
	// process at a time: more lanes, more processes. 1 to 64, default 4.
	Lanes int

	// Ordering is what order a stream keeps. A queue keeps none. Default
	// OrderKey.
	Ordering Ordering

	// Retention is how long messages are kept once every subscription has
	// finished them. At least a minute, default 7 days.
	Retention time.Duration
}

// Check says what is wrong with the topic; all in one error.
func (t Topic) Check() error {
	errs := []error{limits.Topic(t.Name), limits.Lanes.CheckSet("lanes", t.Lanes)}
	if t.Mode != "" && t.Mode != ModeQueue && t.Mode != ModeStream {
		errs = append(errs, fmt.Errorf("mode %q is neither %q nor %q", errortext.Clip(string(t.Mode)), ModeQueue, ModeStream))
	}
	if t.Ordering != "" && t.Ordering != OrderKey && t.Ordering != OrderNone {
		errs = append(errs, fmt.Errorf("ordering %q is neither %q nor %q", errortext.Clip(string(t.Ordering)), OrderKey, OrderNone))
	}
	if t.Retention != 0 && t.Retention < time.Minute {
		errs = append(errs, fmt.Errorf("retention %s is below a minute", t.Retention))
	}
	return errors.Join(errs...)
}

// declare makes the topic if it is absent. A difference between what is stored
// and what this program asks for is returned apart.
func (t Topic) declare(ctx context.Context, tx pgx.Tx) (different, err error) {
	var made, ordered bool
	var mode Mode
	var lanes int
	var kept float64
	err = tx.QueryRow(ctx, query.DeclareTopic, t.Name, sqlvalue.NullIfZero(string(t.Mode)), sqlvalue.NullIfZero(t.Lanes), t.ordered(), sqlvalue.NullIfZero(t.Retention.Seconds())).
		Scan(&made, &mode, &lanes, &ordered, &kept)
	if err != nil {
		return nil, WrapError("declare topic "+t.Name, err)
	}
	var differences []error
	differs := func(what string, stored, here any, flag string) {
		differences = append(differences, fmt.Errorf("%s is %v in the database and %v here; change it with: deed topic set %s %s %v", what, stored, here, t.Name, flag, here))
	}
	if t.Mode != "" && t.Mode != mode {
		differs("mode", mode, t.Mode, "--mode")
	}
	if t.Lanes != 0 && t.Lanes != lanes {
		differs("lanes", lanes, t.Lanes, "--lanes")
	}
	if stored := orderingOf(ordered); t.Ordering != "" && t.Ordering != stored {
		differs("ordering", stored, t.Ordering, "--ordering")
	}
	if stored := sqlvalue.Seconds(kept); t.Retention != 0 && t.Retention != stored {
		differs("retention", stored, t.Retention, "--retention")
	}
	if differences != nil {
		return &Error{Op: "declare topic " + t.Name, Code: Conflict, Err: errors.Join(differences...)}, nil
	}
	return nil, nil
}

// ordered is the ordering as the database has it; nil leaves it as it is.
func (t Topic) ordered() *bool {
	if t.Ordering == "" {
		return nil
	}
	is := t.Ordering == OrderKey
	return &is
}

func orderingOf(ordered bool) Ordering {
	if ordered {
		return OrderKey
	}
	return OrderNone
}
