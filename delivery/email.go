package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
)

// EmailPayload is the payload of a delivery over [Email], for every provider
// of e-mail. The recipient is the delivery's.
type EmailPayload struct {
	From    string            `json:"from,omitempty"` // default: the provider's
	ReplyTo string            `json:"reply_to,omitempty"`
	Subject string            `json:"subject"`
	Text    string            `json:"text,omitempty"` // at least one of Text and HTML
	HTML    string            `json:"html,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // such as List-Unsubscribe
}

// JSON returns the payload for [Delivery.Payload].
func (e EmailPayload) JSON() json.RawMessage {
	text, _ := json.Marshal(e) // strings cannot fail
	return text
}

// ReadEmail reads a delivery's payload and says what is wrong with it, the
// recipient included. from is the provider's own sender, or "". allowed are the
// senders that a payload may name beside it: addresses, @domains, or * for all;
// none given, the addresses of from's domain, or all if there is no from.
func ReadEmail(d Draft, from string, allowed ...string) (EmailPayload, error) {
	var e EmailPayload
	dec := json.NewDecoder(strings.NewReader(string(d.Payload)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, fmt.Errorf("payload of an e-mail: %w", err)
	}
	own := e.From == ""
	if own {
		e.From = from
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
		if !own && !mayBeFrom(e.From, from, allowed) {
			errs = append(errs, errors.New("from is not a sender that the provider allows; see from_allowed"))
		}
	}
	if e.ReplyTo != "" {
		address("reply_to", e.ReplyTo)
	}
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
		} else if isReserved(strings.ToLower(name)) {
			errs = append(errs, fmt.Errorf("header %q is made of the delivery itself, or by those who carry it", name))
		}
	}
	if size > maxHeaders {
		errs = append(errs, fmt.Errorf("headers of %d bytes are over the limit of %d", size, maxHeaders))
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return e, errors.Join(errs...)
}

// maxHeaders bounds the headers of a payload, all together, in bytes.
const maxHeaders = 64 << 10

var reservedHeaders = []string{
	"from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "mime-version", "content-type", "content-transfer-encoding",
	"sender", "return-path", "received", "received-spf", "delivered-to", "envelope-to", "x-original-to", "authentication-results", "dkim-signature",
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
