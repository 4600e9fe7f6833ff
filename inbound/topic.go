package inbound

import (
	"context"
	"encoding/json"

	"github.com/deedhq/deed"
)

// ToTopic returns an executor that publishes each message to a topic, as type
// inbound.message, with the contact as its key: a message's id and where it is from,
// to be read by [Load]. With body it has the text and the platform's event, too, which
// an erasure of the contact does not reach (docs/gdpr.md).
func ToTopic(topic string, body bool) Executor {
	return func(_ context.Context, m Message) (Result, error) {
		if !body {
			m.Sender, m.ReplyTo, m.Text, m.Body = "", "", "", nil
		}
		payload, err := json.Marshal(m)
		if err != nil {
			return Result{}, err
		}
		return Result{Publish: []deed.Message{{Topic: topic, Key: m.Contact, Type: "inbound.message", Payload: payload}}}, nil
	}
}
