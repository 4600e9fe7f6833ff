package claim

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/tenant"
)

// Message is one as the database has it, for one subscription.
type Message struct {
	Seq         int64 // its number in the log
	Tenant      tenant.ID
	Topic       string
	Key         string // empty: none
	Type        string // empty: none
	ContentType string
	Headers     map[string]string
	Payload     []byte
	CreatedAt   time.Time
	Attempt     int // this one, from 1

	// Problem says why it cannot be decoded. Then it is not handed to the
	// destination: its attempt fails with this, is counted, and it ends dead like
	// any other.
	Problem error
}

// Key is a message's, which is its tenant's own: another's of the same name is another key.
type Key struct {
	Tenant tenant.ID
	Name   string
}

// OfKey is the message's key.
func (m *Message) OfKey() Key { return Key{m.Tenant, m.Key} }

// Scan reads a row: the caller's own columns, and then those that say what the
// message is. The topic and the number of the attempt are the caller's, as not
// every statement has them.
func (m *Message) Scan(row pgx.Rows, own ...any) error {
	var headers *string
	err := row.Scan(append(own, &m.Seq, (*[16]byte)(&m.Tenant), &m.Key, &m.Type, &m.ContentType, &headers, &m.Payload, &m.CreatedAt)...)
	if err != nil {
		return err
	}
	if headers != nil {
		if err := json.Unmarshal([]byte(*headers), &m.Headers); err != nil {
			m.Problem = fmt.Errorf("decode message: headers: %w", err)
		}
	}
	return nil
}

// Item is a message that this process has claimed.
type Item struct {
	Message
	Subscription int       // whose row it is
	Claim        int64     // the fence: what became of it is recorded under this number
	Lost         int       // claims of it that ran out before this one
	Ord          time.Time // its place in the order of claims; zero for a stream's
}

// Scan reads a claimed row, whose own columns of a message are the claim's
// number, the attempts before this one and the claims that ran out.
func (it *Item) Scan(row pgx.Rows, own ...any) error {
	err := it.Message.Scan(row, append(own, &it.Claim, &it.Attempt, &it.Lost, &it.Topic)...)
	it.Attempt++
	return err
}

// collect reads what deed.claim has claimed, up to about n.
func collect(rows pgx.Rows, n int) ([]*Item, error) {
	items := make([]*Item, 0, min(n, 1000))
	for rows.Next() {
		it := &Item{}
		if err := it.Scan(rows, &it.Subscription, &it.Ord); err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, rows.Err()
}
