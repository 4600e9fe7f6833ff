package stream

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/tenant"
)

// What becomes of a message that is put aside without an attempt of its own, in
// deed.finish_page's words.
const (
	park  claim.Kind = "park"  // it stands behind another of its key
	later claim.Kind = "later" // it waits for its time
	doubt claim.Kind = "doubt" // it may be what killed the owners before: it is tried alone; no delivery's doubt
)

// entry is a message of a page, and what has become of it. Until its page is
// delivered it is the lane's reader's; then the goroutine that has its key writes
// it; and once all of them have returned it is the reader's again, and the
// recorder's.
type entry struct {
	claim.Message
	place int32 // with Seq, the position after it
	slot  int32
	due   bool // now; false: it has a process_after in the future

	tried   bool   // the attempt has not come back
	settled bool   // it is delivered or put aside; what is not is read again
	aside   *aside // how it was settled, if it was not delivered
}

// aside is a message that is put aside.
type aside struct {
	entry   *entry
	hash    *int64        // of the key; nil: it has none, or the stream keeps no order
	outcome claim.Outcome // as for deed.finish_page
}

// scan reads a row of deed.page, after the columns before; of what
// topic it is the caller knows.
func (e *entry) scan(row pgx.Rows, before ...any) error {
	e.Attempt = 1
	return e.Scan(row, append(before, &e.place, &e.slot, &e.due)...)
}

// attempted reports whether the message was, and is settled: one that was only
// put behind others, or waits for its time, may as well be read again.
func (e *entry) attempted() bool {
	return e.settled && (e.aside == nil || (e.aside.outcome.Kind != park && e.aside.outcome.Kind != later))
}

// keyHash identifies a tenant's key among those with messages aside; its first
// byte is the one by which deed.slot chooses the slot, which all tenants' keys
// of a name share. Relays of one protocol number make the same of it.
func keyHash(owner tenant.ID, key string) int64 {
	ofKey := sha256.Sum256([]byte(key))
	both := sha256.Sum256(append(owner[:], ofKey[:8]...))
	return int64(binary.BigEndian.Uint64(append(ofKey[:1:1], both[:7]...)))
}
