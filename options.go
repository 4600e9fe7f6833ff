package deed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/limits"
)

// Options configures a Client. The zero value works for a client that only
// publishes or inspects.
type Options struct {
	// Topics are declared before the subscriptions. A subscription's topic that
	// is not among them is a queue unless the database has it as a stream.
	Topics []Topic

	// Subscriptions are what this process drains.
	Subscriptions []Subscription

	// OnNewCluster says what to do on another cluster than the installation's.
	// Default: [Hold] if one of the sinks asks for it, as webhooks do
	// ([Holder]); else it goes on, and repeats what the original delivers.
	OnNewCluster OnNewCluster

	// Environment is where this process runs, such as production: give all that
	// share a database the same. The installation belongs to the one that is
	// named first, and a process of another holds unless OnNewCluster is
	// [Continue]: a copy of the volume shows by nothing else. At most 100
	// characters. Default: none, which is another one only for what is to [Hold].
	Environment string

	// Worker names this process in claims, receipts and logs, for people; at
	// most 200 characters. Default: the host's name and the process id.
	Worker string

	// Logger receives claims and deliveries (debug), retries (warn), and deaths
	// (error), with message id, topic, tenant and correlation id; never
	// payloads. Default: discard.
	Logger *slog.Logger

	// Deadline bounds every statement of the workers. Default 10s. Methods that
	// inspect and operate are bounded by their context.
	Deadline time.Duration

	// Grace is how long a stop lets running deliveries go on before it cancels
	// them. Default 20s.
	Grace time.Duration
}

func (o Options) withDefaults() (Options, error) {
	host, _ := os.Hostname()
	o.Worker = cmp.Or(o.Worker, fmt.Sprintf("%s:%d", cmp.Or(host, "worker"), os.Getpid()))
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	var errs []error
	if err := o.OnNewCluster.Check(o.Environment); err != nil {
		errs = append(errs, err)
	}
	if len(o.Worker) > 200 {
		errs = append(errs, errors.New("option Worker is over 200 characters"))
	}
	if o.Deadline < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("option Deadline %s is below 100ms", o.Deadline))
	}
	if o.Grace < 0 {
		errs = append(errs, fmt.Errorf("option Grace %s is negative", o.Grace))
	}
	declared := map[string]bool{}
	for _, t := range o.Topics {
		if err := t.Check(); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", errortext.Clip(t.Name), err))
		}
		if declared[t.Name] {
			errs = append(errs, fmt.Errorf("topic %q is given twice", errortext.Clip(t.Name)))
		}
		declared[t.Name] = true
	}
	subs := make([]Subscription, len(o.Subscriptions))
	seen := map[string]bool{}
	for i, s := range o.Subscriptions {
		var err error
		if subs[i], err = s.withDefaults(); err != nil {
			errs = append(errs, fmt.Errorf("subscription %q of topic %q: %w", errortext.Clip(s.Name), errortext.Clip(s.Topic), err))
		}
		id := subs[i].Topic + "/" + subs[i].Name
		if seen[id] {
			errs = append(errs, fmt.Errorf("subscription %q of topic %q is given twice", errortext.Clip(subs[i].Name), errortext.Clip(s.Topic)))
		}
		seen[id] = true
	}
	o.Subscriptions = subs
	return o, errors.Join(errs...)
}

// functionTimeout is a function's unless its subscription has another.
const functionTimeout = 15 * time.Minute

func (s Subscription) withDefaults() (Subscription, error) {
	var errs []error
	group := 1
	switch sink := s.Sink.(type) {
	case nil:
		errs = append(errs, errors.New("it has no Sink"))
	case BatchSink:
		if group = sink.BatchSize(); group < 1 {
			errs = append(errs, fmt.Errorf("its sink's BatchSize is %d", group))
			group = 1
		}
	}
	s.Name = cmp.Or(s.Name, "handler")
	s.Concurrency = cmp.Or(s.Concurrency, 16)
	s.page = cmp.Or(s.BatchSize, 1000)
	s.BatchSize = cmp.Or(s.BatchSize, min(max(200, group*s.Concurrency), 10000))
	// Topic "" with the name "default" is the catch-all of undeclared topics.
	if s.Topic != "" || s.Name != "default" {
		errs = append(errs, limits.Topic(s.Topic))
	}
	errs = append(errs, limits.Name("subscription", s.Name))
	if s.From != "" && s.From != FromBeginning && s.From != FromNow {
		errs = append(errs, fmt.Errorf("option From %q is neither %q nor %q", errortext.Clip(string(s.From)), FromBeginning, FromNow))
	}
	errs = append(errs, limits.Attempts.CheckSet("option MaxAttempts", s.MaxAttempts),
		limits.Lease.CheckSet("option Lease", s.Lease), limits.Backoff.CheckSet("option Backoff", s.Backoff))
	if s.Concurrency < 1 || s.Concurrency > 10000 {
		errs = append(errs, fmt.Errorf("option Concurrency %d is not from 1 to 10000", s.Concurrency))
	}
	if s.BatchSize < 1 || s.BatchSize > 10000 {
		errs = append(errs, fmt.Errorf("option BatchSize %d is not from 1 to 10000", s.BatchSize))
	}
	if _, ok := s.Sink.(SinkFunc); ok && s.Timeout == 0 {
		s.Timeout = functionTimeout
	}
	s.Timeout = max(s.Timeout, 0)
	return s, errors.Join(errs...)
}
