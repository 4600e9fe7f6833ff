package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/order"
)

// Options configures a Sink.
type Options struct {
	// URL is the server, or several with commas between: nats://host:4222, or
	// tls, ws, wss. Required.
	URL string

	// Subject is where messages are published; see the package's documentation
	// for the words {topic}, {key} and {type} in it. Default "{topic}".
	Subject string

	// Installation returns what tells this database's messages from those of
	// others in the same stream, such as the Installation of admin.Settings. It is
	// asked at each delivery, since a sink is made before its client. Default:
	// none, and Nats-Msg-Id begins with the message id.
	Installation func() string

	// User and Password, or Token, or Credentials, the text of a .creds file,
	// say who connects. Default: what URL says, if anything.
	User, Password string
	Token          string
	Credentials    []byte

	// TLS makes the connection use TLS. Default: as URL and the server want it.
	TLS *tls.Config

	// Timeout bounds the wait for a message's acknowledgement. Default 10s.
	Timeout time.Duration

	// MaxPending is how many messages may be unacknowledged at once, over all
	// calls. Default 1,000.
	MaxPending int

	// BatchSize is the most messages a call takes. Default 100.
	BatchSize int
}

func (o Options) withDefaults() Options {
	o.Subject = cmp.Or(o.Subject, "{topic}")
	if o.Installation == nil {
		o.Installation = func() string { return "" }
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.MaxPending = cmp.Or(o.MaxPending, 1000)
	o.BatchSize = cmp.Or(o.BatchSize, 100)
	return o
}

func (o Options) check() []error {
	errs := checkURL(o.URL)
	if err := checkSubject(o.Subject); err != nil {
		errs = append(errs, err)
	}
	ways := 0
	for _, given := range []bool{o.User != "" || o.Password != "", o.Token != "", len(o.Credentials) > 0} {
		if given {
			ways++
		}
	}
	for _, p := range []struct {
		bad  bool
		what string
	}{
		{ways > 1, "more than one of User, Token and Credentials is given"},
		{o.User == "" && o.Password != "", "option Password is given without User"},
		{o.Timeout < 0, fmt.Sprintf("option Timeout %s is negative", o.Timeout)},
		{o.MaxPending < 0, fmt.Sprintf("option MaxPending %d is negative", o.MaxPending)},
		{o.BatchSize < 0, fmt.Sprintf("option BatchSize %d is negative", o.BatchSize)},
	} {
		if p.bad {
			errs = append(errs, errors.New(p.what))
		}
	}
	return errs
}

// checkURL never puts a URL into an error: it may hold credentials.
func checkURL(text string) []error {
	if text == "" {
		return []error{errors.New("option URL is empty")}
	}
	var errs []error
	for one := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil:
			errs = append(errs, errors.New("option URL is not a valid URL"))
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			errs = append(errs, errors.New("option URL does not begin with nats://, tls://, ws:// or wss://"))
		case u.Hostname() == "":
			errs = append(errs, errors.New("option URL names no host"))
		}
	}
	return errs
}

// A Sink publishes messages to JetStream. It is a [deed.BatchSink] and may be
// used by several goroutines at once.
type Sink struct {
	opts     Options
	hosts    string // for errors
	perOwn   bool   // the subject depends on more than the topic
	denied   denials
	mu       sync.Mutex // guards the fields below
	conn     *nats.Conn
	js       jetstream.JetStream
	isClosed bool
}

var errClosed = errors.New("the sink is closed")

// New checks opts and connects to nothing. All problems come in one error.
func New(opts Options) (*Sink, error) {
	opts = opts.withDefaults()
	if err := errors.Join(opts.check()...); err != nil {
		return nil, &deed.Error{Op: "nats", Code: deed.Invalid, Err: err}
	}
	s := &Sink{opts: opts, perOwn: strings.Contains(opts.Subject, "{key}") || strings.Contains(opts.Subject, "{type}")}
	var hosts []string
	for one := range strings.SplitSeq(opts.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(one)); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	s.hosts = strings.Join(hosts, ",")
	return s, nil
}

// BatchSize is the most messages that one Deliver takes.
func (s *Sink) BatchSize() int { return s.opts.BatchSize }

// Close ends the connection. Deliver answers that the sink is unavailable from
// then on.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isClosed = true
	if s.conn != nil {
		s.conn.Close()
	}
	return nil
}

