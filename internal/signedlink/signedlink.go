// Package signedlink makes and checks what follows the path of a link that only we
// can have made: for whom it is, until when, and what we want to know when it comes
// back.
//
// A token is readable by who has it, and not to be changed: its MAC is HMAC-SHA256 over
// the path's name, the end and the fields. Secrets are rotated: the first one signs,
// and all of them check.
package signedlink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/signing"
)

// What is wrong with a token.
var (
	ErrForged  = errors.New("the link was not made here, or has been changed")
	ErrExpired = errors.New("the link's time is over")
)

const (
	version   = 1
	mostBytes = 4096 // of a token
)

// Signer makes and checks tokens. It is safe for concurrent use.
type Signer struct{ keys [][]byte }

// New returns a signer with its secrets, the one that signs first. Each is whsec_ and
// base64, or any text of 16 bytes at the least.
func New(secrets ...string) (*Signer, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there is no secret")
	}
	s := &Signer{}
	for i, secret := range secrets {
		if err := signing.Check(secret); err != nil {
			return nil, fmt.Errorf("secret %d %w", i+1, err)
		}
		key, err := signing.Key(secret)
		if err != nil {
			return nil, fmt.Errorf("secret %d %w", i+1, err)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// Previous returns a signer for each secret but the first.
func (s *Signer) Previous() []*Signer {
	var list []*Signer
	for _, key := range s.keys[1:] {
		list = append(list, &Signer{keys: [][]byte{key}})
	}
	return list
}

// Sign returns the token of a path for these fields; it checks until a time, in
// seconds. A token has letters of A-Z a-z 0-9 _ - alone.
func (s *Signer) Sign(path string, until time.Time, fields ...string) string {
	body := binary.BigEndian.AppendUint64([]byte{version}, uint64(until.Unix()))
	for _, f := range fields {
		body = append(binary.AppendUvarint(body, uint64(len(f))), f...)
	}
	return base64.RawURLEncoding.EncodeToString(append(body, sum(s.keys[0], path, body)...))
}

// Check returns the fields of a token that was made for this path. Errors:
// [ErrForged], [ErrExpired].
func (s *Signer) Check(path, token string, at time.Time) ([]string, error) {
	if len(token) > mostBytes {
		return nil, ErrForged
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < 1+8+sha256.Size || raw[0] != version || strings.ContainsAny(token, "\r\n") { // which base64 passes over
		return nil, ErrForged
	}
	body, mac := raw[:len(raw)-sha256.Size], raw[len(raw)-sha256.Size:]
	ours := false
	for _, key := range s.keys {
		ours = hmac.Equal(mac, sum(key, path, body)) || ours
	}
	if !ours {
		return nil, ErrForged
	}
	if at.Unix() >= int64(binary.BigEndian.Uint64(body[1:])) {
		return nil, ErrExpired
	}
	var fields []string
	for rest := body[9:]; len(rest) > 0; {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return nil, ErrForged
		}
		fields = append(fields, string(rest[used:used+int(n)]))
		rest = rest[used+int(n):]
	}
	return fields, nil
}

// sum is the MAC of a body under a path: without the path a token of one page would
// do for another.
func sum(key []byte, path string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(path))))
	h.Write([]byte(path))
	h.Write(body)
	return h.Sum(nil)
}
