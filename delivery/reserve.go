package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// Channel is by what means a delivery reaches its recipient.
type Channel string

// The channels.
const (
	Email   Channel = "email"
	SMS     Channel = "sms"
	Voice   Channel = "voice"
	Social  Channel = "social"
	Chat    Channel = "chat"
	Webhook Channel = "webhook"
)

// Guarantee decides about a delivery in doubt where the provider cannot.
type Guarantee string

const (
	// AtMostOnce holds it for a person: campaigns.
	AtMostOnce Guarantee = "at_most_once"
	// AtLeastOnce attempts it again: replies.
	AtLeastOnce Guarantee = "at_least_once"
)

// Delivery is what is to be reserved.
type Delivery struct {
	// Channel is by what means. Required.
	Channel Channel
	// Provider is the name under which a [Ledger] knows the provider. Required.
	Provider string
	// Recipient is the address at the provider: an e-mail address, a number, a
	// URL. Without one the delivery is skipped.
	Recipient string
	// RecipientID is who that is to the application. Default: none.
	RecipientID string
	// Contact is the id of the contact whom it is for, a UUID; an erasure of that one
	// erases it, too, whatever its recipient. Default: none.
	Contact string
	// Payload is a JSON object that the provider makes its request of, such as an
	// [Email]. Required.
	Payload json.RawMessage
	// Key is what the delivery is for; see [EmailKey] and its like. Required.
	Key Key
	// Guarantee decides about doubt. Default [AtMostOnce].
	Guarantee Guarantee
	// ProcessAfter holds the delivery back until then. Default: now.
	ProcessAfter time.Time
	// ExpiresAt is from when on nobody is called for it any more: it ends as
	// skipped. One that is in doubt then is not repeated. Default: never.
	ExpiresAt time.Time
	// MaxAttempts is how many attempts that are known to have failed make it
	// dead. Default: the ledger's.
	MaxAttempts int
	// Workspace divides a tenant; keys are unique in it. Default: the nil UUID.
	Workspace tenant.ID
	// CorrelationID travels into every log line and trace. Default: the
	// context's [deed.Trace].
	CorrelationID string
	// ChannelMessageID is the tenant's inbound message that owes the delivery, a UUID.
	// Default: none.
	ChannelMessageID string
	// Purpose is what it is for, such as a newsletter's name, of A-Z a-z 0-9 . _ -:
	// who has been suppressed for that is skipped, too. Default: none, it is
	// transactional, as a password reset is.
	Purpose string
	// By is who asks for it, for the audit log, where a call is one row: all of its
	// deliveries have the same. Default: the login.
	By string
}

// Reserved is what became of a reservation.
type Reserved struct {
	ID        string // of the delivery: a UUID
	Status    Status // queued, or skipped; of a duplicate whatever it is by now
	Duplicate bool   // the key was used before: ID is that delivery's, and nothing was made
}

// Reserve makes deliveries with db, in one statement, all of them or none. They
// are the tenant's that db has set ([tenant.Set]). They exist if and only if
// db's transaction commits, and no provider has been called then. The results
// are in the order of ds. Errors: [deed.Invalid], [deed.Forbidden] without a
// tenant, [deed.NotFound] for a provider that is not registered, and a contact or an inbound
// message that the tenant does not have, [deed.Conflict] for one who was erased.
func Reserve(ctx context.Context, db deed.DB, ds ...Delivery) ([]Reserved, error) {
	return reserve(ctx, db, nil, ds)
}

// ReserveFor is [Reserve] for a tenant that db has not set, for logins that
// cross tenants.
func ReserveFor(ctx context.Context, db deed.DB, owner tenant.ID, ds ...Delivery) ([]Reserved, error) {
	return reserve(ctx, db, owner.String(), ds)
}

