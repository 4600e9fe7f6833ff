package seal

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/deedhq/deed/internal/idempotency"
)

// Seal is over the rows of the audit log behind From, up to Upto, by their numbers.
type Seal struct {
	K        int64     `json:"seal,string"` // counts from 1, without a gap
	From     int64     `json:"from,string"`
	Upto     int64     `json:"upto,string"`
	Rows     int       `json:"rows"`
	At       time.Time `json:"at"`
	Leaves   []byte    `json:"leaves"` // the number of each row, and its hash
	Previous []byte    `json:"previous"`
	Hash     []byte    `json:"sha256"`
	Key      string    `json:"key"` // [KeyName] of who signed
	// Signature is Ed25519 over Hash.
	Signature []byte `json:"signature"`
}

// Name is the seal's number and hash, which are all that is to be kept elsewhere to see
// later that neither it nor anything before it is missing.
func (s Seal) Name() string { return fmt.Sprintf("%d:%s", s.K, hex.EncodeToString(s.Hash)) }

// hash is what the seal's should be, of an installation.
func (s Seal) hash(installation string) [32]byte {
	leaves := sha256.Sum256(s.Leaves)
	return idempotency.Key("deed audit seal 1", installation, strconv.FormatInt(s.K, 10), strconv.FormatInt(s.From, 10), strconv.FormatInt(s.Upto, 10), strconv.Itoa(s.Rows),
		idempotency.Time(s.At), string(leaves[:]), string(s.Previous), s.Key)
}

// signed reports whether it is signed by one of the keys, by their names.
func (s Seal) signed(keys map[string]ed25519.PublicKey) bool {
	key, ok := keys[s.Key]
	return ok && len(s.Signature) == ed25519.SignatureSize && ed25519.Verify(key, s.Hash, s.Signature)
}

// leafAt is the number and the hash of its i-th row.
func (s Seal) leafAt(i int) (n int64, hash []byte) {
	at := s.Leaves[i*leafSize : (i+1)*leafSize]
	return int64(binary.BigEndian.Uint64(at)), at[8:]
}
