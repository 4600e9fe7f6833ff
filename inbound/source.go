package inbound

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
)

// Event is one message as its platform sent it: verified, and not stored yet.
type Event struct {
	ID      string          // the platform's id of it, 1 to 255 bytes without control characters: by it repeats are known
	Sender  string          // who wrote, as the platform names them: a user's id, a number, an address
	Kind    string          // what Sender is: an identity type of contacts (telegram, slack, whatsapp, email, external_id)
	Also    []Identity      // what else the platform says that who wrote is known by: their contact gets those that it lacks
	ReplyTo string          // where an answer goes, as a provider of that platform takes recipients (a chat's id, a channel with its thread)
	Text    string          // what they wrote, where there is text
	Body    json.RawMessage // the platform's event as it sent it
}

// Identity is what somebody is known by.
type Identity struct {
	Kind  string // its type, as [Event.Kind]
	Value string
}

// Answer is a response that a platform wants word for word, as in a handshake.
type Answer struct {
	Status      int
	ContentType string
	Body        []byte
}

// Received is what a request had in it.
type Received struct {
	Events  []Event
	Ignored map[string]int // what is nobody's message, by our word for it (bot, status, edited, ...), and how many
	Answer  *Answer        // nil: 200, once the events are stored

	// Statuses are what became of messages of ours, where the platform says that at the
	// same place.
	Statuses []delivery.StatusEvent

	// Unreadable is how many events there are that nothing can be made of. They are
	// counted, told in the log and passed over, so that they hold up no others: a
	// platform brings what is refused again, for a day, and before what came later.
	Unreadable int
}

// Source verifies and reads what one platform sends. Safe for concurrent use.
type Source interface {
	// Read verifies a request by its raw body, and reads it. now is the database's clock.
	// Events may keep body, which must not be changed afterwards.
	// Errors: ErrUnverified (answered by 401, nothing is stored), ErrInvalid (400).
	Read(r *http.Request, body []byte, now time.Time) (Received, error)
}

// HeaderVerifier is a [Source] whose platform is known by the headers of its requests, as by a secret in one: what is
// not known is refused before its body is read, and takes none of the places that the platform's requests need.
type HeaderVerifier interface {
	// VerifyHeaders returns nil or [ErrUnverified], as Read does.
	VerifyHeaders(h http.Header) error
}

// What is wrong with a request. Neither error's text has anything in it that was
// sent, nor a secret.
var (
	// ErrUnverified says that a request is not known to be from the platform.
	ErrUnverified = errors.New("the request is not verified")
	// ErrInvalid says that a request of the platform cannot be read.
	ErrInvalid = errors.New("the request cannot be read")
)

// Words for what is nobody's message. They are a metric's labels: what is sent
// never adds one.
const (
	ignoredBot        = "bot"        // a program wrote it: two that answer each other never end
	ignoredEdited     = "edited"     // a message that came before was changed
	ignoredDeleted    = "deleted"    // a message that came before was taken away
	ignoredReaction   = "reaction"   // a sign put to a message
	ignoredChannel    = "channel"    // a channel or a group speaks, and no person
	ignoredMembership = "membership" // somebody came, went, or was given a role
	ignoredService    = "service"    // the platform's note of what happened in a chat
	ignoredOther      = "other"      // anything else
)

const (
	tolerance   = 5 * time.Minute // either way, for a request that says when it was signed
	longestID   = 255             // bytes
	longestTo   = 2048            // bytes: it may be a URL
	leastSecret = 16              // bytes
)

// ignore counts n of what is nobody's message.
func (r *Received) ignore(word string, n int) {
	if n == 0 {
		return
	}
	if r.Ignored == nil {
		r.Ignored = map[string]int{}
	}
	r.Ignored[word] += n
}

// add checks an event and appends it.
func (r *Received) add(e Event) error {
	switch {
	case !isPlain(e.ID, longestID):
		return invalid("the message's id is missing, or has over 255 bytes or a control character")
	case !isPlain(e.Sender, longestID):
		return invalid("the message's sender is missing, or has over 255 bytes or a control character")
	case e.ReplyTo != "" && !isPlain(e.ReplyTo, longestTo):
		return invalid("where an answer goes has over 2048 bytes or a control character")
	case slices.ContainsFunc(e.Also, func(i Identity) bool { return !isPlain(i.Value, longestID) }):
		return invalid("what else the sender is known by has over 255 bytes or a control character")
	case len(e.Body) > maxBody:
		return invalid("the message has over 1 MiB")
	case !utf8.ValidString(e.Text) || strings.Contains(e.Text, "\x00"):
		return invalid("the message's text is not UTF-8, or has a NUL in it")
	}
	r.Events = append(r.Events, e)
	return nil
}

