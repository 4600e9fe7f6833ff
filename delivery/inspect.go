package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Entry is a delivery as the database has it.
type Entry struct {
	ID                string          `json:"id"`
	Tenant            string          `json:"tenant"`
	Workspace         string          `json:"workspace"`
	Key               string          `json:"idempotency_key"`
	Status            Status          `json:"status"`
	Channel           Channel         `json:"channel"`
	Provider          string          `json:"provider"`
	Recipient         string          `json:"recipient,omitempty"`
	RecipientID       string          `json:"recipient_id,omitempty"`
	Guarantee         Guarantee       `json:"guarantee"`
	Attempts          int             `json:"attempts"`
	Sandbox           bool            `json:"sandbox,omitempty"`      // the last call went to the sandbox, and to nobody else
	MaxAttempts       int             `json:"max_attempts,omitempty"` // 0: the ledger's
	CreatedAt         time.Time       `json:"created_at"`
	ProcessAfter      *time.Time      `json:"process_after,omitempty"`
	FirstCalledAt     *time.Time      `json:"first_called_at,omitempty"`
	CalledAt          *time.Time      `json:"called_at,omitempty"`
	SentAt            *time.Time      `json:"sent_at,omitempty"`
	FinishedAt        *time.Time      `json:"finished_at,omitempty"`
	RepeatSafeUntil   *time.Time      `json:"repeat_safe_until,omitempty"`
	Batch             *InBatch        `json:"batch,omitempty"` // the last call was for several
	DoubtSince        *time.Time      `json:"doubt_since,omitempty"`
	DoubtReason       string          `json:"doubt_reason,omitempty"`
	HeldAt            *time.Time      `json:"held_at,omitempty"` // since when it waits for a person
	ProviderMessageID string          `json:"provider_message_id,omitempty"`
	ProvedAt          *time.Time      `json:"proved_at,omitempty"`       // a proof came that it was accepted, though it has ended otherwise
	UnsettledSince    *time.Time      `json:"unsettled_since,omitempty"` // a call that may have been accepted was followed by another
	SkipReason        string          `json:"skip_reason,omitempty"`
	LastError         string          `json:"last_error,omitempty"`
	CorrelationID     string          `json:"correlation_id,omitempty"`
	ChannelMessageID  string          `json:"channel_message_id,omitempty"`
	RunID             string          `json:"run_id,omitempty"`
	JobID             string          `json:"job_id,omitempty"`
	Purpose           string          `json:"purpose,omitempty"`   // "": transactional
	Contact           string          `json:"contact,omitempty"`   // for whom it is, by id
	ErasedAt          *time.Time      `json:"erased_at,omitempty"` // since then nobody knows to whom it went, and what was in it
	ClaimedBy         string          `json:"claimed_by,omitempty"`
	Payload           json.RawMessage `json:"payload,omitempty"` // only if asked for
	Request           []byte          `json:"request,omitempty"` // only if asked for
	RequestSize       int             `json:"request_bytes"`
	RequestSHA256     string          `json:"request_sha256,omitempty"` // in hexadecimal; it stays when the request is erased
}

// InBatch is a delivery's place in a call that was made for several.
type InBatch struct {
	ID    string     `json:"id"` // deed-batch- and this is the call's idempotency key
	Place int        `json:"place"`
	Size  int        `json:"size"`
	Until *time.Time `json:"until,omitempty"` // it may be repeated until then, whole; nil: never again
}

// Filter chooses deliveries; zero fields choose all.
type Filter struct {
	Status    Status
	Provider  string
	Tenant    *tenant.ID
	Recipient string   // however it is written
	Contacts  []string // only those that were reserved for one of them, by id
	InDoubt   bool     // only those whose outcome is unknown
	Cursor    string   // [page.Of.Next] of the page before
	Limit     int      // default 100
	Payload   bool     // with payloads and requests
}

// lookMost is how many deliveries one look reads where no index finds what is asked
// for.
const lookMost = 20_000

// each is how many deliveries the look reads, of a provider if it goes by that.
func (f Filter) each() int {
	byStatus := f.Status == Failed || f.Status == Dead || f.Status == Sending || f.InDoubt
	if len(f.Contacts) > 0 {
		return max(lookMost, f.Limit)
	}
	if f.Tenant != nil || f.Recipient != "" || (f.Status != "" || f.Provider != "") && !byStatus {
		return max(lookMost, f.Limit)
	}
	if f.InDoubt || f.Status == Sending { // a provider is not looked for among them
		return max(lookMost, f.Limit)
	}
	return f.Limit
}

