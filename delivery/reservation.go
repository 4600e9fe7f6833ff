package delivery

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/deedhq/deed/internal/idempotency"
)

// Reservation is the right to make one call: of a delivery that is written as
// "sending". Only a [Ledger] makes one, and it ends with the call. The zero
// value is none, and [Reservation.Request] refuses it.
type Reservation struct{ of *reservation }

type reservation struct {
	row     *row
	sandbox *sandboxed // nil: the call goes to the recipient
	repeat  bool
	over    atomic.Bool
}

// sandboxed is a call that goes to the sandbox instead of its recipient. It is
// made for this call and kept nowhere: the stored request is the recipient's,
// whether the sandbox is on or off.
type sandboxed struct {
	address string
	key     string
	request []byte
	err     error // why there is no request
}

// sandboxID marks what goes to the sandbox: an event that carries it back is
// about no delivery.
const sandboxID = "sandbox-"

// ErrNoReservation says that a call would be made without a reservation, or
// with one whose call is over.
var ErrNoReservation = errors.New("no reservation: a provider is only called by the ledger, for a delivery that it has reserved")

// Request returns the request's bytes: send these, unchanged. An error means
// that nobody may be called.
func (r Reservation) Request() ([]byte, error) {
	if r.of == nil || r.of.over.Load() {
		return nil, ErrNoReservation
	}
	request := r.of.row.request
	if r.of.sandbox != nil {
		request = r.of.sandbox.request
	}
	if len(request) == 0 {
		return nil, ErrNoReservation
	}
	return request, nil
}

// ID returns the delivery's id, a UUID: the marker that later events and
// look-ups know it by. "" for the zero value, as all others. Of a call to the
// sandbox it is another, which is no delivery's.
func (r Reservation) ID() string {
	switch {
	case r.of == nil:
		return ""
	case r.of.sandbox != nil:
		return sandboxID + r.of.row.id
	}
	return r.of.row.id
}

// Key returns the idempotency key for the provider: the same for the same
// tenant, workspace and key, for ever; 57 characters of a-z, 2-7 and "-". Each
// call to the sandbox has one of its own, of 65.
func (r Reservation) Key() string {
	switch {
	case r.of == nil:
		return ""
	case r.of.sandbox != nil:
		return r.of.sandbox.key
	}
	return r.of.row.providerKey()
}

// Recipient returns the address that the call goes to: the delivery's, or the
// sandbox.
func (r Reservation) Recipient() string {
	switch {
	case r.of == nil:
		return ""
	case r.of.sandbox != nil:
		return r.of.sandbox.address
	}
	return r.of.row.recipient
}

// SandboxFor returns the recipient that a call to the sandbox stands in for;
// "" for a real call.
func (r Reservation) SandboxFor() string {
	if r.of == nil || r.of.sandbox == nil {
		return ""
	}
	return r.of.row.recipient
}

// CorrelationID returns what the reservation was given.
func (r Reservation) CorrelationID() string {
	if r.of == nil {
		return ""
	}
	return r.of.row.correlationID
}

// ChannelMessageID returns the id of the inbound message that the delivery answers; "" if
// it answers none.
func (r Reservation) ChannelMessageID() string {
	if r.of == nil {
		return ""
	}
	return r.of.row.channelMsgID
}

// Attempt returns the number of this call, from 1 on.
func (r Reservation) Attempt() int {
	if r.of == nil {
		return 0
	}
	return r.of.row.attempts
}

// CalledAt returns when the call in doubt was made, by the database's clock, where
// it is looked up or repeated; the zero time otherwise.
func (r Reservation) CalledAt() time.Time {
	if r.of == nil {
		return time.Time{}
	}
	return r.of.row.calledAt
}

// Repeat reports whether an earlier call may have succeeded: the provider's
// key is what makes this one safe.
func (r Reservation) Repeat() bool { return r.of != nil && r.of.repeat }

// row is a claimed delivery.
type row struct {
	id, tenant, workspace       string
	key                         []byte
	channel                     Channel
	lane                        string
	recipient, recipientID      string
	payload                     json.RawMessage
	request                     []byte
	guarantee                   Guarantee
	attempts                    int
	correlationID, channelMsgID string
	purpose, contact, run       string // not of one in doubt, whose request is made

	claim                 int64
	takenOver             bool
	lost                  int    // claims, of which the last one was taken over
	action                string // of one in doubt: repeat or look_up
	call                  int    // of one that is due: in which of the claim's calls it may be
	batch                 string // of one in doubt that is repeated: with whom; "": alone
	batchPlace, batchSize int
	calledAt              time.Time // of one in doubt
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func (w *row) providerKey() string {
	return providerKey("deed-", idempotency.Key(w.tenant, w.workspace, string(w.key)))
}

func providerKey(prefix string, sum [sha256.Size]byte) string {
	var b strings.Builder
	b.Grow(len(prefix) + lowerBase32.EncodedLen(sha256.Size))
	b.WriteString(prefix)
	b.WriteString(lowerBase32.EncodeToString(sum[:]))
	return b.String()
}

func (w *row) draft() Draft {
	return Draft{
		ID: w.id, Key: w.providerKey(), Tenant: w.tenant, Channel: w.channel, Recipient: w.recipient,
		RecipientID: w.recipientID, CorrelationID: w.correlationID, ChannelMessageID: w.channelMsgID, Purpose: w.purpose, Contact: w.contact, Run: w.run, Payload: w.payload,
	}
}
