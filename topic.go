package deed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/tenant"
)

// Mode says how a topic's messages reach their subscriptions.
type Mode string

const (
	// Queue gives each message a row of its own, which is claimed, retried and
	// finished by itself: for handlers that are slow or independent of each
	// other, and for workers that speak SQL.
	Queue Mode = "queue"
	// Stream reads messages from the log, page by page, and writes one row a
	// page: for brokers, and for whatever wants order.
	Stream Mode = "stream"
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
	Mode Mode   // default Queue

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

func (t Topic) check() error {
	var errs []error
	if !validTopic(t.Name) {
		errs = append(errs, errors.New("a topic has 1 to 200 characters of A-Z a-z 0-9 . _ : / -"))
	}
	if t.Mode != "" && t.Mode != Queue && t.Mode != Stream {
		errs = append(errs, fmt.Errorf("mode %q is neither %q nor %q", clip(string(t.Mode)), Queue, Stream))
	}
	if t.Ordering != "" && t.Ordering != OrderKey && t.Ordering != OrderNone {
		errs = append(errs, fmt.Errorf("ordering %q is neither %q nor %q", clip(string(t.Ordering)), OrderKey, OrderNone))
	}
	if t.Lanes < 0 || t.Lanes > 64 {
		errs = append(errs, fmt.Errorf("%d lanes are not from 1 to 64", t.Lanes))
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
	err = tx.QueryRow(ctx, query["declare_topic"], t.Name, nullIfZero(string(t.Mode)), nullIfZero(t.Lanes), t.ordered(), nullIfZero(t.Retention.Seconds())).
		Scan(&made, &mode, &lanes, &ordered, &kept)
	if err != nil {
		return nil, opError("declare topic "+t.Name, err)
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
	if stored := ofSeconds(kept); t.Retention != 0 && t.Retention != stored {
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

// TopicChange names what to change of a topic; zero fields stay as they are.
type TopicChange struct {
	Mode      Mode
	Lanes     int
	Ordering  Ordering
	Retention time.Duration
}

// SetTopic changes a declared topic, online. A change of lanes, and one from
// stream to queue, takes effect when the relays that run have stopped their
// lanes at one point, after a few seconds; nothing is lost, comes twice or
// overtakes. Errors: [NotFound], [Invalid], [Conflict] while an earlier change
// of mode is under way. Needs deed_admin.
func (c *Client) SetTopic(ctx context.Context, name string, change TopicChange) error {
	t := Topic{Name: name, Mode: change.Mode, Lanes: change.Lanes, Ordering: change.Ordering, Retention: change.Retention}
	if err := t.check(); err != nil {
		return &Error{Op: "set topic " + clip(name), Code: Invalid, Err: err}
	}
	err := pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, query["set_topic"], name, nullIfZero(string(t.Mode)), nullIfZero(t.Lanes), t.ordered(), nullIfZero(t.Retention.Seconds()))
		return err
	})
	return opError("set topic", err)
}

// BlockedKey is a key of an ordered stream that waits for one of its messages.
type BlockedKey struct {
	Topic        string     `json:"topic"`
	Subscription string     `json:"subscription"`
	Key          string     `json:"key"`
	Tenant       tenant.ID  `json:"tenant"`
	Seq          int64      `json:"seq,string"` // of the message that it waits for
	ID           ID         `json:"id"`
	Attempts     int        `json:"attempts"`
	Dead         bool       `json:"dead"` // it waits for an operator
	DueAt        *time.Time `json:"due_at,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	Since        time.Time  `json:"since"` // when that message was published
	AgeSeconds   float64    `json:"age_seconds"`
	Behind       int64      `json:"behind"` // messages that stand behind it, counted up to 10,000
}

// BlockedKeys lists the keys that wait, the oldest first; topic "": of all
// streams.
func (c *Client) BlockedKeys(ctx context.Context, topic string, limit int) ([]BlockedKey, error) {
	if limit < 1 {
		return nil, invalidf("blocked keys", "limit %d is below 1", limit)
	}
	rows, err := c.pool.Query(ctx, query["blocked_keys"], nullIfZero(topic), limit)
	if err != nil {
		return nil, opError("blocked keys", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (BlockedKey, error) {
		var b BlockedKey
		var owner, id string
		err := row.Scan(&b.Topic, &b.Subscription, &b.Key, &owner, &b.Seq, &id, &b.Attempts, &b.Dead, &b.DueAt, &b.LastError, &b.Since, &b.AgeSeconds, &b.Behind)
		if err != nil {
			return b, err
		}
		var idErr, ownerErr error
		b.ID, idErr = ParseID(id)
		b.Tenant, ownerErr = tenant.Parse(owner)
		return b, errors.Join(idErr, ownerErr)
	})
	return list, opError("blocked keys", err)
}
