package inbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/tenant"
)

// Options configures a Receiver.
type Options struct {
	// Sources are where messages come from, by name: of A-Z a-z 0-9 . _ -, 1 to 100.
	Sources map[string]SourceOptions

	// Lease is how long a message is a process's that runs it, unless it is renewed, at a
	// third of it. Default 1m.
	Lease time.Duration
	// PollInterval is how often a source is looked at that has nothing to do. Default 1s.
	PollInterval time.Duration
	// MaxAttempts is how often a message may fail before it is held for a person, and its
	// platform told that all is well: a chat must not stand still. Claims that were lost, as
	// the process died, are none of these; after ten of them it is held, too. Default 10.
	MaxAttempts int
	// Wait is how long a request may take to be answered. Default 10s.
	Wait time.Duration
	// Retention is for how long messages are kept that have ended; one that a delivery
	// names is emptied then. At least 8 days, since platforms repeat for 7. Default 90 days.
	Retention time.Duration

	// OnNewCluster and Environment are as in [deed.Options]. Default: [deed.Hold].
	OnNewCluster deed.OnNewCluster
	Environment  string

	// Worker names this process in claims and the audit log. Default host:pid.
	Worker string
	// Deadline bounds every statement. Default 10s.
	Deadline time.Duration
	// Grace is how long a stop waits for executors before it cancels them. Default 20s.
	Grace time.Duration
	// Logger receives warnings and outcomes, never what was written or by whom. Default:
	// discard.
	Logger *slog.Logger
}

// SourceOptions is a source and what is done about its messages.
type SourceOptions struct {
	// Source reads requests. Default: there are none, and messages come by [Receiver.Take].
	Source   Source
	Executor Executor // Required.
	// Tenant is whose it is. Default: the default tenant.
	Tenant tenant.ID
	// At says when the platform has its 200. Default [AfterExecuted].
	At AnswerAt
	// Unknown says what becomes of messages of those who are no contact yet. Default [Link].
	Unknown Unknown
	// Reply is by what replies go that do not say it themselves.
	Reply ReplyBy
	// Statuses, if given, records what the platform says of messages that went out, as
	// [delivery.Ledger.Record] does for the provider that they went by: an error has the
	// platform repeat the request. Default: they are counted as ignored.
	Statuses func(ctx context.Context, events []delivery.StatusEvent) error
	// PerHour is how many messages of one sender are executed in an hour: more are denied
	// as too_many, so that two programs that answer each other end. Default: any number.
	PerHour int
	// Concurrency is how many executors this process runs at once. Default 16.
	Concurrency int
	// Timeout bounds an executor. Default 30s.
	Timeout time.Duration
}

// ReplyBy is how replies go.
type ReplyBy struct {
	Provider string
	Channel  delivery.Channel
	To       string // default: where the message says, [Event.ReplyTo]
}

// AnswerAt is when a platform has its 200.
type AnswerAt string

const (
	// AfterExecuted: once the executor has ended and its replies are reserved; 500 where
	// that failed, so that the platform repeats it.
	AfterExecuted AnswerAt = "executed"
	// AfterAccepted: once the message is stored. What fails is run again here.
	AfterAccepted AnswerAt = "accepted"
)

// Unknown is what becomes of who is not known yet.
type Unknown string

const (
	// Link makes a contact of them.
	Link Unknown = "link"
	// DenyUnknown denies the message, of which nothing else is kept.
	DenyUnknown Unknown = "deny"
)

var sourceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`) })

func (o Options) withDefaults() (Options, error) {
	o.Lease = cmp.Or(o.Lease, time.Minute)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 10)
	o.Wait = cmp.Or(o.Wait, 10*time.Second)
	o.Retention = cmp.Or(o.Retention, 90*24*time.Hour)
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
	o.Grace = cmp.Or(o.Grace, 20*time.Second)
	o.OnNewCluster = cmp.Or(o.OnNewCluster, deed.Hold)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Worker == "" {
		host, _ := os.Hostname()
		o.Worker = fmt.Sprintf("%s:%d", cmp.Or(host, "unknown"), os.Getpid())
	}
	var errs []error
	between := func(name string, v, least, most time.Duration) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("option %s %s is not from %s to %s", name, v, least, most))
		}
	}
	between("Lease", o.Lease, 100*time.Millisecond, 24*time.Hour)
	between("PollInterval", o.PollInterval, time.Millisecond, time.Hour)
	between("Wait", o.Wait, 10*time.Millisecond, time.Minute)
	between("Retention", o.Retention, 8*24*time.Hour, 100*365*24*time.Hour)
	between("Deadline", o.Deadline, 10*time.Millisecond, time.Hour)
	between("Grace", o.Grace, 0, time.Hour)
	if o.MaxAttempts < 1 || o.MaxAttempts > 1000 {
		errs = append(errs, fmt.Errorf("option MaxAttempts %d is not from 1 to 1000", o.MaxAttempts))
	}
	if o.OnNewCluster != deed.Hold && o.OnNewCluster != deed.Continue {
		errs = append(errs, fmt.Errorf("option OnNewCluster %q is neither hold nor continue", o.OnNewCluster))
	}
	sources := make(map[string]SourceOptions, len(o.Sources))
	for _, name := range slices.Sorted(maps.Keys(o.Sources)) {
		s, err := o.Sources[name].withDefaults()
		if !sourceName().MatchString(name) {
			err = errors.Join(err, errors.New("its name is not of A-Z a-z 0-9 . _ -, 1 to 100 characters"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("source %q: %w", name, err))
		}
		sources[name] = s
	}
	o.Sources = sources
	return o, errors.Join(errs...)
}

func (s SourceOptions) withDefaults() (SourceOptions, error) {
	s.At = cmp.Or(s.At, AfterExecuted)
	s.Unknown = cmp.Or(s.Unknown, Link)
	s.Concurrency = cmp.Or(s.Concurrency, 16)
	s.Timeout = cmp.Or(s.Timeout, 30*time.Second)
	var errs []error
	if s.Executor == nil {
		errs = append(errs, errors.New("option Executor is missing"))
	}
	if s.At != AfterExecuted && s.At != AfterAccepted {
		errs = append(errs, fmt.Errorf("option At %q is neither executed nor accepted", s.At))
	}
	if s.Unknown != Link && s.Unknown != DenyUnknown {
		errs = append(errs, fmt.Errorf("option Unknown %q is neither link nor deny", s.Unknown))
	}
	if s.PerHour < 0 {
		errs = append(errs, fmt.Errorf("option PerHour %d is below 0", s.PerHour))
	}
	if s.Concurrency < 1 || s.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("option Concurrency %d is not from 1 to 1000", s.Concurrency))
	}
	if s.Timeout < time.Millisecond || s.Timeout > time.Hour {
		errs = append(errs, fmt.Errorf("option Timeout %s is not from 1ms to 1h", s.Timeout))
	}
	return s, errors.Join(errs...)
}