// publisher returns what publishes, once there is a connection.
func (s *Sink) publisher() (jetstream.JetStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, errClosed
	}
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := nats.Connect(s.opts.URL, s.connectOptions()...)
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(conn,
			jetstream.WithPublishAsyncMaxPending(s.opts.MaxPending), jetstream.WithPublishAsyncTimeout(s.opts.Timeout))
		if err != nil {
			conn.Close()
			return nil, err
		}
		s.conn, s.js = conn, js
	}
	if !s.conn.IsConnected() {
		return nil, cmp.Or(s.conn.LastError(), nats.ErrDisconnected)
	}
	return s.js, nil
}

const (
	connectTimeout = 5 * time.Second
	pingInterval   = 5 * time.Second // two that go unanswered end a connection
)

func (s *Sink) connectOptions() []nats.Option {
	o := s.opts
	options := []nats.Option{
		nats.Name("deed"),
		nats.Timeout(min(o.Timeout, connectTimeout)),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.IgnoreAuthErrorAbort(), // credentials may be put right at the server
		// What cannot be sent at once is deed's to keep, not the client's.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.denied.note(err) }),
		nats.NoCallbacksAfterClientClose(),
	}
	if o.User != "" {
		options = append(options, nats.UserInfo(o.User, o.Password))
	}
	if o.Token != "" {
		options = append(options, nats.Token(o.Token))
	}
	if len(o.Credentials) > 0 {
		options = append(options, nats.UserCredentialBytes(o.Credentials))
	}
	if o.TLS != nil {
		options = append(options, nats.Secure(o.TLS))
	}
	return options
}

// sent is a message that waits for its acknowledgement.
type sent struct {
	at      int // in the call
	subject string
	future  jetstream.PubAckFuture
}

// Deliver publishes ms and waits for all acknowledgements. See the package's
// documentation for what the outcomes mean.
func (s *Sink) Deliver(ctx context.Context, ms []deed.Message) []error {
	if ctx.Err() != nil {
		return all(ms, s.errorf("not sent: %w", ctx.Err()))
	}
	js, err := s.publisher()
	if err != nil {
		return all(ms, deed.Unavailable(s.errorf("no connection: %w", err), 0))
	}
	outcomes := make([]error, len(ms))
	denied := s.denied.watch()
	installation := s.opts.Installation()
	waiting := make([]sent, 0, len(ms))
	var unsent order.Keys
	for i, m := range ms {
		if outcomes[i] = unsent.Held(ctx, m); outcomes[i] != nil {
			continue
		}
		msg, err := s.message(m, installation)
		var future jetstream.PubAckFuture
		if err == nil {
			future, err = s.publish(ctx, js, msg)
		}
		if err != nil {
			outcomes[i] = s.outcome(ctx, err)
			unsent.Hold(m)
			continue
		}
		waiting = append(waiting, sent{i, msg.Subject, future})
	}
	for _, w := range waiting {
		if err := s.await(ctx, w, &denied); err != nil {
			outcomes[w.at] = s.outcome(ctx, err)
		}
	}
	return outcomes
}

func all(ms []deed.Message, err error) []error {
	outcomes := make([]error, len(ms))
	for i := range outcomes {
		outcomes[i] = err
	}
	return outcomes
}

// publish sends a message once there is room among the unacknowledged.
func (s *Sink) publish(ctx context.Context, js jetstream.JetStream, msg *nats.Msg) (jetstream.PubAckFuture, error) {
	started := time.Now()
	for {
		future, err := js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(50*time.Millisecond))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return future, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if time.Since(started) > s.opts.Timeout {
			return nil, err
		}
	}
}

// await ends at the latest when the client gives the message up, or the server
// says that its subject is not permitted.
func (s *Sink) await(ctx context.Context, w sent, denied *<-chan struct{}) error {
	for {
		if s.denied.recently(w.subject) {
			return nats.ErrPermissionViolation
		}
		select {
		case <-w.future.Ok():
			return nil
		case err := <-w.future.Err():
			return err
		case <-ctx.Done():
			select {
			case <-w.future.Ok():
				return nil
			default:
				return ctx.Err()
			}
		case <-*denied:
			*denied = s.denied.watch()
		}
	}
}

// errorf names the servers' hosts and nothing else of their URLs.
func (s *Sink) errorf(format string, args ...any) error {
	return fmt.Errorf("nats %s: %w", s.hosts, fmt.Errorf(format, args...))
}
