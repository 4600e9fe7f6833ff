package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/order"
)

var (
	errTopic   = errors.New("no Kafka topic's name")
	errTimeout = errors.New("no acknowledgement in time")
	errUnknown = errors.New("not known")
)

// Deliver writes ms and waits for all acknowledgements. See the package's
// documentation for what the outcomes mean.
func (s *Sink) Deliver(ctx context.Context, ms []deed.Message) []error {
	c := &call{s: s, ctx: ctx, ms: ms, records: make([]*kgo.Record, len(ms)), outcomes: make([]error, len(ms))}
	for i, m := range ms {
		c.records[i], c.outcomes[i] = s.record(m)
	}
	for from, upto := 0, 0; from < len(ms); from = upto {
		// What may be too large for the client goes last, so that what comes after
		// it can wait for its outcome.
		for upto = from + 1; upto < len(ms) && !s.mayBeTooLarge(c.records[upto-1]); {
			upto++
		}
		c.write(from, upto)
	}
	for i, err := range c.outcomes {
		if err != nil {
			c.outcomes[i] = s.outcome(ctx, err)
		}
	}
	return c.outcomes
}

// call is the work on one Deliver.
type call struct {
	s           *Sink
	ctx         context.Context
	ms          []deed.Message
	records     []*kgo.Record // nil for a message that cannot have one
	outcomes    []error
	undelivered order.Keys
}

// write writes some of the messages, but for those that one before them holds
// back.
func (c *call) write(from, upto int) {
	var at []int
	var pick []*kgo.Record
	for i := from; i < upto; i++ {
		if c.outcomes[i] == nil {
			c.outcomes[i] = c.undelivered.Held(c.ctx, c.ms[i])
		}
		if c.outcomes[i] == nil {
			at = append(at, i)
			pick = append(pick, c.records[i])
		}
	}
	for k, err := range c.s.produce(c.ctx, &c.s.all, pick) {
		c.outcomes[at[k]] = err
	}
	c.separate(at)
	for i := from; i < upto; i++ {
		if c.outcomes[i] != nil {
			c.undelivered.Hold(c.ms[i])
		}
	}
}

// mayBeTooLarge reports whether the client may refuse a record, which it judges
// with its batch and before compression.
func (s *Sink) mayBeTooLarge(r *kgo.Record) bool {
	const batch, field = 200, 10 // bytes that the format adds, at the most
	if r == nil {
		return false
	}
	size := batch + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 2*field + len(h.Key) + len(h.Value)
	}
	return size > s.opts.MaxBytes
}

// record makes a message's record.
func (s *Sink) record(m deed.Message) (*kgo.Record, error) {
	topic := s.opts.Topic
	if topic == "" {
		if topic = strings.ReplaceAll(strings.ReplaceAll(m.Topic, ":", "."), "/", "."); !isTopic(topic) {
			return nil, fmt.Errorf("%w: %q", errTopic, topic)
		}
	}
	r := &kgo.Record{Topic: topic, Value: m.Payload, Headers: make([]kgo.RecordHeader, 0, 4+len(m.Headers))}
	if r.Value == nil {
		r.Value = []byte{} // nil would delete the key from a compacted topic
	}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	for _, h := range []struct{ name, value string }{
		{"deed-id", m.ID.String()},
		{"deed-topic", m.Topic},
		{"deed-type", m.Type},
		{"content-type", cmp.Or(m.ContentType, "application/json")},
	} {
		if h.value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.name, Value: []byte(h.value)})
		}
	}
	for name, value := range m.Headers {
		if lower := strings.ToLower(name); !strings.HasPrefix(lower, "deed-") && lower != "content-type" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	return r, nil
}

// answer is what the client says of a record.
type answer struct {
	at  int
	err error
}

