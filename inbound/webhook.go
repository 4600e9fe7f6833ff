package inbound

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/signing"
	sink "github.com/deedhq/deed/sink/webhook"
)

// WebhookOptions configures [Webhook].
//
// ID, Sender, ReplyTo and Text say where something stands: header:NAME, or a path
// into the body such as $.a.b[0].c, where a string or a whole number is.
type WebhookOptions struct {
	// Secrets are the ones that the sender may sign with: any of them verifies. Under
	// standard, "whsec_" and the base64 of 24 to 64 bytes, or any other text of 16 bytes
	// at the least; under hmac, any text of 16 bytes at the least, which is the key as it
	// stands. Required.
	Secrets []string
	// Scheme is how requests are signed. standard: Standard Webhooks. hmac: an
	// HMAC-SHA256, which the options below describe. Default standard.
	Scheme string
	// Header has the signature. Required under hmac; default under standard:
	// webhook-signature.
	Header string
	// Encoding of the signature under hmac: hex or base64. Default hex.
	Encoding string
	// Prefix stands before the signature under hmac, such as sha256=. Default: none.
	Prefix string
	// Timestamp is the header that says when a request was signed, in seconds; by over
	// five minutes before or after now it is refused. Under hmac it needs a place in
	// Signed. Default: webhook-timestamp under standard; under hmac none, so that a
	// request that somebody has seen can be repeated for ever, as a repeat.
	Timestamp string
	// Signed is what is signed under hmac: a text in which {body} stands at the end,
	// {timestamp} for that header, and {header:NAME} for any other, such as
	// "{header:X-Id}.{timestamp}.{body}". Default {body}.
	Signed string
	// ID is the message's, by which repeats are known. A header's name under standard
	// is that of the one that is signed in place of webhook-id. Required under hmac;
	// default under standard: header:webhook-id.
	ID string
	// Sender is who wrote. Required.
	Sender string
	// ReplyTo is where an answer goes. Default: to Sender.
	ReplyTo string
	// Text is what they wrote. Default: there is none.
	Text string
	// Kind is the identity type of Sender. Default external_id.
	Kind string
	// Unsigned takes ID, Sender, ReplyTo and Text from headers that the signature does
	// not cover, too. Then who has seen a request can send it once more under another
	// id or name, and it is executed again; only TLS keeps requests from being seen.
	// Default: such headers are refused.
	Unsigned bool
}

type webhook struct {
	opts                      WebhookOptions
	keys                      [][]byte // under hmac
	signed                    []part   // under hmac
	idHeader                  string   // under standard
	id, sender, replyTo, text place
}

// Webhook reads what anything else sends: one message a request, as a JSON object or
// array. A request is verified as its options say; the URL, the host and headers
// that they do not name never matter. What is named must be there once.
func Webhook(opts WebhookOptions) (Source, error) {
	w := &webhook{opts: opts}
	w.opts.Secrets = slices.Clone(opts.Secrets)
	var errs []error
	switch opts.Scheme {
	case "", "standard":
		w.opts.Scheme = "standard"
		errs = w.checkStandard()
	case "hmac":
		errs = w.checkHMAC()
	default:
		errs = append(errs, errors.New("option Scheme is neither standard nor hmac"))
	}
	w.opts.Kind = cmp.Or(w.opts.Kind, "external_id")
	if !identityType.MatchString(w.opts.Kind) {
		errs = append(errs, errors.New("option Kind is not a name of a to z, 0 to 9 and _, of 1 to 63 characters"))
	}
	errs = append(errs, w.checkPlaces()...)
	if err := misconfigured("webhook", errs...); err != nil {
		return nil, err
	}
	return w, nil
}

var identityType = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

func (w *webhook) checkStandard() []error {
	var errs []error
	if len(w.opts.Secrets) == 0 {
		errs = append(errs, errors.New("option Secrets is missing"))
	}
	for i, s := range w.opts.Secrets {
		if err := signing.Check(s); err != nil {
			errs = append(errs, fmt.Errorf("option Secrets: secret %d %w", i+1, err))
		}
	}
	for _, o := range []struct{ name, value string }{{"Encoding", w.opts.Encoding}, {"Prefix", w.opts.Prefix}, {"Signed", w.opts.Signed}} {
		if o.value != "" {
			errs = append(errs, fmt.Errorf("option %s is for Scheme hmac alone", o.name))
		}
	}
	w.idHeader = "Webhook-Id"
	if name, ok := strings.CutPrefix(w.opts.ID, "header:"); ok && !w.opts.Unsigned {
		w.idHeader = http.CanonicalHeaderKey(name)
	}
	w.opts.ID = cmp.Or(w.opts.ID, "header:webhook-id")
	w.opts.Timestamp = cmp.Or(w.opts.Timestamp, "Webhook-Timestamp")
	w.opts.Header = cmp.Or(w.opts.Header, "Webhook-Signature")
	return append(errs, checkHeader("Timestamp", w.opts.Timestamp), checkHeader("Header", w.opts.Header))
}

