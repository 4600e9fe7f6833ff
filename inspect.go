package deed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// Counts are how a topic's or a subscription's messages stand.
type Counts struct {
	Pending          int64   `json:"pending"`            // not finished and not dead
	Due              int64   `json:"due"`                // of those, claimable now
	Claimed          int64   `json:"claimed"`            // of those, under a live lease
	Dead             int64   `json:"dead"`               // ended, kept until an operator acts
	Delivered        int64   `json:"delivered"`          // finished
	OldestDueSeconds float64 `json:"oldest_due_seconds"` // how long the oldest due one has been due
}

// SubscriptionStatus is one subscription's counts.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	Counts
}

// TopicStatus is a topic's counts, summed over its subscriptions.
type TopicStatus struct {
	Topic string `json:"topic"`
	Counts
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
}

// Status counts every topic's messages, by topic name. Its cost grows with
// what is pending. Needs deed_worker or deed_admin.
func (c *Client) Status(ctx context.Context) ([]TopicStatus, error) {
	rows, err := c.pool.Query(ctx, query["status"])
	if err != nil {
		return nil, opError("status", err)
	}
	defer rows.Close()
	topics := []TopicStatus{}
	for rows.Next() {
		var topic string
		var s SubscriptionStatus
		err := rows.Scan(&topic, &s.Subscription, &s.Pending, &s.Due, &s.Claimed, &s.Dead, &s.Delivered, &s.OldestDueSeconds)
		if err != nil {
			return nil, opError("status", err)
		}
		if len(topics) == 0 || topics[len(topics)-1].Topic != topic {
			topics = append(topics, TopicStatus{Topic: topic})
		}
		t := &topics[len(topics)-1]
		t.Pending += s.Pending
		t.Due += s.Due
		t.Claimed += s.Claimed
		t.Dead += s.Dead
		t.Delivered += s.Delivered
		t.OldestDueSeconds = max(t.OldestDueSeconds, s.OldestDueSeconds)
		t.Subscriptions = append(t.Subscriptions, s)
	}
	return topics, opError("status", rows.Err())
}

// Horizon is how far the log is and what has not ended yet.
type Horizon struct {
	Position        int64         // the log's newest number
	PartitionsAhead int           // partitions of the log ahead of the one in use
	OldestPartition time.Duration // since the oldest partition that has its content was closed; 0 if there is none
	OldestRunning   string        // the oldest transaction id that has not ended; empty if all have
	OldestAge       time.Duration // age of the oldest transaction that this login may see
}

// Horizon reports what delays late commits and the removal of dead rows: the
// oldest transaction of the cluster. Only members of pg_read_all_stats see how
// old other logins' transactions are. Needs deed_worker or deed_admin.
func (c *Client) Horizon(ctx context.Context) (Horizon, error) {
	var h Horizon
	var seconds float64
	err := c.pool.QueryRow(ctx, query["horizon"]).Scan(&h.Position, &h.OldestRunning, &seconds)
	if err != nil {
		return h, opError("horizon", err)
	}
	h.OldestAge = time.Duration(seconds * float64(time.Second))
	if err := c.pool.QueryRow(ctx, query["partitions_ahead"]).Scan(&h.PartitionsAhead); err != nil {
		return h, opError("horizon", err)
	}
	err = c.pool.QueryRow(ctx, query["oldest_partition"]).Scan(&seconds)
	h.OldestPartition = time.Duration(seconds * float64(time.Second))
	return h, opError("horizon", err)
}

// Violation is one broken invariant.
type Violation struct {
	Invariant    string `json:"invariant"`
	Subscription string `json:"subscription,omitempty"`
	Seq          int64  `json:"seq,omitempty,string"`
	Detail       string `json:"detail"`
}

// Verify checks every invariant of the message store; no violation, all is
// well. It may run beside publishers and workers; its cost grows with the log.
// Needs deed_worker or deed_admin.
func (c *Client) Verify(ctx context.Context) ([]Violation, error) {
	rows, err := c.pool.Query(ctx, query["verify"])
	if err != nil {
		return nil, opError("verify", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Violation, error) {
		var v Violation
		err := row.Scan(&v.Invariant, &v.Subscription, &v.Seq, &v.Detail)
		return v, err
	})
	return list, opError("verify", err)
}

// Logged is a message as the log has it. Payload is nil unless asked for.
type Logged struct {
	Seq          int64             `json:"seq,string"`
	ID           ID                `json:"id"`
	Tenant       tenant.ID         `json:"tenant"`
	Topic        string            `json:"topic"`
	Key          string            `json:"key,omitempty"`
	Type         string            `json:"type,omitempty"`
	ContentType  string            `json:"content_type"`
	Headers      map[string]string `json:"headers,omitempty"`
	Size         int               `json:"size"`
	Payload      []byte            `json:"-"`
	CreatedAt    time.Time         `json:"created_at"`
	ProcessAfter *time.Time        `json:"process_after,omitempty"`
}

