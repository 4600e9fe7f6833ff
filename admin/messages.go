package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
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

	slot int // where it is in the log; of what Tail brings it is not known
}

// scanLooked reads a row of a statement that looks: what it says of the look, and
// a message unless none matched.
func scanLooked(row pgx.Row, s *seen) (m MessageRecord, ok bool, err error) {
	var seq *int64
	var slot *int
	var id, owner, topic, key, kind, contentType, headers *string
	var size *int
	var createdAt *time.Time
	err = row.Scan(&s.Looked, &s.Above, &s.Oldest, &seq, &slot, &id, &owner, &topic, &key, &kind, &contentType, &headers, &size,
		&m.Payload, &createdAt, &m.ProcessAfter)
	if err != nil || seq == nil {
		return m, false, err
	}
	m.Seq, m.slot, m.Topic, m.Key, m.Type, m.ContentType, m.Size, m.CreatedAt = *seq, *slot, *topic, *key, *kind, *contentType, *size, *createdAt
	return m, true, m.parse(*id, *owner, headers)
}

// parse sets what the database gives as text.
func (m *MessageRecord) parse(id, owner string, headers *string) (err error) {
	if m.ID, err = deed.ParseID(id); err != nil {
		return err
	}
	if m.Tenant, err = tenant.Parse(owner); err != nil || headers == nil {
		return err
	}
	return json.Unmarshal([]byte(*headers), &m.Headers)
}

func scanRecord(row pgx.CollectableRow) (MessageRecord, error) {
	var m MessageRecord
	var id, owner string
	var headers *string
	err := row.Scan(&m.Seq, &id, &owner, &m.Topic, &m.Key, &m.Type, &m.ContentType, &headers, &m.Size,
		&m.Payload, &m.CreatedAt, &m.ProcessAfter)
	if err != nil {
		return m, err
	}
	return m, m.parse(id, owner, headers)
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
	found, _, err := c.look(ctx, query.LookByNumber, []any{seq - 1, seq, 1, nil, nil, nil, nil, payload})
	if err == nil && len(found) == 0 {
		found, _, err = c.look(ctx, query.LookAtKept, []any{seq, 1, 1, nil, nil, nil, nil, payload})
	}
	if err != nil {
		return MessageDetail{}, deed.WrapError("message", err)
	}
	found = slices.DeleteFunc(found, func(m MessageRecord) bool { return m.Seq != seq })
	// The same number may have had another message before a failover.
	if len(found) == 0 || id != (deed.ID{}) && found[0].ID != id {
		return MessageDetail{}, &deed.Error{Op: "message", Code: deed.NotFound, Err: fmt.Errorf("there is no message %s", errortext.Clip(ref))}
	}
	detail := MessageDetail{MessageRecord: found[0], States: []State{}}
	rows, err := c.pool.Query(ctx, query.MessageStates, seq, found[0].slot, found[0].Topic)
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
