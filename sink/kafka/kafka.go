package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/deedhq/deed"
)

// Options configures a Sink.
type Options struct {
	// Brokers are addresses, host:port, to learn the cluster from. Required.
	Brokers []string

	// Topic is written to. Default: the message's own, see the package's
	// documentation.
	Topic string

	// SASL says who connects. Default: nobody.
	SASL SASL

	// TLS makes the connections use TLS. Default: none.
	TLS *tls.Config

	// Compression is none, gzip, snappy, lz4 or zstd. Default none.
	Compression string

	// Timeout bounds the wait for a record's acknowledgement. Default 10s.
	Timeout time.Duration

	// MaxBytes is the size of the largest batch of records, and so of the
	// largest record; a topic's max.message.bytes may be less. Default
	// 1,000,012, as Kafka's is.
	MaxBytes int

	// MaxPending is how many records may be unacknowledged at once, over all
	// calls. Default 10,000.
	MaxPending int

	// BatchSize is the most messages a call takes. Default 100.
	BatchSize int
}

// SASL is a login. The zero value is none.
type SASL struct {
	Mechanism string // plain, scram-sha-256 or scram-sha-512
	User      string
	Password  string
}

func (o Options) withDefaults() Options {
	o.Compression = cmp.Or(o.Compression, "none")
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1_000_012)
	o.MaxPending = cmp.Or(o.MaxPending, 10_000)
	o.BatchSize = cmp.Or(o.BatchSize, 100)
	return o
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (o Options) check() []error {
	var errs []error
	if len(o.Brokers) == 0 {
		errs = append(errs, errors.New("option Brokers is empty"))
	}
	for _, b := range o.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n == 0 || host == "" {
			errs = append(errs, fmt.Errorf("option Brokers: %q is not host:port", b))
		}
	}
	_, known := codecs[o.Compression]
	for _, p := range []struct {
		bad  bool
		what string
	}{
		{o.Topic != "" && !isTopic(o.Topic), fmt.Sprintf("option Topic %q is not a name of a Kafka topic", o.Topic)},
		{!known, fmt.Sprintf("option Compression %q is none of none, gzip, snappy, lz4, zstd", o.Compression)},
		{o.Timeout < 0 || o.Timeout > 0 && o.Timeout < time.Second, fmt.Sprintf("option Timeout %s is below 1s", o.Timeout)},
		{o.MaxBytes < 0 || o.MaxBytes > 0 && o.MaxBytes < 1024, fmt.Sprintf("option MaxBytes %d is below 1024", o.MaxBytes)},
		{o.MaxBytes > 64<<20, fmt.Sprintf("option MaxBytes %d is above %d", o.MaxBytes, 64<<20)},
		{o.MaxPending < 0, fmt.Sprintf("option MaxPending %d is negative", o.MaxPending)},
		{o.BatchSize < 0, fmt.Sprintf("option BatchSize %d is negative", o.BatchSize)},
	} {
		if p.bad {
			errs = append(errs, errors.New(p.what))
		}
	}
	return append(errs, o.SASL.check()...)
}

var mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

func (s SASL) check() []error {
	if s == (SASL{}) {
		return nil
	}
	var errs []error
	if !slices.Contains(mechanisms, s.Mechanism) {
		errs = append(errs, fmt.Errorf("option SASL.Mechanism %q is none of %s", s.Mechanism, strings.Join(mechanisms, ", ")))
	}
	if s.User == "" || s.Password == "" {
		errs = append(errs, errors.New("option SASL wants both User and Password"))
	}
	return errs
}

func (s SASL) mechanism() sasl.Mechanism {
	switch s.Mechanism {
	case "plain":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha256Mechanism()
	default:
		return scram.Auth{User: s.User, Pass: s.Password}.AsSha512Mechanism()
	}
}

// isTopic is called for each record, hence not a regular expression.
func isTopic(name string) bool {
	illegal := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-'
	}
	return len(name) >= 1 && len(name) <= 249 && name != "." && name != ".." && !strings.ContainsFunc(name, illegal)
}

// A Sink writes messages to Kafka. It is a [deed.BatchSink] and may be used by
// several goroutines at once.
type Sink struct {
	opts  Options
	slots chan struct{} // one for each unacknowledged record

	all  producer      // for all records
	lone producer      // for records that must have a batch of their own
	turn chan struct{} // has an element while lone has a record
}

// New checks opts and connects to nothing. All problems come in one error.
func New(opts Options) (*Sink, error) {
	opts = opts.withDefaults()
	errs := opts.check()
	s := &Sink{opts: opts, turn: make(chan struct{}, 1)}
	if len(errs) == 0 {
		options := s.clientOptions()
		errs = append(errs, kgo.ValidateOpts(options...))
		s.all.options, s.lone.options = options, options
		s.slots = make(chan struct{}, opts.MaxPending)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "kafka", Code: deed.Invalid, Err: err}
	}
	return s, nil
}

func (s *Sink) clientOptions() []kgo.Opt {
	o := s.opts
	options := []kgo.Opt{
		kgo.ClientID("deed"),
		kgo.SeedBrokers(o.Brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()), // and idempotent, which is the default
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerBatchCompression(codecs[o.Compression]),
		kgo.ProducerBatchMaxBytes(int32(o.MaxBytes)),
		kgo.ProducerLinger(0),           // a call brings its batch along
		kgo.MaxBufferedRecords(1 << 30), // slots bounds them
		kgo.RecordDeliveryTimeout(o.Timeout),
		kgo.ProduceRequestTimeout(o.Timeout / 2),                     // the broker's share
		kgo.RequestTimeoutOverhead(min(o.Timeout/2, 15*time.Minute)), // the client takes no more
		kgo.DialTimeout(min(o.Timeout, 5*time.Second)),
		// deed tries a record again whose fate is unknown. Were the client not
		// allowed to give it up, it would try it too, for as long as an outage
		// lasts, and write it once for each attempt after that.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.MetadataMinAge(time.Second), // how soon a new leader or topic is seen
		kgo.DisableClientMetrics(),
	}
	if o.SASL != (SASL{}) {
		options = append(options, kgo.SASL(o.SASL.mechanism()))
	}
	if o.TLS != nil {
		options = append(options, kgo.DialTLSConfig(o.TLS))
	}
	return options
}

// BatchSize is the most messages that one Deliver takes.
func (s *Sink) BatchSize() int { return s.opts.BatchSize }

// Close ends the connections. Deliver answers that the sink is unavailable from
// then on.
func (s *Sink) Close() error {
	s.all.close()
	s.lone.close()
	return nil
}

// A producer is a client that is made when it is first needed, and again after
// it was dropped.
type producer struct {
	options []kgo.Opt

	mu       sync.Mutex // guards the fields below
	client   *kgo.Client
	isClosed bool
}

var errClosed = errors.New("the sink is closed")

func (p *producer) get() (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return nil, errClosed
	}
	if p.client == nil {
		client, err := kgo.NewClient(p.options...)
		if err != nil {
			return nil, err
		}
		p.client = client
	}
	return p.client, nil
}

// drop closes a client, which fails the records that it holds.
func (p *producer) drop(client *kgo.Client) {
	p.mu.Lock()
	current := p.client == client
	if current {
		p.client = nil
	}
	p.mu.Unlock()
	if current {
		client.Close()
	}
}

func (p *producer) close() {
	p.mu.Lock()
	client := p.client
	p.client, p.isClosed = nil, true
	p.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// errorf names the first broker.
func (s *Sink) errorf(format string, args ...any) error {
	return fmt.Errorf("kafka %s: %w", s.opts.Brokers[0], fmt.Errorf(format, args...))
}
