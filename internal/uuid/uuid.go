// Package uuid makes, reads and writes UUIDs.
package uuid

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
)

// UUID is one of any version.
type UUID [16]byte

// New makes a UUIDv7: 48 bits of milliseconds, the rest is random.
func New() UUID {
	var u UUID
	_, _ = rand.Read(u[:]) // it never fails
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16|0x7000|uint64(u[6]&0x0f)<<8|uint64(u[7]))
	u[8] = u[8]&0x3f | 0x80
	return u
}

var errForm = errors.New("want a UUID such as 6f1c2d3e-0000-4000-8000-000000000001")

// Parse reads the 36-character form, in either case.
func Parse(s string) (UUID, error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, errForm
	}
	var u UUID
	compact := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(u[:], []byte(compact)); err != nil {
		return UUID{}, errForm
	}
	return u, nil
}

// String returns the lower-case 36-character form.
func (u UUID) String() string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:], u[10:])
	return string(b[:])
}