// produce writes records and returns once it is known what became of each, the
// time is up, or ctx has ended.
func (s *Sink) produce(ctx context.Context, p *producer, records []*kgo.Record) []error {
	outcomes := make([]error, len(records))
	for i := range outcomes {
		outcomes[i] = errUnknown
	}
	answers := make(chan answer, len(records))
	// Of the others what has been acknowledged by then is: told otherwise it would be written again.
	rest := func(err error) []error {
		for len(answers) > 0 {
			a := <-answers
			outcomes[a.at] = a.err
		}
		for i := range outcomes {
			if outcomes[i] == errUnknown {
				outcomes[i] = err
			}
		}
		return outcomes
	}
	if ctx.Err() != nil {
		return rest(ctx.Err())
	}
	client, err := p.get()
	if err != nil {
		return rest(err)
	}
	// The client gives a record up at the time-out, give or take a request.
	patience := s.opts.Timeout + s.opts.Timeout/2
	late := time.NewTimer(patience)
	defer late.Stop()
	handed := 0
handing:
	for at, r := range records {
		select {
		case s.slots <- struct{}{}:
		case <-late.C:
			break handing
		case <-ctx.Done():
			return rest(ctx.Err())
		}
		// Not ctx: the end of one call would fail what other calls have in the
		// same partition.
		client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			answers <- answer{at, err} // first: whoever gets the slot is after it
			<-s.slots
		})
		handed++
	}
	// The last may have waited for room until just now, and its time begins with the client.
	late.Reset(patience)
	for left := handed; left > 0; left-- {
		select {
		case a := <-answers:
			outcomes[a.at] = a.err
		case <-late.C:
			rest(errTimeout)
			p.drop(client)
			return outcomes
		case <-ctx.Done():
			return rest(ctx.Err())
		}
	}
	return rest(errTimeout) // those for which there was no room
}

// isPerhapsAnother reports whether a batch was refused for what may be wrong
// with another of its records.
func isPerhapsAnother(err error) bool {
	for _, e := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage,
		kerr.PolicyViolation, kerr.UnknownServerError,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// separate writes each record whose batch was refused for what may be another's
// fault in a batch of its own, in order and none whose key has one that failed.
// Once there is no answer, the others need not be asked.
func (c *call) separate(at []int) {
	var failed order.Keys
	var silent error
	for _, i := range at {
		switch {
		case !isPerhapsAnother(c.outcomes[i]):
		case silent != nil:
			c.outcomes[i] = silent
		default:
			if c.outcomes[i] = failed.Held(c.ctx, c.ms[i]); c.outcomes[i] != nil {
				break
			}
			c.outcomes[i] = c.s.produceAlone(c.ctx, c.records[i])
			if _, answered := errors.AsType[*kerr.Error](c.outcomes[i]); c.outcomes[i] != nil && !answered {
				silent = c.outcomes[i]
			}
		}
		if c.outcomes[i] != nil {
			failed.Hold(c.ms[i])
		}
	}
}

func (s *Sink) produceAlone(ctx context.Context, r *kgo.Record) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	again := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	return s.produce(ctx, &s.lone, []*kgo.Record{again})[0]
}

// outcome judges why a record was not written, or not known to be.
func (s *Sink) outcome(ctx context.Context, err error) error {
	if deed.IsUnavailable(err) {
		return err // held back
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return s.errorf("no acknowledgement yet: %w", err)
	}
	refusal, refused := errors.AsType[*kerr.Error](err)
	switch {
	case errors.Is(err, errTopic), errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return deed.Permanent(s.errorf("%w", err))
	case refused && (isPerhapsAnother(err) || !refusal.Retriable && !isOfAll(err)):
		return s.errorf("refused: %w", err)
	default:
		return deed.Unavailable(s.errorf("%w", err), 0)
	}
}

// isOfAll reports whether a refusal that the client does not retry is about all
// records of the topic.
func isOfAll(err error) bool {
	for _, e := range []error{
		kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.InvalidTopicException, kerr.InvalidRequiredAcks, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
		kerr.UnsupportedCompressionType, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.ProducerFenced,
		kerr.ThrottlingQuotaExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
