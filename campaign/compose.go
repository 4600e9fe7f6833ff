package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
)

// Kind is what a template makes.
type Kind int

const (
	// Plain is text that is not escaped.
	Plain Kind = iota
	// Page is HTML.
	Page
	// Line is a subject: one line of text.
	Line
)

// Template makes one recipient's text.
type Template interface {
	// Render says in its error what is wrong with the template or with data, unless ctx has
	// ended. Data are as [Data] reads them.
	Render(ctx context.Context, data map[string]any) (string, error)
}

// Engine reads a template, which may ask for these names. The one of package
// campaign/liquid is liquid.Engine.
type Engine func(kind Kind, source string, names []string) (Template, error)

// Names are what templates may ask for: contact is the data of the member, unsubscribe_url
// the link by which an e-mail's recipient leaves what it is for.
func Names() []string { return []string{"contact", "unsubscribe_url"} }

// Data reads a JSON object as [Message.Make] takes it. Numbers are each a [json.Number]: whole ones are whole, however large.
// The error's code is [deed.Invalid].
func Data(object json.RawMessage) (data map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if err = d.Decode(&data); err == nil {
		_, err = d.Token() // there is nothing behind it
	}
	switch {
	case err == nil || data == nil && errors.Is(err, io.EOF):
		return nil, invalidf("compose", "the data are not one JSON object")
	case !errors.Is(err, io.EOF):
		return nil, invalidf("compose", "%w", err)
	}
	return data, nil
}

// mostRuns is of how many runs what they say is kept at hand.
const mostRuns = 100

// Composer is a [delivery.Composer] of the contents of campaigns: what a delivery says is a
// function of its run's content, which never changes, and of its row's data.
type Composer struct {
	pool  *pgxpool.Pool
	parse Engine

	mu   sync.Mutex
	runs map[string]spoken // by run and variant; guarded by mu
}

// spoken is what a run says, or why that cannot be read, which is so for each of its deliveries.
type spoken struct {
	message *Message
	err     error
}

// NewComposer makes one. pool's login holds deed_worker.
func NewComposer(pool *pgxpool.Pool, parse Engine) *Composer {
	return &Composer{pool: pool, parse: parse, runs: map[string]spoken{}}
}

// Compose returns the payload of a delivery: an e-mail's as [delivery.EmailPayload], of other
// channels an object with text. The error's code is [deed.Invalid] where the template makes
// nothing of the data.
func (c *Composer) Compose(ctx context.Context, d delivery.Draft) (json.RawMessage, error) {
	data, err := Data(d.Payload)
	if err != nil {
		return nil, err
	}
	variant, _ := data["variant"].(string)
	s, err := c.said(ctx, d.Run, variant)
	if err != nil {
		return nil, err
	}
	if s.channel == Email && s.purpose != "" && d.Unsubscribe == "" {
		return nil, errors.New("there is no link to leave by: this ledger has no Links")
	}
	return s.Make(ctx, data, d.Unsubscribe)
}

// said is what a run says, by one of its variants, read once.
func (c *Composer) said(ctx context.Context, run, variant string) (*Message, error) {
	key := run + " " + variant
	c.mu.Lock()
	s, known := c.runs[key]
	c.mu.Unlock()
	if known {
		return s.message, s.err
	}
	var o MessageOptions
	var content Content
	err := c.pool.QueryRow(ctx, query.Content, run, variant).Scan(&o.Channel, &o.Purpose, &o.From, &o.ReplyTo, &content.Subject, &content.Text, &content.HTML, &content.Script)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &deed.Error{Op: "compose", Code: deed.Invalid, Err: fmt.Errorf("there is no run %s that has variant %q", run, variant)}
	}
	if err != nil {
		return nil, err
	}
	s.message, s.err = NewMessage(c.parse, content, o)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) >= mostRuns {
		clear(c.runs)
	}
	c.runs[key] = s
	return s.message, s.err
}
