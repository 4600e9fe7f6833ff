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
	AtLeast          bool    `json:"at_least,omitempty"` // Pending and Due may be more: a stream's backlog is counted up to 10,000 a lane
	Due              int64   `json:"due"`                // of those pending, what could be delivered now
	Claimed          int64   `json:"claimed"`            // of those pending, under a live lease
	Parked           int64   `json:"parked"`             // of those pending, behind another message of their key
	Dead             int64   `json:"dead"`               // ended, kept until an operator acts
	Delivered        int64   `json:"delivered"`          // finished
	OldestDueSeconds float64 `json:"oldest_due_seconds"` // how long the oldest due one has been due
}

// SubscriptionStatus is one subscription's counts.
type SubscriptionStatus struct {
	Subscription string `json:"subscription"`
	Counts

	// Of a stream; 0 of a queue.
	Lag         int64 `json:"lag,omitempty"`          // what it has still to read, counted up to 10,000 a lane
	BlockedKeys int64 `json:"blocked_keys,omitempty"` // keys that wait for a message
	Lanes       int64 `json:"lanes,omitempty"`        // once a process has read it
	LanesHeld   int64 `json:"lanes_held,omitempty"`   // by some process, under a live lease

	// The call of the sink that has been running longest, if it has for 10
	// seconds.
	OldestCall *RunningCall `json:"oldest_call,omitempty"`
}

// Add sums up what is told of several subscriptions.
func (s *SubscriptionStatus) Add(more SubscriptionStatus) {
	s.Counts.add(more.Counts)
	s.Lag += more.Lag
	s.BlockedKeys += more.BlockedKeys
	s.Lanes += more.Lanes
	s.LanesHeld += more.LanesHeld
	if s.OldestCall == nil || (more.OldestCall != nil && more.OldestCall.Since.Before(s.OldestCall.Since)) {
		s.OldestCall = more.OldestCall
	}
}

// add sums up; the oldest is the oldest of both.
func (c *Counts) add(more Counts) {
	c.Pending += more.Pending
	c.AtLeast = c.AtLeast || more.AtLeast
	c.Due += more.Due
	c.Claimed += more.Claimed
	c.Parked += more.Parked
	c.Dead += more.Dead
	c.Delivered += more.Delivered
	c.OldestDueSeconds = max(c.OldestDueSeconds, more.OldestDueSeconds)
}

// TopicStatus is a topic's counts, summed over its subscriptions.
type TopicStatus struct {
	Topic string `json:"topic"`
	Counts
	Subscriptions []SubscriptionStatus `json:"subscriptions"`
}

// Status counts every topic's messages, by topic name. It lists a hundred
// topics, those that need attention first (dead messages, then the oldest that
// are due, then the most pending), and sums up the rest in a last one whose name
// no topic can have, "(others)". Its cost grows with what is pending. Needs
// deed_worker or deed_admin.
func (c *Client) Status(ctx context.Context) ([]TopicStatus, error) {
	return c.StatusOf(ctx, 100)
}

// StatusOf is [Client.Status] with most topics listed.
func (c *Client) StatusOf(ctx context.Context, most int) ([]TopicStatus, error) {
	rows, err := c.pool.Query(ctx, query["status"], most)
	if err != nil {
		return nil, opError("status", err)
	}
	defer rows.Close()
	topics := []TopicStatus{}
	for rows.Next() {
		var topic string
		var s SubscriptionStatus
		err := rows.Scan(&topic, &s.Subscription, &s.Pending, &s.Due, &s.Claimed, &s.Dead, &s.Delivered, &s.OldestDueSeconds,
			&s.Parked, &s.BlockedKeys, &s.Lag, &s.AtLeast, &s.Lanes, &s.LanesHeld)
		if err != nil {
			return nil, opError("status", err)
		}
		if len(topics) == 0 || topics[len(topics)-1].Topic != topic {
			topics = append(topics, TopicStatus{Topic: topic})
		}
		t := &topics[len(topics)-1]
		t.add(s.Counts)
		t.Subscriptions = append(t.Subscriptions, s)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, opError("status", err)
	}
	return topics, opError("status", c.addOldestCalls(ctx, topics))
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
	State        string     `json:"state"` // due, scheduled, claimed, parked, dead, delivered or discarded; of a stream also waiting (not read yet), passed (its record is no longer kept) or lost (see [Client.Verify])
	Attempts     int        `json:"attempts"`
	LostClaims   int        `json:"lost_claims"`
	DueAt        *time.Time `json:"due_at,omitempty"`
	LeaseUntil   *time.Time `json:"lease_until,omitempty"`
	Worker       string     `json:"worker,omitempty"`
	LastError    string     `json:"last_error,omitempty"`
	DeadAt       *time.Time `json:"dead_at,omitempty"`
	DeliveredAt  *time.Time `json:"delivered_at,omitempty"`
	DiscardedAt  *time.Time `json:"discarded_at,omitempty"` // by Worker, who gave the reason
	Reason       string     `json:"reason,omitempty"`
	Claim        int64      `json:"claim,omitempty,string"`
	Lane         int        `json:"lane,omitempty"` // of a stream: with Page, the record of the delivery
	Page         int64      `json:"page,omitempty,string"`
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
		var s State
		var endedAt time.Time
		err := row.Scan(&s.Subscription, &s.Worker, &s.Claim, &endedAt, &s.Attempts, &s.State, &s.Reason)
		if s.State == "discarded" {
			s.DiscardedAt = &endedAt
		} else {
			s.DeliveredAt = &endedAt
		}
		return s, err
	})
	if err != nil {
		return Story{}, opError("message", err)
	}
	rows, err = c.pool.Query(ctx, query["message_pages"], seq)
	if err != nil {
		return Story{}, opError("message", err)
	}
	read, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
		var s State
		err := row.Scan(&s.Subscription, &s.State, &s.Worker, &s.DeliveredAt, &s.Lane, &s.Page)
		if s.State == "delivered" {
			s.Attempts = 1
		}
		return s, err
	})
	story.States = append(append(append(story.States, pending...), finished...), read...)
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
