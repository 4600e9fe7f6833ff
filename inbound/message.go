package inbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/tenant"
)

// Status is what became of a message.
type Status string

// The statuses; one that was denied is denied_ and why, in a to z, 0 to 9 and _.
const (
	Accepted       Status = "accepted"        // stored, and to be run, or being run
	Executed       Status = "executed"        // its executor has done what it asks for, and its replies are reserved
	DispatchFailed Status = "dispatch_failed" // nothing was done about it; it is run again if it is repeated, or by itself
	Denied         Status = "denied_"         // what the statuses of those that nothing is done about begin with
)

// Message is what somebody wrote to us, as its executor gets it.
type Message struct {
	ID            string          `json:"id"` // a UUID; the same in every attempt
	Tenant        tenant.ID       `json:"tenant"`
	Source        string          `json:"source"` // its name among [Options.Sources]
	PlatformID    string          `json:"platform_message_id"`
	Contact       string          `json:"contact"` // who it is from: a contact's id
	Kind          string          `json:"kind"`    // what Sender is: an identity's type
	Sender        string          `json:"sender,omitempty"`
	ReplyTo       string          `json:"reply_to,omitempty"`
	Text          string          `json:"text,omitempty"`
	Body          json.RawMessage `json:"body,omitempty"` // the platform's event, as it sent it
	CorrelationID string          `json:"correlation_id"`
	ReceivedAt    time.Time       `json:"received_at"`
	Attempt       int             `json:"attempt"` // from 1
}

// Executor does what a message asks for. It runs before anything of its outcome is
// recorded: what it does elsewhere it may do again, after a crash or where its
// lease was lost, under the same [Message.ID]; what it returns is recorded once. ctx has
// the message's correlation id ([deed.TraceFrom]), and ends when the lease is lost. An
// error means that nothing was done; it is stored beside the message. Executors run
// concurrently, but one at a time for a sender.
type Executor func(ctx context.Context, m Message) (Result, error)

// Result is what an executor wants done. All of it happens in one transaction with the
// outcome, or none.
type Result struct {
	// Denied, if set, says why nothing is done about the message: a word of a to z, 0 to
	// 9 and _. The message ends as denied_ and the word, and nothing else of the result
	// counts.
	Denied string
	// Replies are reserved as deliveries. Nothing keeps their order on the way.
	Replies []Reply
	// Publish are messages for topics; those without a tenant are the message's.
	Publish []deed.Message
	// InTx writes what else belongs to the outcome, through the transaction that records
	// it. An error undoes all of it.
	InTx func(ctx context.Context, tx pgx.Tx) error
}

// Deny is the result of what nothing is done about.
func Deny(reason string) Result { return Result{Denied: reason} }

// Say is the result whose one reply is a text.
func Say(text string) Result { return Result{Replies: []Reply{{Text: text}}} }

// Reply is an answer to who wrote.
type Reply struct {
	// Text becomes the payload {"text": …} where Payload is empty, or for [delivery.Email]
	// an e-mail that answers.
	Text string `json:"text,omitempty"`
	// Payload is as the provider takes it.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Provider and Channel are by what it goes. Default: the source's.
	Provider string           `json:"provider,omitempty"`
	Channel  delivery.Channel `json:"channel,omitempty"`
	// To is where it goes. Default: the source's, else [Message.ReplyTo].
	To string `json:"to,omitempty"`
}

// check refuses what cannot be stored, in words that do not repeat it.
func (e *Event) check() error {
	switch {
	case e.ID == "" || len(e.ID) > 255 || strings.ContainsFunc(e.ID, unicode.IsControl) || !utf8.ValidString(e.ID):
		return errors.New("its id is not 1 to 255 bytes of text without control characters")
	case len(e.Sender) == 0 || len(e.Sender) > 500 || !storable(e.Sender):
		return errors.New("its sender is not 1 to 500 bytes of text")
	case !kindName.MatchString(e.Kind):
		return errors.New("its sender's kind is no identity's type")
	case len(e.Also) > 99 || slices.ContainsFunc(e.Also, func(i Identity) bool {
		return !kindName.MatchString(i.Kind) || len(i.Value) > 500 || !storable(i.Value)
	}):
		return errors.New("what else its sender is known by has over 99 entries, or one that is no identity")
	case len(e.ReplyTo) > longestTo || !storable(e.ReplyTo):
		return errors.New("where answers go has over 2,048 bytes, or is no text")
	case len(e.Text) > maxBody || !storable(e.Text) || len(e.Body) > maxBody || !storable(string(e.Body)):
		return errors.New("its contents are over 1 MiB, or no text")
	}
	return nil
}

