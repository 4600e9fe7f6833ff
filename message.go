package deed

import (
	"encoding/binary"
	"time"

	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

// Message is what a system owes the outside world: one row of the log.
//
// A publisher fills the first group of fields; deed fills the second before a
// sink or a handler sees the message.
type Message struct {
	// Topic names the stream of messages that this one belongs to. Required;
	// 1 to 200 characters of [A-Za-z0-9._:/-].
	Topic string

	// Key is what the message is about, such as an order's number. Messages of
	// one key share a slot of the log, and a topic that is a [ModeStream] delivers them
	// in order. At most 1,000 bytes. Default: none.
	Key string

	// Type says what happened, such as "order.placed". At most 200 bytes.
	// Default: none.
	Type string

	// Payload is delivered byte for byte as it is here. It must be JSON unless
	// ContentType says otherwise, and may not exceed the installation's limit
	// (1 MiB by default).
	Payload []byte

	// Value, when Payload is nil, is encoded as JSON to become the payload.
	Value any

	// ContentType is the payload's media type. Default "application/json".
	ContentType string

	// Headers travel beside the payload to every sink. Names are HTTP tokens
	// and are kept in lower case; "deed-…" and "webhook-…" are deed's own.
	Headers map[string]string

	// Tenant owns the message. Default: the tenant that the transaction has
	// set, else the default tenant.
	Tenant tenant.ID

	// IdempotencyKey, unless empty, makes publishing repeatable: a second
	// message of the same tenant, topic and idempotency key within the
	// installation's dedup window is not stored, and the first one's id is
	// returned. At most 200 bytes.
	IdempotencyKey string

	// ProcessAfter holds the message back until then, by the database's clock.
	// It then takes no part in its key's order. The zero value means now.
	ProcessAfter time.Time

	// ID identifies the message outside the database: a UUIDv7-shaped value of
	// the time of publishing and Seq. Consumers drop repeats by it.
	ID ID

	// Seq is the message's number in the log.
	Seq int64

	// CreatedAt is when the message was published, by the database's clock.
	CreatedAt time.Time

	// Attempt counts this subscription's attempts at the message, from 1. A
	// claim that was lost to a crash is not an attempt.
	Attempt int
}

// ID is a message's identity outside the database, shaped as a UUIDv7: 48 bits
// of milliseconds, then the number in the log. Two messages that were given
// the same number, as happens after a failover to an asynchronous standby,
// have different IDs.
type ID [16]byte

// NewID returns the identity of message number seq, created at t.
func NewID(t time.Time, seq int64) ID {
	var id ID
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16|0x7000|uint64(seq)>>62)
	binary.BigEndian.PutUint64(id[8:], 1<<63|uint64(seq)&(1<<62-1))
	return id
}

// ParseID reads the 36-character form of an ID.
func ParseID(s string) (ID, error) {
	u, err := uuid.Parse(s)
	if err != nil || u[6]>>4 != 7 || u[8]>>6 != 2 {
		return ID{}, invalidf("message id", "%q is not a message id", s)
	}
	return ID(u), nil
}

// Seq returns the message's number in the log.
func (id ID) Seq() int64 {
	high := binary.BigEndian.Uint64(id[:8]) & 0xfff
	low := binary.BigEndian.Uint64(id[8:]) & (1<<62 - 1)
	return int64(high<<62 | low)
}

// Time returns when the message was published, to the millisecond.
func (id ID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16)).UTC()
}

// String returns the lower-case 36-character form.
func (id ID) String() string { return uuid.UUID(id).String() }

// MarshalText makes an ID a JSON string.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (id *ID) UnmarshalText(b []byte) error {
	parsed, err := ParseID(string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