func (w *webhook) checkHMAC() []error {
	keys, err := secretKeys("Secrets", w.opts.Secrets)
	w.keys = keys
	errs := []error{err}
	if w.opts.Header == "" {
		errs = append(errs, errors.New("option Header is missing"))
	} else {
		errs = append(errs, checkHeader("Header", w.opts.Header))
	}
	w.opts.Encoding = cmp.Or(w.opts.Encoding, "hex")
	if w.opts.Encoding != "hex" && w.opts.Encoding != "base64" {
		errs = append(errs, errors.New("option Encoding is neither hex nor base64"))
	}
	if w.opts.Timestamp != "" {
		errs = append(errs, checkHeader("Timestamp", w.opts.Timestamp))
	}
	if w.opts.ID == "" {
		errs = append(errs, errors.New("option ID is missing"))
	}
	w.opts.Signed = cmp.Or(w.opts.Signed, "{body}")
	w.signed, err = parseSigned(w.opts.Signed, w.opts.Timestamp)
	return append(errs, err)
}

// checkPlaces reads where things stand, and refuses headers that are not signed.
func (w *webhook) checkPlaces() []error {
	var errs []error
	covered := []string{w.idHeader, http.CanonicalHeaderKey(w.opts.Timestamp)}
	for _, p := range w.signed {
		covered = append(covered, p.header)
	}
	for _, o := range []struct {
		name, text string
		to         *place
	}{{"ID", w.opts.ID, &w.id}, {"Sender", w.opts.Sender, &w.sender}, {"ReplyTo", w.opts.ReplyTo, &w.replyTo}, {"Text", w.opts.Text, &w.text}} {
		switch {
		case o.text != "":
			p, err := parsePlace(o.name, o.text)
			if err == nil && p.header != "" && !w.opts.Unsigned && !slices.Contains(covered, p.header) {
				err = fmt.Errorf("option %s is the header %s, which is not signed: who repeats a request could change it; "+
					"take it from the body, sign it (Signed has {header:%s}), or set Unsigned", o.name, p.header, p.header)
			}
			*o.to, errs = p, append(errs, err)
		case o.name == "Sender":
			errs = append(errs, errors.New("option Sender is missing"))
		}
	}
	return errs
}

func checkHeader(option, name string) error {
	if !header.IsToken(name) {
		return fmt.Errorf("option %s is not the name of a header", option)
	}
	return nil
}

func (w *webhook) Read(r *http.Request, body []byte, now time.Time) (Received, error) {
	verify := w.verifyHMAC
	if w.opts.Scheme == "standard" {
		verify = w.verifyStandard
	}
	if err := verify(r.Header, body, now); err != nil {
		return Received{}, err
	}
	if r.Method != http.MethodPost {
		return Received{}, invalid("its method is not POST")
	}
	if err := checkJSON(body); err != nil {
		return Received{}, err
	}
	if fields(body) == nil && items(body) == nil {
		return Received{}, invalid("the body is not a JSON object or array")
	}
	e := Event{Kind: w.opts.Kind, Body: body}
	for _, o := range []struct {
		name string
		from place
		to   *string
	}{{"id", w.id, &e.ID}, {"sender", w.sender, &e.Sender}, {"place for answers", w.replyTo, &e.ReplyTo}, {"text", w.text, &e.Text}} {
		var ok bool
		if *o.to, ok = o.from.read(r.Header, body); !ok {
			return Received{}, invalid("the message's " + o.name + " is neither a string nor a whole number, or there twice")
		}
	}
	if w.opts.ReplyTo == "" {
		e.ReplyTo = e.Sender
	}
	var got Received
	if err := got.add(e); err != nil {
		return Received{}, err
	}
	return got, nil
}

// verifyStandard checks a signature of Standard Webhooks, whatever its headers'
// names are here.
func (w *webhook) verifyStandard(h http.Header, body []byte, now time.Time) error {
	renamed := http.Header{}
	for _, name := range [][2]string{{"Webhook-Id", w.idHeader}, {"Webhook-Timestamp", w.opts.Timestamp}, {"Webhook-Signature", w.opts.Header}} {
		value, err := single(h, name[1])
		if err != nil {
			return err
		}
		renamed.Set(name[0], value)
	}
	if strings.Contains(renamed.Get("Webhook-Id"), ".") {
		return unverified("the header " + w.idHeader + " has a dot in it, which Standard Webhooks rules out")
	}
	if err := fresh(renamed.Get("Webhook-Timestamp"), now); err != nil {
		return err
	}
	// The sink takes base64 with spare bits.
	renamed.Set("Webhook-Signature", strings.Join(slices.DeleteFunc(strings.Fields(renamed.Get("Webhook-Signature")), func(field string) bool {
		_, ok := decodeSum("base64", strings.TrimPrefix(field, "v1,"))
		return !ok
	}), " "))
	if err := sink.Verify(w.opts.Secrets, renamed, body, tolerance, now); err != nil {
		return unverified("no signature in the header " + w.opts.Header + " matches")
	}
	return nil
}

