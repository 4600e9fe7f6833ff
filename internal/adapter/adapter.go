// Package adapter has what the adapters of services behind an HTTP API do alike, whatever the
// service is: how options are checked, what an answer that never came means, what a check says of the
// connection, and how a payload is read.
package adapter

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/httpcall"
)

// Reports are what a service tells later of what it took: nothing, where it cannot be verified.
func Reports(verified bool, said ...delivery.Said) []delivery.Said {
	if !verified {
		return []delivery.Said{}
	}
	return said
}

// Endpoint reads the option of that name: the base of a service's API.
func Endpoint(text string) (*url.URL, error) {
	base, err := url.Parse(strings.TrimSuffix(text, "/") + "/")
	if err != nil || (base.Scheme != "https" && base.Scheme != "http") || base.Host == "" || base.User != nil {
		return nil, errors.New("option Endpoint is not an http or https URL without a user")
	}
	return base, nil
}

// IsVisible reports whether a secret is visible ASCII, as what stands in a header must be.
func IsVisible(secret string) bool {
	return !strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
}

// CheckSecret checks the option that has a secret.
func CheckSecret(option, secret string) error {
	if secret == "" || !IsVisible(secret) {
		return fmt.Errorf("option %s is empty or not visible ASCII", option)
	}
	return nil
}

// Account tells a service's accounts apart by their secrets, of which it says nothing.
func Account(service, secret string) string {
	sum := sha256.Sum256([]byte("deed " + service + " account " + secret))
	return hex.EncodeToString(sum[:6])
}

// Bearer are the headers of a request that a token authenticates; of one by nobody if it is empty.
func Bearer(token string) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {"deed"}}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

// Unanswered is what came of a call without a complete answer: unknown, unless nothing of it can have
// reached the service.
func Unanswered(service string, a httpcall.Answer) delivery.Outcome {
	err := fmt.Errorf("%s: %w", service, a.Err)
	if a.Connected {
		return delivery.Unknown(err)
	}
	return delivery.Outage(err, 0)
}

// Reached is the check of whether a service answers.
func Reached(base *url.URL, a httpcall.Answer) delivery.Check {
	if a.Err != nil {
		return delivery.Check{What: "connect to " + base.Host, Info: a.Err.Error()}
	}
	return delivery.Check{What: "connect to " + base.Host, OK: true, Info: "it answers"}
}

// ReadPayload reads a payload of these fields and no others. What is wrong is said in words that repeat
// no value: which other field there is, or of a field that it is not what takes says, such as "what a status has".
func ReadPayload(payload json.RawMessage, into any, takes, fields string) error {
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("the payload's %s is not %s", cmp.Or(typed.Field, "value"), takes)
	}
	if err != nil {
		if other, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // which has no type of its own
			return fmt.Errorf("the payload is no JSON object of %s: it has %s", fields, errortext.Clip(other))
		}
		return fmt.Errorf("the payload is no JSON object of %s", fields)
	}
	return nil
}

// SandboxHeader of an e-mail that goes to the sandbox says for whom it is.
const SandboxHeader = "X-Deed-Sandbox-For"

// NamedValue is an e-mail's header, or tag, as several services' requests have it.
type NamedValue struct {
	Name  string `json:"Name"`
	Value string `json:"Value"`
}

// Names are those of values.
func Names(values []NamedValue) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, v := range values {
			if !yield(v.Name) {
				return
			}
		}
	}
}

// CheckStored says why a stored request may not be sent that has these headers: an older version, or
// other rules, let them pass.
func CheckStored(service string, rules delivery.EmailRules, headers iter.Seq[string]) error {
	for name := range headers {
		if err := rules.CheckHeader(name); err != nil && name != SandboxHeader {
			return fmt.Errorf("%s: the stored request: %w", service, err)
		}
	}
	return nil
}
