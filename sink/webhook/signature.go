package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/signing"
)

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"

	defaultTolerance = 5 * time.Minute
	maxSignatures    = 32 // looked at in one header
)

func signingKeys(secret, previous string) ([][]byte, error) {
	var errs []error
	var keys [][]byte
	for _, s := range []struct{ name, text string }{{"Secret", secret}, {"PreviousSecret", previous}} {
		if s.text == "" && s.name == "PreviousSecret" {
			continue
		}
		if err := signing.Check(s.text); err != nil {
			errs = append(errs, fmt.Errorf("option %s %w", s.name, err))
			continue
		}
		key, _ := signing.Key(s.text) // Check has read it
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// sign returns one signature. Neither id nor timestamp has a dot in it, so the
// signed bytes can be read in one way only.
func sign(key []byte, id, timestamp string, body []byte) [sha256.Size]byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return [sha256.Size]byte(mac.Sum(nil))
}

func signatureHeader(keys [][]byte, id, timestamp string, body []byte) string {
	list := make([]string, len(keys))
	for i, key := range keys {
		sum := sign(key, id, timestamp, body)
		list[i] = "v1," + base64.StdEncoding.EncodeToString(sum[:])
	}
	return strings.Join(list, " ")
}

// Verify is for receivers: it checks that a request was signed with one of
// secrets and not longer than tolerance before or after now. body is the
// request's body byte for byte. A tolerance of 0 means 5 minutes. Drop repeats
// by the header webhook-id afterwards; a repeat is signed anew.
func Verify(secrets []string, h http.Header, body []byte, tolerance time.Duration, now time.Time) error {
	if len(secrets) == 0 {
		return errors.New("webhook: verify: no secret given")
	}
	id, timestamp := h.Get(headerID), h.Get(headerTimestamp)
	given := parseSignatures(strings.Join(h.Values(headerSignature), " "))
	switch {
	case id == "" || timestamp == "":
		return errors.New("webhook: verify: the header webhook-id or webhook-timestamp is missing")
	case strings.Contains(id, ".") || strings.Contains(timestamp, "."):
		return errors.New("webhook: verify: the header webhook-id or webhook-timestamp has a dot in it")
	case len(given) == 0:
		return errors.New("webhook: verify: the header webhook-signature has no v1 signature")
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return errors.New("webhook: verify: the header webhook-timestamp is not a number of seconds")
	}
	// Every pair is compared, whatever the ones before it gave.
	match := false
	for _, secret := range secrets {
		key, err := signing.Key(secret)
		if err != nil {
			return fmt.Errorf("webhook: verify: a secret %w", err)
		}
		want := sign(key, id, timestamp, body)
		for _, got := range given {
			match = hmac.Equal(got, want[:]) || match
		}
	}
	if !match {
		return errors.New("webhook: verify: no signature matches")
	}
	if tolerance <= 0 {
		tolerance = defaultTolerance
	}
	at := time.Unix(seconds, 0)
	if at.Before(now.Add(-tolerance)) || at.After(now.Add(tolerance)) {
		return fmt.Errorf("webhook: verify: signed at another time than now, by more than %s", tolerance)
	}
	return nil
}

// parseSignatures returns the v1 signatures of a header; other versions and
// what is malformed are for somebody else.
func parseSignatures(header string) [][]byte {
	var list [][]byte
	for field := range strings.FieldsSeq(header) {
		version, encoded, ok := strings.Cut(field, ",")
		if !ok || version != "v1" {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(sum) != sha256.Size {
			continue
		}
		if list = append(list, sum); len(list) == maxSignatures {
			break
		}
	}
	return list
}
