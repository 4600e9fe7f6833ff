package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/order"
)

const (
	batchType       = "application/vnd.deed.batch+json"
	eventsBatchType = "application/cloudevents-batch+json; charset=utf-8"
	outcomesType    = "application/vnd.deed.outcomes+json"

	maxBatch      = 1000
	maxBatchBytes = 1 << 20 // of payloads in one POST, unless one message has more
)

// A BatchSink posts several messages in one request. It is a [deed.BatchSink]
// and may be used by several goroutines at once.
type BatchSink struct {
	*Sink
	size int
}

// NewBatch makes a sink that posts up to size messages together, 1 to 1,000; see
// the package's documentation for what such a request and its answer look like.
// Options.MaxResponse is 1 MiB by default.
func NewBatch(opts Options, size int) (*BatchSink, error) {
	opts.MaxResponse = cmp.Or(opts.MaxResponse, 1<<20)
	s, err := New(opts)
	if size < 1 || size > maxBatch {
		err = errors.Join(err, &deed.Error{Op: "webhook", Code: deed.Invalid, Err: fmt.Errorf("a batch of %d messages is not from 1 to %d", size, maxBatch)})
	}
	if err != nil {
		return nil, err
	}
	return &BatchSink{Sink: s, size: size}, nil
}

// BatchSize is the most messages that one Deliver takes.
func (s *BatchSink) BatchSize() int { return s.size }

// Deliver posts the messages together that are tried for the first time, and
// each that has failed before by itself, so that one that cannot be delivered
// takes no others with it.
func (s *BatchSink) Deliver(ctx context.Context, ms []deed.Message) []error {
	c := &call{s: s, ctx: ctx, ms: ms, outcomes: make([]error, len(ms))}
	size := 0
	for i, m := range ms {
		if len(c.group) > 0 && (m.Attempt > 1 || ms[c.group[0]].Attempt > 1 || size+len(m.Payload) > maxBatchBytes) {
			c.flush()
			size = 0
		}
		c.group = append(c.group, i)
		size += len(m.Payload)
	}
	c.flush()
	return c.outcomes
}

// call is the work on one Deliver.
type call struct {
	s           *BatchSink
	ctx         context.Context
	ms          []deed.Message
	group       []int // of ms, for the next request
	outcomes    []error
	undelivered order.Keys
}

// flush posts the group. If it is refused for good its messages are posted one by
// one: the fault may be one's.
func (c *call) flush() {
	group := c.group
	c.group = nil
	shared := c.post(group)
	if shared == nil || len(group) == 1 || !deed.IsPermanent(shared) {
		for _, i := range group {
			c.fail(i, cmp.Or(c.outcomes[i], shared))
		}
		return
	}
	for _, i := range group {
		if c.outcomes[i] == nil { // else it was held back
			c.fail(i, cmp.Or(c.post([]int{i}), c.outcomes[i]))
		}
	}
}

func (c *call) fail(i int, err error) {
	if c.outcomes[i] = err; err != nil {
		c.undelivered.Hold(c.ms[i])
	}
}

// post makes one request of those that no message of their key holds back, and
// returns the outcome that they share, or notes that of each.
func (c *call) post(group []int) (shared error) {
	var at []int
	var msgs []deed.Message
	for _, i := range group {
		if c.outcomes[i] = c.undelivered.Held(c.ctx, c.ms[i]); c.outcomes[i] == nil {
			at = append(at, i)
			msgs = append(msgs, c.ms[i])
		}
	}
	if len(msgs) == 0 {
		return nil
	}
	a := c.s.deliver(c.ctx, msgs[0].ID, c.s.opts.MaxResponse, func(ctx context.Context) (*http.Request, [][]byte) {
		return c.s.batchRequest(ctx, msgs)
	})
	if a.outcome != nil || !a.tells {
		return a.outcome
	}
	failed, err := c.s.readOutcomes(a, msgs)
	for k, i := range at {
		c.outcomes[i] = failed[msgs[k].ID.String()]
	}
	return err
}

