package inbound

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/limits"
)

// ToTopic returns an executor that publishes each message to a topic, as type
// inbound.message, with the contact as its key: a message's id and where it is from,
// to be read by [Load]. With body it has the text and the platform's event, too, which
// an erasure of the contact does not reach (docs/gdpr.md). Errors: [deed.Invalid] for a name
// that applications cannot publish to, at which every message would fail.
func ToTopic(topic string, body bool) (Executor, error) {
	if err := limits.PublishedTopic(topic); err != nil {
		return nil, &deed.Error{Op: "executor", Code: deed.Invalid, Err: fmt.Errorf("topic %q: %w", errortext.Clip(topic), err)}
	}
	return func(_ context.Context, m Message) (Result, error) {
		if !body {
			m.Sender, m.ReplyTo, m.Text, m.Body = "", "", "", nil
		}
		payload, err := json.Marshal(m)
		if err != nil {
			return Result{}, err
		}
		return Result{Publish: []deed.Message{{Topic: topic, Key: m.Contact, Type: "inbound.message", Payload: payload}}}, nil
	}, nil
}
