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
// recipient included. from is the provider's own sender, or "".
func ReadEmail(d Draft, from string) (EmailPayload, error) {
	var e EmailPayload
	dec := json.NewDecoder(strings.NewReader(string(d.Payload)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, fmt.Errorf("payload of an e-mail: %w", err)
	}
	if e.From == "" {
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
	for name, value := range e.Headers {
		if !isHeaderName(name) || strings.ContainsAny(value, "\r\n") {
			errs = append(errs, fmt.Errorf("header %q cannot be sent", name))
		} else if slices.Contains(ownHeaders, strings.ToLower(name)) {
			errs = append(errs, fmt.Errorf("header %q is made of the delivery itself", name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return e, errors.Join(errs...)
}

var ownHeaders = []string{"from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "mime-version", "content-type", "content-transfer-encoding"}

func isHeaderName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' })
}