// envelope is a message in a batch, but for its data.
type envelope struct {
	ID          string            `json:"id"`
	Topic       string            `json:"topic"`
	Key         string            `json:"key,omitempty"`
	Type        string            `json:"type,omitempty"`
	Attempt     int               `json:"attempt"`
	Time        string            `json:"time"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers,omitempty"`
}

// batchRequest builds the request that holds msgs, and returns what its answer
// may repeat too.
func (s *Sink) batchRequest(ctx context.Context, msgs []deed.Message) (*http.Request, [][]byte) {
	body := bytes.NewBufferString("[")
	sent := make([][]byte, 1, len(msgs)+1)
	ids := sha256.New()
	for i, m := range msgs {
		ids.Write(m.ID[:])
		sent = append(sent, m.Payload)
		if i > 0 {
			body.WriteByte(',')
		}
		if s.opts.Body == CloudEvents {
			body.Write(cloudEvent(m, s.opts.Source))
			continue
		}
		contentType := cmp.Or(m.ContentType, "application/json")
		// A receiver cannot see white space around a value: base64 keeps it.
		verbatim := embeds(contentType, m.Payload) && len(bytes.TrimSpace(m.Payload)) == len(m.Payload)
		body.Write(withData(envelope{
			ID: m.ID.String(), Topic: m.Topic, Key: m.Key, Type: m.Type, Attempt: m.Attempt,
			Time: m.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), ContentType: contentType, Headers: m.Headers,
		}, verbatim, m.Payload))
	}
	body.WriteByte(']')
	sent[0] = body.Bytes()
	h := s.headers.Clone()
	h.Set("Content-Type", batchType)
	if s.opts.Body == CloudEvents {
		h.Set("Content-Type", eventsBatchType)
	}
	h.Set("Accept", outcomesType)
	h.Set("User-Agent", userAgent())
	h.Set("Deed-Topic", header.Encode(msgs[0].Topic, true))
	h.Set("Deed-Batch", strconv.Itoa(len(msgs)))
	// Of the same messages the same: a batch that begins alike is another one.
	id := "batch_" + hex.EncodeToString(ids.Sum(nil)[:16])
	return s.post(ctx, h, id, sent[0]), sent
}

// readOutcomes reads which messages the receiver has not taken, by their ids. An
// answer that cannot be read leaves open what became of all of them.
func (s *Sink) readOutcomes(a attempt, msgs []deed.Message) (map[string]error, error) {
	var list struct {
		Failed []struct {
			ID         string  `json:"id"`
			Error      string  `json:"error"`
			RetryAfter float64 `json:"retry_after"`
			Final      bool    `json:"final"`
		} `json:"failed"`
	}
	if a.tooLong {
		return nil, s.errorf("outcome unknown: the answer is longer than %d bytes", s.opts.MaxResponse)
	}
	if json.Unmarshal(a.answer, &list) != nil {
		return nil, s.errorf("outcome unknown: the answer is not JSON as %s has it", outcomesType)
	}
	payloads := make([][]byte, len(msgs))
	known := make(map[string]bool, len(msgs))
	for i, m := range msgs {
		payloads[i], known[m.ID.String()] = m.Payload, true
	}
	failed := make(map[string]error, len(list.Failed))
	printable := s.printables(payloads)
	for _, f := range list.Failed {
		if !known[f.ID] {
			return nil, s.errorf("outcome unknown: the answer names a message that was not in the batch")
		}
		err := s.errorf("refused: %s", cmp.Or(printable(f.Error), "no reason given"))
		switch {
		case f.Final:
			err = deed.Permanent(err)
		case f.RetryAfter > 0:
			after := min(max(f.RetryAfter, 1), 24*60*60)
			err = deed.AfterError(time.Duration(after*float64(time.Second)), err)
		}
		failed[f.ID] = err
	}
	return failed, nil
}

// HoldOnNewCluster implements [deed.Holder].
func (s *BatchSink) HoldOnNewCluster() bool { return true }