// List returns deliveries, newest first. Those that failed or are dead are found by
// that and their provider, those in doubt and those under way by that; what else is
// and by its contacts; what else is
// asked for is looked for among the newest 20,000, and the page says how far back
// that was. Errors: [deed.Invalid].
func (l *Ledger) List(ctx context.Context, f Filter) (page page.Of[Entry], err error) {
	const op = "deliveries"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := checkCount(op, "limit", f.Limit, 1); err != nil {
		return page, err
	}
	if f.Status != "" && !slices.Contains(statuses, f.Status) {
		return page, invalidf(op, "status %q is none of %v", f.Status, statuses)
	}
	for _, of := range f.Contacts {
		if checkID(op, of) != nil {
			return page, invalidf(op, "a contact's id must be a UUID") // what was given may be an address
		}
	}
	if f.Cursor != "" && checkID(op, f.Cursor) != nil {
		return page, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	ids, next, oldest, err := l.look(ctx, f)
	if err != nil {
		return page, deed.WrapError(op, err)
	}
	if page.Items, err = fetch(ctx, l.pool, ids, false, f.Payload); err != nil {
		return page, deed.WrapError(op, err)
	}
	switch {
	case len(ids) == f.Limit:
		page.Next = ids[len(ids)-1]
	case next != "":
		page.Next, page.LookedTo = next, oldest
	}
	return page, nil
}

// look returns the ids of those that match, newest first; and if it did not look at
// all, where it ended.
func (l *Ledger) look(ctx context.Context, f Filter) (ids []string, next string, oldest *time.Time, err error) {
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	rows, err := l.pool.Query(ctx, query.LookAtDeliveries, sqlvalue.NullIfZero(f.Cursor), f.each(), f.Limit,
		sqlvalue.NullIfZero(string(f.Status)), sqlvalue.NullIfZero(f.Provider), owner, sqlvalue.NullIfZero(f.Recipient), f.InDoubt, f.Contacts)
	if err != nil {
		return nil, "", nil, err
	}
	var looked int
	var below, id *string
	_, err = pgx.ForEachRow(rows, []any{&looked, &below, &oldest, &id}, func() error {
		if id != nil {
			ids = append(ids, *id)
		}
		return nil
	})
	return ids, sqlvalue.Deref(below), oldest, err
}

// fetch reads the deliveries of those ids, newest first; alone says that one is
// shown by itself.
func fetch(ctx context.Context, db deed.DB, ids []string, alone, payload bool) ([]Entry, error) {
	rows, err := db.Query(ctx, query.Deliveries, ids, alone, payload)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Entry, error) {
		var e Entry
		var b InBatch
		err := row.Scan(&e.ID, &e.Tenant, &e.Workspace, &e.Key, &e.Status, &e.Channel, &e.Provider, &e.Recipient, &e.RecipientID,
			&e.Guarantee, &e.Attempts, &e.Sandbox, &e.MaxAttempts, &e.CreatedAt, &e.ProcessAfter, &e.FirstCalledAt, &e.CalledAt, &e.SentAt, &e.FinishedAt,
			&e.RepeatSafeUntil, &b.ID, &b.Place, &b.Size, &b.Until, &e.DoubtSince, &e.DoubtReason, &e.HeldAt, &e.ProviderMessageID, &e.ProvedAt, &e.UnsettledSince, &e.SkipReason, &e.LastError, &e.CorrelationID,
			&e.ChannelMessageID, &e.RunID, &e.JobID, &e.ClaimedBy, &e.Purpose, &e.Contact, &e.ErasedAt, &e.RequestSHA256, (*[]byte)(&e.Payload), &e.Request, &e.RequestSize)
		if b.ID != "" {
			e.Batch = &b
		}
		return e, err
	})
}

// Show returns one delivery and what has happened to it. Errors:
// [deed.NotFound].
func (l *Ledger) Show(ctx context.Context, id string, payload bool) (Entry, []Event, error) {
	return l.ShowIn(ctx, l.pool, id, payload)
}

// ShowIn is [Ledger.Show] of what db may see: a login of the application sees the deliveries of the
// tenant that db has set ([tenant.Set]).
func (l *Ledger) ShowIn(ctx context.Context, db deed.DB, id string, payload bool) (Entry, []Event, error) {
	const op = "show delivery"
	if err := checkID(op, id); err != nil {
		return Entry{}, nil, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	list, err := fetch(ctx, db, []string{id}, true, payload)
	if err != nil {
		return Entry{}, nil, deed.WrapError(op, err)
	}
	if len(list) == 0 {
		return Entry{}, nil, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no delivery %s", id)}
	}
	rows, err := db.Query(ctx, query.History, id)
	if err != nil {
		return Entry{}, nil, deed.WrapError(op, err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Event])
	return list[0], events, deed.WrapError(op, err)
}

// Event is a change of a delivery, from the audit log.
type Event struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	From   Status    `json:"from,omitempty"`
	To     Status    `json:"to,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func checkID(op, id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return invalidf(op, "delivery %q: want a UUID", id)
	}
	return nil
}

// nonNil makes an empty array of a missing one, which would be null.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