// storable reports whether PostgreSQL takes a text.
func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

var kindName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// deniedWord is what may follow denied_.
var deniedWord = regexp.MustCompile(`^[a-z0-9_]{1,56}$`)

// status is what the message becomes, and the error if the result is none.
func (r Result) status() (Status, error) {
	for i, reply := range r.Replies {
		if r.Denied == "" && reply.Text == "" && len(reply.Payload) == 0 {
			return "", fmt.Errorf("the executor's reply %d has neither text nor payload", i+1)
		}
	}
	if r.Denied == "" {
		return Executed, nil
	}
	if !deniedWord.MatchString(r.Denied) {
		return "", fmt.Errorf("the executor denied it with a reason that is no word of a to z, 0 to 9 and _, of 1 to 56 characters")
	}
	return Denied + Status(r.Denied), nil
}

// drafts are the replies of a result as deliveries.
func (m *Message) drafts(r Result, by ReplyBy) ([]delivery.Delivery, error) {
	var list []delivery.Delivery
	for i, reply := range r.Replies {
		d := delivery.Delivery{
			Channel: reply.Channel, Provider: reply.Provider, Recipient: reply.To, Payload: reply.Payload, Contact: m.Contact,
			Key: delivery.ReplyKey(m.ID, fmt.Sprint(i+1)), Guarantee: delivery.AtLeastOnce, CorrelationID: m.CorrelationID, ChannelMessageID: m.ID,
		}
		if d.Channel == "" {
			d.Channel = by.Channel
		}
		if d.Provider == "" {
			d.Provider = by.Provider
		}
		if d.Recipient == "" {
			d.Recipient = by.To
		}
		if d.Recipient == "" {
			d.Recipient = m.ReplyTo
		}
		if len(d.Payload) == 0 && d.Channel == delivery.Email {
			d.Payload = m.mail(reply.Text)
		}
		if len(d.Payload) == 0 {
			text, err := json.Marshal(map[string]string{"text": strings.ToValidUTF8(reply.Text, "\uFFFD")})
			if err != nil {
				return nil, err
			}
			d.Payload = text
		}
		if d.Provider == "" || d.Channel == "" {
			return nil, fmt.Errorf("reply %d names no provider and channel, and the source has none (reply)", i+1)
		}
		list = append(list, d)
	}
	return list, nil
}

// mail is a text as an e-mail that answers the message: in its thread, if it was one.
func (m *Message) mail(text string) json.RawMessage {
	var written struct {
		Subject    string `json:"subject"`
		MessageID  string `json:"message_id"`
		References string `json:"references"`
	}
	_ = json.Unmarshal(m.Body, &written) // of another platform it has none of these
	subject := written.Subject
	if len(subject) < 3 || !strings.EqualFold(subject[:3], "re:") {
		subject = strings.TrimSpace("Re: " + subject)
	}
	mail := delivery.EmailPayload{Subject: subject, Text: strings.ToValidUTF8(text, "\uFFFD"), Headers: map[string]string{"Auto-Submitted": "auto-replied"}}
	if mailID().MatchString(written.MessageID) {
		thread := slices.DeleteFunc(strings.Fields(written.References), func(id string) bool { return !mailID().MatchString(id) })
		thread = append(thread[max(0, len(thread)-10):], written.MessageID)
		mail.Headers["In-Reply-To"], mail.Headers["References"] = written.MessageID, strings.Join(thread, " ")
	}
	return mail.JSON()
}

// mailID is a Message-ID that may be written into a header.
var mailID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^<[!-;=?-~]{1,200}>$`) })

// published are the topics' messages of a result.
func (m *Message) published(r Result) []deed.Message {
	list := make([]deed.Message, len(r.Publish))
	for i, p := range r.Publish {
		if p.Tenant == (tenant.ID{}) {
			p.Tenant = m.Tenant
		}
		if p.Headers["correlation-id"] == "" {
			p.Headers = maps.Clone(p.Headers)
			if p.Headers == nil {
				p.Headers = map[string]string{}
			}
			p.Headers["correlation-id"] = m.CorrelationID
		}
		list[i] = p
	}
	return list
}
