// Package idempotency makes the keys under which something is done once:
// of deliveries, of run events and of run requests alike.
package idempotency

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Key is the SHA-256 over parts, each as its length in bytes (8 bytes,
// big-endian) and its UTF-8, so that no two lists of parts read the same. The
// SQL function deed.idempotency_key gives the same bytes.
func Key(parts ...string) [sha256.Size]byte {
	h := sha256.New()
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// NewRequest names a request of an operator that is none before it: repeating a
// request by its name does nothing twice.
func NewRequest() string { return "redrive-" + rand.Text()[:16] }

// Time is a time as a part: RFC 3339 in UTC with microseconds, which is all
// that PostgreSQL keeps.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }
