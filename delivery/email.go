package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"unicode/utf8"
)

// EmailPayload is the payload of a delivery over [Email], for every provider
// of e-mail. The recipient is the delivery's. There are no blind copies: who gets one
// could not be told from the e-mail, neither by its readers nor in what is kept of it.
// Each is a delivery of its own.
type EmailPayload struct {
	From    string `json:"from,omitempty"`     // default: the provider's
	ReplyTo string `json:"reply_to,omitempty"` // an address, or up to ten with commas between them
	// CC are addresses, up to 20, who get a copy and are seen by all: none of them may be
	// suppressed, or nobody is written to.
	CC      []string          `json:"cc,omitempty"`
	Subject string            `json:"subject"`
	Text    string            `json:"text,omitempty"` // at least one of Text and HTML; made of HTML if there is none
	HTML    string            `json:"html,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // such as References; see [EmailRules]
	// Attachments are up to 20 files, of 7 MiB together.
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Check says what of it is not UTF-8: JSON has no room for such texts, and would
// replace what they say.
func (e EmailPayload) Check() error {
	var errs []error
	check := func(what, text string) {
		if !utf8.ValidString(text) {
			errs = append(errs, fmt.Errorf("%s is not UTF-8", what))
		}
	}
	check("from", e.From)
	check("reply_to", e.ReplyTo)
	check("subject", e.Subject)
	check("text", e.Text)
	check("html", e.HTML)
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		check(fmt.Sprintf("header %q", name), name+e.Headers[name])
	}
	for i, to := range e.CC {
		check(fmt.Sprintf("cc %d", i+1), to)
	}
	for i, a := range e.Attachments {
		check(fmt.Sprintf("attachment %d", i+1), a.Name+a.Type+a.ContentID)
	}
	return errors.Join(errs...)
}

// JSON returns the payload for [Delivery.Payload]; none, which [Reserve] refuses,
// where [EmailPayload.Check] finds something.
func (e EmailPayload) JSON() json.RawMessage {
	if e.Check() != nil {
		return nil
	}
	text, _ := json.Marshal(e) // strings cannot fail
	return text
}

// EmailRules are what a provider of e-mail lets payloads say.
type EmailRules struct {
	// From is the sender of e-mails that name none, or "".
	From string
	// FromAllowed are the senders that a payload may name beside it: addresses,
	// @domains, or * for all. Default: the addresses of From's domain; all, if
	// there is no From.
	FromAllowed []string
	// HeadersAllowed are the headers that a payload may set beside those of every
	// e-mail, such as List-Unsubscribe and References: names, beginnings such as
	// X-Shop-*, or * for all. Default: no others, since services take commands
	// from headers. Those that deed or the carriers set are nobody's.
	HeadersAllowed []string
}

// Check says whether From is no address, and which of the headers that are allowed never can be.
func (r EmailRules) Check() error {
	var errs []error
	if _, err := mail.ParseAddress(r.From); r.From != "" && err != nil {
		errs = append(errs, errors.New("option From is not an address"))
	}
	for _, entry := range r.FromAllowed {
		if entry != "*" && strings.Contains(entry, "*") {
			errs = append(errs, fmt.Errorf("option FromAllowed: %q: a * stands alone, for all; a domain, such as @example.com, stands for itself and not for those below it", entry))
		}
	}
	for _, entry := range r.HeadersAllowed {
		name := strings.ToLower(strings.TrimSuffix(entry, "*"))
		if entry != "*" && (!isHeaderName(name) || strings.Contains(name, "*") || isReserved(name)) {
			errs = append(errs, fmt.Errorf("option HeadersAllowed: %q is no header, no beginning such as X-Shop-* and not *, or deed or the carriers set it", entry))
		}
	}
	return errors.Join(errs...)
}

// CheckHeader says why a payload may not set a header.
func (r EmailRules) CheckHeader(name string) error {
	lower := strings.ToLower(name)
	if isReserved(lower) {
		return fmt.Errorf("header %q is made of the delivery itself, or by those who carry it", name)
	}
	if slices.Contains(usualHeaders, lower) || slices.ContainsFunc(r.HeadersAllowed, func(entry string) bool {
		start, many := strings.CutSuffix(strings.ToLower(entry), "*")
		return start == lower || many && strings.HasPrefix(lower, start)
	}) {
		return nil
	}
	return fmt.Errorf("header %q may command the service that sends: a payload sets none but the usual ones and those of the provider's headers_allowed", name)
}

// ReadEmail reads a delivery's payload and says what is wrong with it, the
// recipient included. What it returns is what is to be sent: no copies for the sandbox, and a
// link to unsubscribe by.
func ReadEmail(d Draft, rules EmailRules) (EmailPayload, error) {
	var e EmailPayload
	dec := json.NewDecoder(bytes.NewReader(d.Payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, payloadError(err)
	}
	if len(bytes.TrimLeft(d.Payload[dec.InputOffset():], " \t\r\n")) > 0 {
		return e, payloadError(errors.New("there is something behind the object"))
	}
	if err := checkNames(d.Payload); err != nil {
		return e, payloadError(err)
	}
	own := e.From == ""
	if own {
		e.From = rules.From
	}
	var errs []error
	address := func(what, text string) {
		if a, err := mail.ParseAddress(text); err != nil {
			errs = append(errs, fmt.Errorf("%s is not an address", what))
		} else if strings.ContainsAny(a.Address, "\r\n") {
			errs = append(errs, fmt.Errorf("%s has a line break", what))
		}
	}
	address("recipient", d.Recipient)
	if a, err := mail.ParseAddress(d.Recipient); err == nil && a.Address != d.Recipient {
		// Suppressions and limits would not know it.
		errs = append(errs, errors.New("recipient is more than an address: leave out names, quotes and comments"))
	}
	if e.From == "" {
		errs = append(errs, errors.New("from is missing: the payload has none and the provider has none"))
	} else {
		address("from", e.From)
		if !own && !mayBeFrom(e.From, rules.From, rules.FromAllowed) {
			errs = append(errs, errors.New("from is not a sender that the provider allows; see from_allowed"))
		}
	}
	if e.ReplyTo != "" {
		if list, err := mail.ParseAddressList(e.ReplyTo); err != nil || len(list) > mostReplyTo || strings.ContainsAny(e.ReplyTo, "\r\n") {
			errs = append(errs, fmt.Errorf("reply_to is not an address, or up to %d with commas between them", mostReplyTo))
		}
	}
	errs = append(errs, e.copies(d.Recipient)...)
	if d.SandboxFor != "" {
		e.CC = nil // it goes to the sandbox alone
	}
	errs = append(errs, e.attachments()...)
	if e.Subject == "" || strings.ContainsAny(e.Subject, "\r\n") {
		errs = append(errs, errors.New("subject is empty or has a line break"))
	}
	if e.Text == "" && e.HTML == "" {
		errs = append(errs, errors.New("there is neither text nor html"))
	}
	size := 0
	for name, value := range e.Headers {
		size += len(name) + len(value)
		if !isHeaderName(name) || strings.ContainsAny(value, "\r\n") {
			errs = append(errs, fmt.Errorf("header %q cannot be sent", name))
		} else if err := rules.CheckHeader(name); err != nil {
			errs = append(errs, err)
		}
	}
	if size > maxHeaders {
		errs = append(errs, fmt.Errorf("headers of %d bytes are over the limit of %d", size, maxHeaders))
	}
	if d.Unsubscribe != "" {
		e.unsubscribeBy(d.Unsubscribe)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return e, errors.Join(errs...)
}

// checkNames refuses fields whose names are written otherwise than they are, such as with capitals, which
// encoding/json takes for the same: what looks at the payload in the database, such as for copies to people who are
// suppressed, knows the exact names alone. The payload has been read, so that it is JSON.
func checkNames(payload []byte) error {
	depth, name := 0, false // name: the next string is a field's name
	for i := 0; i < len(payload); i++ {
		switch payload[i] {
		case '{', '[':
			depth++
			name = depth == 1
		case '}', ']':
			depth--
		case ',':
			name = depth == 1
		case '"':
			end := stringEnd(payload, i)
			if name {
				if err := checkName(payload[i:end]); err != nil {
					return err
				}
			}
			name, i = false, end-1
		}
	}
	return nil
}

// stringEnd is behind the JSON string that begins at a place.
func stringEnd(text []byte, from int) int {
	for i := from + 1; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			break
		}
		i += n
		before := i
		for text[before-1] == '\\' {
			before--
		}
		if (i-before)%2 == 0 {
			return i + 1
		}
	}
	return len(text)
}

// checkName is of one name, in its quotes.
func checkName(quoted []byte) error {
	var name string
	if err := json.Unmarshal(quoted, &name); err != nil {
		return err
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		return fmt.Errorf("unknown field %q: names are in small letters", name)
	}
	return nil
}

// maxHeaders bounds the headers of a payload, all together, in bytes.
const maxHeaders = 64 << 10

// usualHeaders are those of every e-mail: they speak to who reads it, and no
// service that sends takes a command from them.
var usualHeaders = []string{
	"list-archive", "list-help", "list-id", "list-owner", "list-post", "list-subscribe", "list-unsubscribe", "list-unsubscribe-post",
	"in-reply-to", "references", "thread-index", "thread-topic", "auto-submitted", "precedence", "x-auto-response-suppress",
	"importance", "priority", "x-priority", "feedback-id", "x-entity-ref-id", "comments", "keywords", "organization",
}

var reservedHeaders = []string{
	"from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "mime-version", "content-type", "content-transfer-encoding",
	"sender", "return-path", "received", "received-spf", "delivered-to", "envelope-to", "apparently-to", "x-original-to", "authentication-results", "dkim-signature",
}

func isReserved(lower string) bool {
	return slices.Contains(reservedHeaders, lower) || strings.HasPrefix(lower, "resent-") || strings.HasPrefix(lower, "x-deed-") || strings.HasPrefix(lower, "arc-")
}

// mayBeFrom reports whether a payload may name the sender. What cannot be read
// has been refused already.
func mayBeFrom(sender, from string, allowed []string) bool {
	domainOf := func(text string) string {
		a, err := mail.ParseAddress(text)
		if err != nil {
			return ""
		}
		return a.Address[strings.LastIndex(a.Address, "@"):]
	}
	if len(allowed) == 0 {
		return from == "" || strings.EqualFold(domainOf(sender), domainOf(from))
	}
	a, err := mail.ParseAddress(sender)
	return err != nil || slices.ContainsFunc(allowed, func(entry string) bool {
		return entry == "*" || strings.EqualFold(entry, a.Address) || strings.EqualFold(entry, domainOf(sender))
	})
}

func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' })
}
