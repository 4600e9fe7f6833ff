package inbound

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Entry is a message and what became of it.
type Entry struct {
	Message
	Status       Status     `json:"status"`
	Error        string     `json:"error,omitempty"` // of the last attempt that failed
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
	ProcessAfter *time.Time `json:"process_after,omitempty"` // when it is run again by itself
	HeldAt       *time.Time `json:"held_at,omitempty"`       // since when it waits for a person
	EmptiedAt    *time.Time `json:"emptied_at,omitempty"`    // since when its contents are gone
	ClaimedBy    string     `json:"claimed_by,omitempty"`    // the worker that has it, or had it last
	ClaimedAt    *time.Time `json:"claimed_at,omitempty"`    // since when
}

// Filter chooses messages; zero fields choose all.
type Filter struct {
	Tenant  *tenant.ID
	Source  string
	Status  Status // "denied": whatever for
	Contact string // an id: only this one's
	Held    bool   // only those that wait for a person
	Body    bool   // with what platforms sent beside the text
	Cursor  string // [page.Of.Next] of the page before
	Limit   int    // default 100
}

// List returns the messages that db may see, newest first. Errors: [deed.Invalid].
func List(ctx context.Context, db deed.DB, f Filter) (list page.Of[Entry], err error) {
	const op = "inbound messages"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	if f.Cursor != "" && checkID(op, f.Cursor) != nil {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	if f.Contact != "" && checkID(op, f.Contact) != nil {
		return list, invalidf(op, "a contact's id must be a UUID") // what was given may be an address
	}
	if f.Status != "" && f.Status != "denied" && f.Status != Accepted && f.Status != Executed && f.Status != DispatchFailed &&
		(len(f.Status) <= len(Denied) || f.Status[:len(Denied)] != Denied) {
		return list, invalidf(op, "status %q is none of accepted, executed, dispatch_failed, denied and denied_*", errortext.Clip(string(f.Status)))
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	list.Items, err = entries(ctx, db, query.List, sqlvalue.NullIfZero(f.Cursor), owner, sqlvalue.NullIfZero(f.Source),
		sqlvalue.NullIfZero(string(f.Status)), sqlvalue.NullIfZero(f.Contact), f.Held, f.Limit, f.Body)
	if err != nil {
		return page.Of[Entry]{}, deed.WrapError(op, err)
	}
	if len(list.Items) == f.Limit {
		list.Next = list.Items[f.Limit-1].ID
	}
	return list, nil
}

func entries(ctx context.Context, db deed.DB, sql string, args ...any) ([]Entry, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []Entry{}
	for rows.Next() {
		var e Entry
		var owner string
		if err := rows.Scan(&e.ID, &owner, &e.Source, &e.PlatformID, &e.Contact, &e.Kind, &e.Sender, &e.ReplyTo, &e.Text, (*[]byte)(&e.Body), &e.Status,
			&e.Attempt, &e.Error, &e.CorrelationID, &e.ReceivedAt, &e.FinishedAt, &e.ProcessAfter, &e.HeldAt, &e.EmptiedAt,
			&e.ClaimedBy, &e.ClaimedAt); err != nil {
			return nil, err
		}
		if e.Tenant, err = tenant.Parse(owner); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// Load returns one message, whole: what an executor reads of which a topic has the id
// alone. Errors: [deed.NotFound], also for another tenant's; [deed.Invalid].
func Load(ctx context.Context, db deed.DB, id string) (Entry, error) {
	const op = "load inbound message"
	if err := checkID(op, id); err != nil {
		return Entry{}, err
	}
	list, err := entries(ctx, db, query.Message, id)
	if err != nil {
		return Entry{}, deed.WrapError(op, err)
	}
	if len(list) == 0 {
		return Entry{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no inbound message %s", id)}
	}
	return list[0], nil
}

// Answered is a reply of a message: a delivery.
type Answered struct {
	ID                string `json:"id"`
	Status            string `json:"status"`
	Channel           string `json:"channel"`
	Provider          string `json:"provider"`
	ProviderMessageID string `json:"provider_message_id,omitempty"`
	LastError         string `json:"last_error,omitempty"`

	ReservedAt time.Time  `json:"reserved_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Change is a change of a message, from the audit log.
type Change struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	From   Status    `json:"from,omitempty"`
	To     Status    `json:"to,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// Show returns one message, what has happened to it, and its replies: the whole way from
// the platform's request to the provider's message ids (D9). Errors: as [Load]'s.
func Show(ctx context.Context, db deed.DB, id string) (e Entry, changes []Change, replies []Answered, err error) {
	const op = "show inbound message"
	if e, err = Load(ctx, db, id); err != nil {
		return e, nil, nil, err
	}
	rows, err := db.Query(ctx, query.History, id)
	if err == nil {
		changes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Change])
	}
	if err != nil {
		return e, nil, nil, deed.WrapError(op, err)
	}
	if rows, err = db.Query(ctx, query.Replies, id); err == nil {
		replies, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Answered])
	}
	return e, changes, replies, deed.WrapError(op, err)
}

// Retry runs failed messages again, also those that are held, with their attempts at 0,
// and says how many; others are left. act must say why. Errors: [deed.NotFound],
// [deed.Invalid]. Needs deed_admin.
func Retry(ctx context.Context, db deed.DB, ids []string, act audit.Act) (n int, err error) {
	const op = "retry inbound messages"
	for _, id := range ids {
		if err := checkID(op, id); err != nil {
			return 0, err
		}
	}
	rows, err := db.Query(ctx, query.Retry, ids, act.Reason, act.By)
	if err == nil {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	}
	return n, deed.WrapError(op, err)
}

func checkID(op, id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return invalidf(op, "message %q: want a UUID", errortext.Clip(id))
	}
	return nil
}