// Filter selects messages; zero fields select all.
type Filter struct {
	Topic   string
	Key     string
	Tenant  *tenant.ID
	Since   time.Duration // published at most this long ago, by the database's clock
	Before  int64         // with a lower Seq; for the next page
	Limit   int           // default 100, at most 10,000
	Payload bool          // fill Payload
}

// Messages lists messages of the log, newest first. An application's login
// sees its tenant's.
func (c *Client) Messages(ctx context.Context, f Filter) ([]Logged, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 0 || f.Limit > 10000 {
		return nil, invalidf("messages", "limit %d is not from 1 to 10000", f.Limit)
	}
	var owner, since any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	if f.Since != 0 {
		since = f.Since.Seconds()
	}
	before := int64(math.MaxInt64)
	if f.Before > 0 {
		before = f.Before - 1
	}
	rows, err := c.pool.Query(ctx, query["messages"], nullIfZero(f.Topic), nullIfZero(f.Key), owner, since,
		0, before, f.Limit, f.Payload)
	if err != nil {
		return nil, opError("messages", err)
	}
	list, err := pgx.CollectRows(rows, scanLogged)
	return list, opError("messages", err)
}

func scanLogged(row pgx.CollectableRow) (Logged, error) {
	var l Logged
	var id, owner string
	var headers *string
	err := row.Scan(&l.Seq, &id, &owner, &l.Topic, &l.Key, &l.Type, &l.ContentType, &headers, &l.Size,
		&l.Payload, &l.CreatedAt, &l.ProcessAfter)
	if err != nil {
		return l, err
	}
	var idErr, ownerErr, headersErr error
	l.ID, idErr = ParseID(id)
	l.Tenant, ownerErr = tenant.Parse(owner)
	if headers != nil {
		headersErr = json.Unmarshal([]byte(*headers), &l.Headers)
	}
	return l, errors.Join(idErr, ownerErr, headersErr)
}

