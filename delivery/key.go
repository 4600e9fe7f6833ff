package delivery

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/deedhq/deed/internal/idempotency"
)

// Key says what a delivery is for: within a tenant's workspace no two have the
// same one. The zero Key is none, and refused.
type Key [32]byte

// String returns the key in hex.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// MarshalText makes a Key a JSON string.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParseKey reads a key in hex.
func ParseKey(text string) (Key, error) {
	var k Key
	if n, err := hex.Decode(k[:], []byte(text)); err != nil || n != len(k) || len(text) != 2*len(k) {
		return Key{}, fmt.Errorf("key %q: want 64 hex digits", text)
	}
	return k, nil
}

// NewKey is the key of anything that its parts identify; of none, the zero Key,
// which is refused. The SQL function deed.idempotency_key makes the same one.
func NewKey(parts ...string) Key {
	if len(parts) == 0 {
		return Key{}
	}
	return idempotency.Key(parts...)
}

// EmailKey is the key of a campaign's e-mail.
func EmailKey(run, lead, asset string, scheduledFor time.Time) Key {
	return NewKey(run, lead, asset, idempotency.Time(scheduledFor))
}

// VoiceKey is the key of a campaign's call.
func VoiceKey(run, lead, scriptVersion string, scheduledFor time.Time) Key {
	return NewKey(run, lead, scriptVersion, idempotency.Time(scheduledFor))
}

// SocialKey is the key of a campaign's post.
func SocialKey(run, post, channel string, scheduledFor time.Time) Key {
	return NewKey(run, post, channel, idempotency.Time(scheduledFor))
}

// ReplyKey is the key of a part of the answer to a channel's message.
func ReplyKey(channelMessage, part string) Key { return NewKey(channelMessage, part) }