func reserve(ctx context.Context, db deed.DB, owner any, ds []Delivery) ([]Reserved, error) {
	if len(ds) == 0 {
		return nil, nil
	}
	a := newColumns(len(ds))
	trace := deed.TraceFrom(ctx)
	for i := range ds {
		if ds[i].By != ds[0].By {
			return nil, invalidf("reserve", "delivery %d is asked for by another than the first; a call is one row of the audit log: reserve it by a call of its own", i+1)
		}
		if ds[i].Key == (Key{}) {
			return nil, invalidf("reserve", "delivery %d has no key; see delivery.NewKey", i+1)
		}
		if len(ds[i].Payload) == 0 || !utf8.Valid(ds[i].Payload) {
			return nil, invalidf("reserve", "delivery %d has no payload that is UTF-8; an EmailPayload has none where its Check finds something", i+1)
		}
		if d := &ds[i]; d.Contact != "" && checkID("reserve", d.Contact) != nil {
			return nil, invalidf("reserve", "delivery %d: a contact's id must be a UUID", i+1) // what was given may be an address
		}
		if err := checkContent(&ds[i]); err != nil {
			return nil, invalidf("reserve", "delivery %d: %w", i+1, err)
		}
		if err := limits.Attempts.CheckSet("max_attempts", ds[i].MaxAttempts); err != nil {
			return nil, invalidf("reserve", "delivery %d: %w", i+1, err)
		}
		a.add(&ds[i], trace.CorrelationID)
	}
	crash.Point("reserving")
	rows, err := db.Query(ctx, query.Reserve, a.channels, a.providers, a.recipients, a.payloads, a.keys, a.recipientIDs,
		a.guarantees, a.processAfter, a.correlationIDs, a.channelMessageIDs, a.workspaces, a.maxAttempts, a.expiresAt, a.purposes, owner, a.contacts, sqlvalue.NullIfZero(ds[0].By))
	if err != nil {
		return nil, deed.WrapError("reserve", err)
	}
	out := make([]Reserved, 0, len(ds))
	defer rows.Close()
	for rows.Next() {
		var r Reserved
		if err := rows.Scan(&r.ID, &r.Status, &r.Duplicate); err != nil {
			return nil, deed.WrapError("reserve", err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, deed.WrapError("reserve", err)
	}
	if len(out) != len(ds) {
		return nil, fmt.Errorf("deed: reserve: %d results for %d deliveries", len(out), len(ds))
	}
	crash.Point("reserved")
	return out, nil
}

// columns are the arrays of deed.reserve. Those of what nobody asked for stay
// nil: they are not even sent.
type columns struct {
	channels, providers, recipients, payloads []string
	keys                                      [][]byte
	recipientIDs, guarantees, correlationIDs  []*string
	channelMessageIDs, purposes, workspaces   []*string
	contacts                                  []*string
	processAfter, expiresAt                   []*time.Time
	maxAttempts                               []*int
	n                                         int
}

func newColumns(n int) *columns {
	return &columns{
		n: n, channels: make([]string, 0, n), providers: make([]string, 0, n), recipients: make([]string, 0, n),
		payloads: make([]string, 0, n), keys: make([][]byte, 0, n),
	}
}

func (a *columns) add(d *Delivery, correlation string) {
	i := len(a.keys)
	a.channels = append(a.channels, string(d.Channel))
	a.providers = append(a.providers, d.Provider)
	a.recipients = append(a.recipients, d.Recipient)
	a.payloads = append(a.payloads, string(d.Payload))
	a.keys = append(a.keys, d.Key[:])
	if d.CorrelationID != "" {
		correlation = d.CorrelationID
	}
	put(&a.recipientIDs, a.n, i, d.RecipientID)
	put(&a.guarantees, a.n, i, string(d.Guarantee))
	put(&a.correlationIDs, a.n, i, correlation)
	put(&a.channelMessageIDs, a.n, i, d.ChannelMessageID)
	put(&a.purposes, a.n, i, d.Purpose)
	put(&a.contacts, a.n, i, d.Contact)
	put(&a.processAfter, a.n, i, d.ProcessAfter)
	put(&a.expiresAt, a.n, i, d.ExpiresAt)
	put(&a.maxAttempts, a.n, i, d.MaxAttempts)
	if d.Workspace != (tenant.ID{}) {
		put(&a.workspaces, a.n, i, d.Workspace.String())
	}
}

// put sets an array's i-th of n entries, and makes the array for the first that
// is not zero.
func put[T comparable](list *[]*T, n, i int, v T) {
	var zero T
	if v == zero {
		return
	}
	if *list == nil {
		*list = make([]*T, n)
	}
	(*list)[i] = &v
}
