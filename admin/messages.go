package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// MessageRecord is a message as the log has it. Payload is nil unless asked for.
type MessageRecord struct {
	Seq          int64             `json:"seq,string"`
	ID           deed.ID           `json:"id"`
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
func (c *Client) Messages(ctx context.Context, f Filter) ([]MessageRecord, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 0 || f.Limit > 10000 {
		return nil, invalidf("messages", "limit %d is not from 1 to 10000", f.Limit)
	}
	if f.Since < 0 || f.Before < 0 {
		return nil, invalidf("messages", "since %s or before %d is negative", f.Since, f.Before)
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
	rows, err := c.pool.Query(ctx, query.Messages, sqlvalue.NullIfZero(f.Topic), sqlvalue.NullIfZero(f.Key), owner, since,
		0, before, f.Limit, f.Payload)
	if err != nil {
		return nil, deed.WrapError("messages", err)
	}
	list, err := pgx.CollectRows(rows, scanRecord)
	return list, deed.WrapError("messages", err)
}

func scanRecord(row pgx.CollectableRow) (MessageRecord, error) {
	var l MessageRecord
	var id, owner string
	var headers *string
	err := row.Scan(&l.Seq, &id, &owner, &l.Topic, &l.Key, &l.Type, &l.ContentType, &headers, &l.Size,
		&l.Payload, &l.CreatedAt, &l.ProcessAfter)
	if err != nil {
		return l, err
	}
	var idErr, ownerErr, headersErr error
	l.ID, idErr = deed.ParseID(id)
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

// MessageDetail is a message with what became of it.
type MessageDetail struct {
	MessageRecord
	States []State `json:"subscriptions"`
}

// ParseRef reads what a person has in hand of a message: its id or its number.
func ParseRef(s string) (seq int64, id deed.ID, err error) {
	if seq, err := strconv.ParseInt(s, 10, 64); err == nil && seq > 0 {
		return seq, deed.ID{}, nil
	}
	id, err = deed.ParseID(s)
	if err != nil {
		return 0, deed.ID{}, invalidf("message", "%q is neither a message's id nor its number", errortext.Clip(s))
	}
	return id.Seq(), id, nil
}

// Message returns the message that ref names, by its id or its number, and how
// each subscription stands with it. Errors: [deed.NotFound], [deed.Invalid].
func (c *Client) Message(ctx context.Context, ref string, payload bool) (MessageDetail, error) {
	seq, id, err := ParseRef(ref)
	if err != nil {
		return MessageDetail{}, err
	}
	rows, err := c.pool.Query(ctx, query.Messages, nil, nil, nil, nil, seq-1, seq, 1, payload)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	found, err := pgx.CollectRows(rows, scanRecord)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	// The same number may have had another message before a failover.
	if len(found) == 0 || id != (deed.ID{}) && found[0].ID != id {
		return MessageDetail{}, &deed.Error{Op: "message", Code: deed.NotFound, Err: fmt.Errorf("there is no message %s", errortext.Clip(ref))}
	}
	detail := MessageDetail{MessageRecord: found[0], States: []State{}}
	rows, err = c.pool.Query(ctx, query.MessageStates, seq)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	pending, err := pgx.CollectRows(rows, scanPending)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	rows, err = c.pool.Query(ctx, query.MessageReceipts, seq)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
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
		return MessageDetail{}, deed.WrapError("message", err)
	}
	rows, err = c.pool.Query(ctx, query.MessagePages, seq)
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	read, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
		var s State
		err := row.Scan(&s.Subscription, &s.State, &s.Worker, &s.DeliveredAt, &s.Lane, &s.Page)
		if s.State == "delivered" {
			s.Attempts = 1
		}
		return s, err
	})
	detail.States = append(append(append(detail.States, pending...), finished...), read...)
	return detail, deed.WrapError("message", err)
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
func (c *Client) Tail(ctx context.Context, topic string, payload bool, fn func(MessageRecord) error) error {
	var oldest, seen string
	if err := c.pool.QueryRow(ctx, query.Snapshot).Scan(&oldest, &seen); err != nil {
		return deed.WrapError("tail", err)
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
			return deed.WrapError("tail", err)
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
func (c *Client) tailPage(ctx context.Context, topic string, payload bool, oldest, seen string) (list []MessageRecord, nextOldest, next string, err error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, query.Snapshot).Scan(&nextOldest, &next); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query.MessagesAfter, oldest, seen, sqlvalue.NullIfZero(topic), payload)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanRecord)
		return err
	})
	return list, nextOldest, next, err
}