func isPlain(text string, longest int) bool {
	return text != "" && len(text) <= longest && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func unverified(text string) error { return fmt.Errorf("%w: %s", ErrUnverified, text) }

// unreadable says what of a request cannot be read, in words that repeat nothing of it: who sent
// it, and the log, are told.
type unreadable string

func (u unreadable) Error() string { return ErrInvalid.Error() + ": " + string(u) }

// Unwrap returns [ErrInvalid].
func (u unreadable) Unwrap() error { return ErrInvalid }

func invalid(text string) error { return unreadable(text) }

// misconfigured is a constructor's error, or nil if there is none in errs.
func misconfigured(source string, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return &deed.Error{Op: source + " source", Code: deed.Invalid, Err: err}
}

// secretKeys returns the bytes of secrets whose text is the key.
func secretKeys(option string, secrets []string) ([][]byte, error) {
	if len(secrets) == 0 {
		return nil, fmt.Errorf("option %s is missing", option)
	}
	var keys [][]byte
	for i, s := range secrets {
		if len(s) < leastSecret {
			return nil, fmt.Errorf("option %s: secret %d has %d bytes; it must have at least %d", option, i+1, len(s), leastSecret)
		}
		keys = append(keys, []byte(s))
	}
	return keys, nil
}

// single returns a header that a request has once. Of two, a proxy and we might
// read different ones.
func single(h http.Header, name string) (string, error) {
	switch list := h.Values(name); {
	case len(list) == 0 || len(list) == 1 && list[0] == "":
		return "", unverified("the header " + name + " is missing")
	case len(list) > 1:
		return "", unverified("the header " + name + " is there twice")
	default:
		return list[0], nil
	}
}

// readPost returns the JSON object that a request brings, and its text, [mended].
func readPost(r *http.Request, body []byte) (object, []byte, error) {
	if r.Method != http.MethodPost {
		return nil, nil, invalid("its method is not POST")
	}
	body = mended(body)
	o, err := readObject(body)
	return o, body, err
}

// try adds what one event has; one that add can make nothing of is counted.
func (r *Received) try(add func() error) {
	if add() != nil {
		r.Unreadable++
	}
}

// fresh checks when a request says that it was signed, in seconds.
func fresh(seconds string, now time.Time) error {
	if len(seconds) > 12 || !isDigits(seconds) {
		return unverified("when it was signed is not a number of seconds")
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return unverified("when it was signed is not a number of seconds")
	}
	if now.Sub(time.Unix(n, 0)).Abs() > tolerance {
		return unverified("it was signed more than five minutes before or after now")
	}
	return nil
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// decodeSum returns an HMAC-SHA256 as a header has it, whose bytes have one
// spelling alone (but for the case of hex).
func decodeSum(encoding, text string) ([]byte, bool) {
	var sum []byte
	var err error
	switch {
	case encoding == "hex" && len(text) == hex.EncodedLen(sha256.Size):
		sum, err = hex.DecodeString(text)
	case encoding == "base64" && len(text) == base64.StdEncoding.EncodedLen(sha256.Size):
		sum, err = base64.StdEncoding.Strict().DecodeString(text)
	}
	return sum, err == nil && len(sum) == sha256.Size
}

// isSum reports whether sum is the HMAC-SHA256 of parts under one of keys. All of
// them are tried, whatever the ones before gave.
func isSum(sum []byte, keys [][]byte, parts ...[]byte) bool {
	match := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		for _, p := range parts {
			mac.Write(p)
		}
		match = hmac.Equal(sum, mac.Sum(nil)) || match
	}
	return match
}

// isSecret reports whether given is one of secrets. What is compared are hashes,
// so that its time says nothing of their lengths either.
func isSecret(given string, secrets [][]byte) bool {
	match := false
	sum := sha256.Sum256([]byte(given))
	for _, s := range secrets {
		want := sha256.Sum256(s)
		match = hmac.Equal(sum[:], want[:]) || match
	}
	return match
}

// challenge is the answer to a handshake: what was sent, as text. A challenge of
// anything but visible ASCII is none that a platform sends.
func challenge(text string) (*Answer, error) {
	if text == "" || len(text) > longestID || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, invalid("the challenge is missing, or is not 1 to 255 characters of visible ASCII")
	}
	return &Answer{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8", Body: []byte(text)}, nil
}
