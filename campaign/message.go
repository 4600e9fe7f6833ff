package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/deedhq/deed/delivery"
)

// MessageOptions say what a message is besides its content.
type MessageOptions struct {
	// Channel is what it is made for. Required.
	Channel Channel
	// Purpose, From and ReplyTo are those of [Request].
	Purpose, From, ReplyTo string
	// Names are what its templates may ask for. Default: [Names].
	Names []string
}

// Message is a content with its templates read: what each recipient gets is made of it. Any number of goroutines
// may use one.
type Message struct {
	channel                Channel
	purpose, from, replyTo string
	parts                  []part
}

// part is one of a content's texts.
type part struct {
	name string // in payloads
	of   Template
}

// NewMessage reads the templates of a content. The error's code is [deed.Invalid], and it has all that is
// wrong with them, each as template_error of the preconditions (C8).
func NewMessage(parse Engine, content Content, opts MessageOptions) (*Message, error) {
	m := &Message{channel: opts.Channel, purpose: opts.Purpose, from: opts.From, replyTo: opts.ReplyTo}
	names := opts.Names
	if names == nil {
		names = Names()
	}
	texts := []struct {
		part, is, source string
		kind             Kind
	}{{"subject", "subject", content.Subject, Line}, {"text", "text", content.Text, Plain}, {"html", "html", content.HTML, Page}}
	if opts.Channel == Voice {
		texts[1].is, texts[1].source = "script", content.Script
	}
	var errs []error
	for _, t := range texts {
		if t.source == "" {
			continue
		}
		of, err := parse(t.kind, t.source, names)
		if err != nil {
			errs = append(errs, fmt.Errorf("template_error: %s: %w", t.is, err))
			continue
		}
		m.parts = append(m.parts, part{t.part, of})
	}
	if errs != nil {
		return nil, invalidf("compose", "%w", errors.Join(errs...))
	}
	return m, nil
}

// Make returns the payload of one recipient's delivery: an e-mail's as
// [delivery.EmailPayload], of other channels an object with text. Data is the payload of the
// row ([Data]), which is not changed but for unsubscribe_url. The error's code is [deed.Invalid]
// where a template makes nothing of the data.
func (m *Message) Make(ctx context.Context, data map[string]any, unsubscribe string) (json.RawMessage, error) {
	data["unsubscribe_url"] = unsubscribe
	made := map[string]string{}
	for _, p := range m.parts {
		text, err := p.of.Render(ctx, data)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if err != nil {
			return nil, invalidf("compose", "template_error: %s: %w", p.name, err)
		}
		made[p.name] = text
	}
	if m.channel != Email {
		return json.Marshal(made)
	}
	e := delivery.EmailPayload{From: m.from, ReplyTo: m.replyTo, Subject: made["subject"], Text: made["text"], HTML: made["html"]}
	if err := e.Check(); err != nil {
		return nil, invalidf("compose", "%w", err)
	}
	return e.JSON(), nil
}