func (w *webhook) verifyHMAC(h http.Header, body []byte, now time.Time) error {
	signature, err := single(h, w.opts.Header)
	if err != nil {
		return err
	}
	if w.opts.Timestamp != "" {
		timestamp, err := single(h, w.opts.Timestamp)
		if err != nil {
			return err
		}
		if err := fresh(timestamp, now); err != nil {
			return err
		}
	}
	var signed []byte
	for _, p := range w.signed {
		if signed, err = p.append(signed, h); err != nil {
			return err
		}
	}
	encoded, known := strings.CutPrefix(signature, w.opts.Prefix)
	sum, ok := decodeSum(w.opts.Encoding, encoded)
	if !known || !ok || !isSum(sum, w.keys, signed, body) {
		return unverified("the header " + w.opts.Header + " has another signature")
	}
	return nil
}

// part is a piece of what is signed before the body: a header, and the text that
// follows it. The first has no header.
type part struct {
	header string
	then   string
}

var placeholder = regexp.MustCompile(`\{(body|timestamp|header:[^{}]+)\}`)

// parseSigned reads Signed. Any bytes that are signed can be read in one way only: a
// header ends where the text after it begins, so it never has that text's first
// character, and a timestamp has digits alone.
func parseSigned(signed, timestamp string) ([]part, error) {
	before, ok := strings.CutSuffix(signed, "{body}")
	if !ok || strings.Contains(before, "{body}") {
		return nil, errors.New("option Signed does not have {body} once, at its end")
	}
	var parts []part
	var current part
	hasTimestamp := false
	for {
		at := placeholder.FindStringIndex(before)
		literal := before
		if at != nil {
			literal = before[:at[0]]
		}
		if strings.ContainsAny(literal, "{}") {
			return nil, errors.New("option Signed has a brace that is no part of {body}, {timestamp} or {header:NAME}")
		}
		current.then = literal
		if err := current.check(timestamp, at == nil); err != nil {
			return nil, err
		}
		parts = append(parts, current)
		if at == nil {
			break
		}
		name := strings.Trim(before[at[0]:at[1]], "{}")
		if name == "timestamp" {
			name, hasTimestamp = "header:"+timestamp, true
		}
		current = part{header: http.CanonicalHeaderKey(strings.TrimPrefix(name, "header:"))}
		before = before[at[1]:]
	}
	if hasTimestamp != (timestamp != "") {
		return nil, errors.New("option Signed needs {timestamp}, and option Timestamp that header's name, or neither")
	}
	return parts, nil
}

// check says whether a part can be told from what follows. The body begins with
// none of a timestamp's digits.
func (p part) check(timestamp string, last bool) error {
	switch {
	case p.header == "": // what stands before the first header
		return nil
	case !header.IsToken(p.header):
		return errors.New("option Signed has a {header:NAME} whose name is none of a header")
	case timestamp != "" && p.header == http.CanonicalHeaderKey(timestamp):
		if p.then == "" && !last || p.then != "" && isDigits(p.then[:1]) {
			return errors.New("option Signed has no text after the timestamp that begins with another character than a digit")
		}
	case p.then == "":
		return fmt.Errorf("option Signed has no text after the header %s, so that nobody can tell where it ends", p.header)
	}
	return nil
}

// append appends what a request has for this part.
func (p part) append(signed []byte, h http.Header) ([]byte, error) {
	if p.header == "" {
		return append(signed, p.then...), nil
	}
	value, err := single(h, p.header)
	if err != nil {
		return nil, err
	}
	if p.then != "" && strings.Contains(value, p.then[:1]) {
		return nil, unverified("the header " + p.header + " has the character that ends it where it is signed")
	}
	return append(append(signed, value...), p.then...), nil
}

// place is where something stands in a request: in a header or in the body, or
// nowhere.
type place struct {
	header string
	path   path
}

func parsePlace(option, text string) (place, error) {
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		if err := checkHeader(option, name); err != nil {
			return place{}, err
		}
		return place{header: http.CanonicalHeaderKey(name)}, nil
	}
	p, err := parsePath(text)
	if err != nil {
		return place{}, fmt.Errorf("option %s is no header:NAME, and %w", option, err)
	}
	return place{path: p}, nil
}

// read returns what stands there, or "" for nothing. ok is false for what is not a
// string nor a whole number, and for a header that is there twice.
func (p place) read(h http.Header, body []byte) (value string, ok bool) {
	switch {
	case p.header != "":
		list := h.Values(p.header)
		return strings.Join(list, ""), len(list) <= 1
	case p.path != nil:
		return p.path.read(body)
	default:
		return "", true
	}
}