// State is how one subscription stands with a message.
type State struct {
	Subscription string     `json:"subscription"`
	State        string     `json:"state"` // due, scheduled, claimed, parked, dead or delivered
	Attempts     int        `json:"attempts"`
	LostClaims   int        `json:"lost_claims"`
	DueAt        *time.Time `json:"due_at,omitempty"`
	LeaseUntil   *time.Time `json:"lease_until,omitempty"`
	Worker       string     `json:"worker,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	DeadAt       *time.Time `json:"dead_at,omitempty"`
	DeliveredAt  *time.Time `json:"delivered_at,omitempty"`
	Claim        int64      `json:"claim,omitempty,string"`
}

// Story is a message with what became of it.
type Story struct {
	Logged
	States []State `json:"subscriptions"`
}

// ParseRef reads what a person has in hand of a message: its id or its number.
func ParseRef(s string) (seq int64, id ID, err error) {
	if seq, err := strconv.ParseInt(s, 10, 64); err == nil && seq > 0 {
		return seq, ID{}, nil
	}
	id, err = ParseID(s)
	if err != nil {
		return 0, ID{}, invalidf("message", "%q is neither a message's id nor its number", clip(s))
	}
	return id.Seq(), id, nil
}

// Message returns the message that ref names, by its id or its number, and how
// each subscription stands with it. Errors: [NotFound], [Invalid].
func (c *Client) Message(ctx context.Context, ref string, payload bool) (Story, error) {
	seq, id, err := ParseRef(ref)
	if err != nil {
		return Story{}, err
	}
	rows, err := c.pool.Query(ctx, query["messages"], nil, nil, nil, nil, seq-1, seq, 1, payload)
	if err != nil {
		return Story{}, opError("message", err)
	}
	found, err := pgx.CollectRows(rows, scanLogged)
	if err != nil {
		return Story{}, opError("message", err)
	}
	// The same number may have had another message before a failover.
	if len(found) == 0 || id != (ID{}) && found[0].ID != id {
		return Story{}, &Error{Op: "message", Code: NotFound, Err: fmt.Errorf("there is no message %s", clip(ref))}
	}
	story := Story{Logged: found[0], States: []State{}}
	rows, err = c.pool.Query(ctx, query["message_states"], seq)
	if err != nil {
		return Story{}, opError("message", err)
	}
	pending, err := pgx.CollectRows(rows, scanPending)
	if err != nil {
		return Story{}, opError("message", err)
	}
	rows, err = c.pool.Query(ctx, query["message_receipts"], seq)
	if err != nil {
		return Story{}, opError("message", err)
	}
	finished, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
		s := State{State: "delivered"}
		var claimedAt *time.Time
		err := row.Scan(&s.Subscription, &s.Worker, &s.Claim, &claimedAt, &s.DeliveredAt, &s.Attempts)
		return s, err
	})
	story.States = append(append(story.States, pending...), finished...)
	return story, opError("message", err)
}

func scanPending(row pgx.CollectableRow) (State, error) {
	var s State
	var parked, due bool
	var held *bool
	err := row.Scan(&s.Subscription, &s.Attempts, &s.LostClaims, &parked, &s.DueAt, &s.LeaseUntil, &s.Worker,
		&s.DeadAt, &s.LastError, &due, &held)
	switch {
	case s.DeadAt != nil:
		s.State = "dead"
	case parked:
		s.State = "parked"
	case held != nil && *held:
		s.State = "claimed"
	case due:
		s.State = "due"
	default:
		s.State = "scheduled"
	}
	return s, err
}

// Tail calls fn for each message that commits after Tail began, in the order
// of their numbers within each look, until ctx ends or fn returns an error,
// which it returns. Messages that commit late are not left out: it looks for
// what the last snapshot did not see. topic "": all topics.
func (c *Client) Tail(ctx context.Context, topic string, payload bool, fn func(Logged) error) error {
	var oldest, seen string
	if err := c.pool.QueryRow(ctx, query["snapshot"]).Scan(&oldest, &seen); err != nil {
		return opError("tail", err)
	}
	for {
		if !work.Sleep(ctx, 200*time.Millisecond) {
			return nil
		}
		list, nextOldest, next, err := c.tailPage(ctx, topic, payload, oldest, seen)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return opError("tail", err)
		}
		for _, l := range list {
			if err := fn(l); err != nil {
				return err
			}
		}
		oldest, seen = nextOldest, next
	}
}

// tailPage reads, in one snapshot, what the snapshot seen did not see.
func (c *Client) tailPage(ctx context.Context, topic string, payload bool, oldest, seen string) (list []Logged, nextOldest, next string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, query["snapshot"]).Scan(&nextOldest, &next); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query["messages_after"], oldest, seen, nullIfZero(topic), payload)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanLogged)
		return err
	})
	return list, nextOldest, next, err
}

// DeadMessage is a dead letter.
type DeadMessage struct {
	Seq          int64     `json:"seq,string"`
	ID           ID        `json:"id"`
	Topic        string    `json:"topic"`
	Subscription string    `json:"subscription"`
	Key          string    `json:"key,omitempty"`
	Type         string    `json:"type,omitempty"`
	Tenant       tenant.ID `json:"tenant"`
	Attempts     int       `json:"attempts"`
	LostClaims   int       `json:"lost_claims"`
	DeadAt       time.Time `json:"dead_at"`
	LastError    string    `json:"last_error"`
}

// DeadFilter selects dead letters; zero fields select all.
type DeadFilter struct {
	Topic        string
	Subscription string
	Tenant       *tenant.ID
	Limit        int // default 100
}

// Dead lists dead letters, newest first.
func (c *Client) Dead(ctx context.Context, f DeadFilter) ([]DeadMessage, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 0 {
		return nil, invalidf("dead", "limit %d is negative", f.Limit)
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	rows, err := c.pool.Query(ctx, query["dead"], nullIfZero(f.Topic), nullIfZero(f.Subscription), owner, f.Limit)
	if err != nil {
		return nil, opError("dead", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (DeadMessage, error) {
		var d DeadMessage
		var id, owner string
		err := row.Scan(&d.Seq, &id, &d.Topic, &d.Subscription, &d.Key, &d.Type, &owner, &d.Attempts, &d.LostClaims, &d.DeadAt, &d.LastError)
		if err != nil {
			return d, err
		}
		var idErr, ownerErr error
		d.ID, idErr = ParseID(id)
		d.Tenant, ownerErr = tenant.Parse(owner)
		return d, errors.Join(idErr, ownerErr)
	})
	return list, opError("dead", err)
}

// Redrive selects dead letters to put back.
type Redrive struct {
	Topic        string  // required
	Subscription string  // default: all of the topic's
	Seqs         []int64 // default: any
	Tenant       *tenant.ID
	Limit        int  // default: no limit
	DryRun       bool // only count
}

// Redrive puts dead letters back, oldest first, with their attempts at 0, and
// returns how many. Errors: [NotFound] for an unknown topic or subscription.
// Needs deed_admin.
func (c *Client) Redrive(ctx context.Context, r Redrive) (int64, error) {
	var owner any
	if r.Tenant != nil {
		owner = r.Tenant.String()
	}
	var count int64
	err := c.pool.QueryRow(ctx, query["redrive"], r.Topic, nullIfZero(r.Subscription), owner, r.Seqs,
		nullIfZero(r.Limit), r.DryRun).Scan(&count)
	return count, opError("redrive", err)
}
