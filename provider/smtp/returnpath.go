package smtp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"github.com/deedhq/deed/internal/signing"
	"github.com/deedhq/deed/internal/uuid"
)

// returnPath makes the addresses that bounces come back to, and knows them again: each
// has a delivery's id in it, and a MAC of it, so that nobody makes one up. Letters' case
// does not count, since servers change it.
type returnPath struct {
	before, after string // what stands around the id, the domain with it; in lower case
	key           []byte
	previous      []byte // nil: none; addresses that were made with it are known, too
}

const (
	idMark    = "{id}"
	macBytes  = 10
	mostLocal = 64 // RFC 5321, section 4.5.3.1.1
)

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func newReturnPath(template, secret, previous string) (*returnPath, error) {
	key, err := keyOf("EventSecret", secret)
	if err != nil {
		return nil, err
	}
	var older []byte
	if previous != "" {
		if older, err = keyOf("PreviousEventSecret", previous); err != nil {
			return nil, err
		}
	}
	if strings.Count(template, idMark) != 1 {
		return nil, errors.New("option ReturnPath wants {id} once, such as bounce+{id}@example.com")
	}
	r := &returnPath{key: key, previous: older}
	r.before, r.after, _ = strings.Cut(strings.ToLower(template), idMark)
	made := r.address(uuid.New().String())
	parsed, err := mail.ParseAddress(made)
	if err != nil || parsed.Address != made || !strings.Contains(r.after, "@") {
		return nil, errors.New("option ReturnPath is not an address with {id} before its @")
	}
	if n := strings.LastIndexByte(made, '@'); n > mostLocal {
		return nil, fmt.Errorf("option ReturnPath: with an id there are %d characters before its @, and %d are allowed", n, mostLocal)
	}
	return r, nil
}

func keyOf(option, secret string) ([]byte, error) {
	if err := signing.Check(secret); err != nil {
		return nil, fmt.Errorf("option %s %w", option, err)
	}
	key, err := signing.Key(secret)
	if err != nil {
		return nil, fmt.Errorf("option %s %w", option, err)
	}
	return key, nil
}

func (r *returnPath) mac(key, id []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("return path\x00" + r.before + "\x00" + r.after + "\x00"))
	h.Write(id)
	return h.Sum(nil)[:macBytes]
}

// address is where a delivery's bounces come to.
func (r *returnPath) address(id string) string {
	raw, err := uuid.Parse(id)
	if err != nil {
		raw = uuid.UUID{}
	}
	return r.before + idEncoding.EncodeToString(append(raw[:], r.mac(r.key, raw[:])...)) + r.after
}

// takes reports whether an address looks like one, whoever made it.
func (r *returnPath) takes(address string) bool {
	a := strings.ToLower(address)
	return len(a) > len(r.before)+len(r.after) && strings.HasPrefix(a, r.before) && strings.HasSuffix(a, r.after)
}

// delivery is whose address it is; false: we have not made it.
func (r *returnPath) delivery(address string) (id string, ok bool) {
	if !r.takes(address) {
		return "", false
	}
	a := strings.ToLower(address)
	a = a[len(r.before) : len(a)-len(r.after)]
	raw, err := idEncoding.DecodeString(a)
	if err != nil || idEncoding.EncodeToString(raw) != a || len(raw) != len(uuid.UUID{})+macBytes {
		return "", false
	}
	made, mac := raw[:len(raw)-macBytes], raw[len(raw)-macBytes:]
	if !hmac.Equal(mac, r.mac(r.key, made)) && (r.previous == nil || !hmac.Equal(mac, r.mac(r.previous, made))) {
		return "", false
	}
	return uuid.UUID(made).String(), true
}
