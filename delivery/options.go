package delivery

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/mail"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/tenant"
)

// Options configures a Ledger. The zero value works: it has no provider and
// attempts nothing.
type Options struct {
	// Providers are the providers that [Ledger.Run] serves, by the name that
	// deliveries give.
	Providers map[string]ProviderOptions

	// PollInterval is how often a provider is looked at that has nothing to do,
	// half as much more or less. Default 1s.
	PollInterval time.Duration
	// ClaimBatch is the most deliveries a claim takes. Default 200.
	ClaimBatch int
	// Lease is how long a claim lasts unless renewed; a call that is under way
	// when it runs out is in doubt. Renewed at a third of it. Default 1m.
	Lease time.Duration
	// MaxAttempts is how many attempts that are known to have failed make a
	// delivery dead that names no number of its own. Those of [AtLeastOnce] of which
	// nobody knows are among them. Default 5.
	MaxAttempts int
	// BaseRetry is the pause after the first attempt that failed, or that is made again
	// since nobody knows ([AtLeastOnce]); it doubles with each, up to an hour. Default 5s.
	BaseRetry time.Duration
	// JitterMin and JitterMax bound the random factor of such a pause. Default
	// 0.5 and 1.
	JitterMin, JitterMax float64
	// Retention removes what has been delivered or skipped so long ago, and with
	// it the memory of its key. At least a day. Default: kept for ever.
	Retention time.Duration
	// ContentRetention removes files that were put ([PutContent]) or named by a reservation so long ago
	// and that nothing unfinished needs. At least two days, and no more than Retention or two
	// days: of what outlives the deliveries that named it an erasure cannot tell whose it was.
	// Default 30 days, or what it may be at most.
	ContentRetention time.Duration

	// Links make the header List-Unsubscribe of e-mails that have a purpose and no such
	// header of their own; somebody must serve what they lead to ([contact.Leave]).
	// Default: there is none.
	Links *contact.Links

	// Composer makes what campaigns' deliveries say, when they are attempted. Default: there
	// is none, and they are left to ledgers that have one.
	Composer Composer

	// OnNewCluster says what to do on another cluster than the installation's,
	// or in another environment. Default: [deed.Hold]: a copy writes to nobody.
	OnNewCluster deed.OnNewCluster
	// Environment is where this process runs, as in [deed.Options]: give all
	// that share a database the same. Default: none, which is another one than
	// any that the installation belongs to.
	Environment string

	// Worker names this process in claims and the audit log. Default host:pid.
	Worker string
	// Deadline bounds every statement. Default 10s.
	Deadline time.Duration
	// Grace is how long a stop waits for calls under way before it cancels them,
	// which leaves them in doubt. Default: the longest timeout of a provider.
	Grace time.Duration
	// Logger receives warnings and state changes. Default: discard.
	Logger *slog.Logger
}

// mostHanging is the most that [ProviderOptions.Hanging] may be.
const mostHanging = 20_000

// ProviderOptions is a provider and how it is served.
type ProviderOptions struct {
	Provider Provider
	// Concurrency is how many calls this process makes at once. Default 16.
	Concurrency int
	// PerLane is how many of them go to one lane. Default: a quarter where lanes are
	// destinations of their own ([LanePerHost]), else all.
	PerLane int
	// Hanging is how many calls of one tenant to lanes may be under
	// way beside those, because they take far longer than usual: so that lanes
	// that hang hold up no other. A tenant that has so many, or as many as are
	// left, begins none; of all tenants there are twice as many, so one is left for
	// others. A lane that is not known to answer has one call at a time,
	// whatever the provider. Default: three times Concurrency; negative: none.
	Hanging int
	// Timeout bounds a call. Default 30s.
	Timeout time.Duration
	// GiveUpAfter is for how long a delivery that is refused for now ([Deferred])
	// is tried, and one whose own destination cannot be reached: then it is dead.
	// An outage of the whole provider ends no delivery. Default: the adapter's
	// ([Capabilities]), or 24h.
	GiveUpAfter time.Duration
	// Defer is how long a delivery that is refused for now waits the first time;
	// it doubles each time, up to half an hour. Default: the adapter's, or 1m.
	Defer time.Duration
	// Rate limits the calls a second, of all processes together; Burst how many
	// may come at once. Default: the adapter's limit ([Capabilities]), or none; half a
	// second's worth, at least 1.
	Rate, Burst float64
	// Lanes limit the calls a second to lanes, by name: a domain, +44, or with
	// [LanePerRecipient] the recipient; "*" is for each lane that has no other, "-*" for
	// each such one of a group or channel, whose address begins with - or @. 0 is no
	// limit. They come beside the adapter's, and before those for the same name.
	// Default: the adapter's.
	Lanes map[string]float64
	// Tenants are the only ones whose deliveries it makes; those of others fail, and a campaign of
	// others is refused. Default: all.
	Tenants []tenant.ID
	// Engagement keeps who has opened a message and clicked in it ([Ledger.Record]).
	// Default: nobody is watched.
	Engagement bool
	// VerifiedDomains are those that the account may send e-mails from, as its service has
	// verified them: a campaign from another one is refused when it is deployed. A domain
	// stands for itself, and not for those below it. Default: it is not known, and none is refused.
	VerifiedDomains []string
	// Sandbox, if set, is the address that everything goes to instead of its
	// recipient, whenever it was reserved. What it takes is skipped: nobody was
	// written to. Deliveries in doubt wait until it is off. Default: none.
	Sandbox string
}

func (o Options) withDefaults() (Options, error) {
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.ClaimBatch = cmp.Or(o.ClaimBatch, 200)
	o.Lease = cmp.Or(o.Lease, time.Minute)
	o.BaseRetry = cmp.Or(o.BaseRetry, 5*time.Second)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 5)
	if o.JitterMin == 0 && o.JitterMax == 0 {
		o.JitterMin, o.JitterMax = 0.5, 1
	}
	o.Deadline = cmp.Or(o.Deadline, 10*time.Second)
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
	between("PollInterval", o.PollInterval, time.Millisecond, time.Hour)
	between("Deadline", o.Deadline, 10*time.Millisecond, time.Hour)
	most := time.Duration(math.MaxInt64)
	if o.Retention != 0 {
		most = max(o.Retention, 48*time.Hour) // as long as deliveries that name files are kept at least
	}
	if o.ContentRetention == 0 {
		o.ContentRetention = min(30*24*time.Hour, most)
	}
	if o.ContentRetention > most {
		errs = append(errs, fmt.Errorf("option ContentRetention %s is more than the %s for which deliveries are kept (Retention): an erasure would not find the files of those that are gone", o.ContentRetention, most))
	}
	between("ContentRetention", o.ContentRetention, 48*time.Hour, 100*365*24*time.Hour)
	if o.Retention != 0 {
		between("Retention", o.Retention, 24*time.Hour, 100*365*24*time.Hour)
	}
	if o.ClaimBatch < 1 || o.ClaimBatch > 10000 {
		errs = append(errs, fmt.Errorf("option ClaimBatch %d is not from 1 to 10000", o.ClaimBatch))
	}
	errs = append(errs, limits.Attempts.Check("option MaxAttempts", o.MaxAttempts), limits.Lease.Check("option Lease", o.Lease),
		limits.Backoff.Check("option BaseRetry", o.BaseRetry))
	if ok := o.JitterMin > 0 && o.JitterMax >= o.JitterMin && o.JitterMax <= 2; !ok { // nor is NaN
		errs = append(errs, fmt.Errorf("options JitterMin %g and JitterMax %g are not a range between 0 and 2", o.JitterMin, o.JitterMax))
	}
	o.OnNewCluster = cmp.Or(o.OnNewCluster, deed.Hold)
	if err := o.OnNewCluster.Check(o.Environment); err != nil {
		errs = append(errs, err)
	}
	if len(o.Worker) > 200 {
		errs = append(errs, errors.New("option Worker has over 200 bytes"))
	}
	given := o.Providers
	o.Providers = make(map[string]ProviderOptions, len(given))
	for _, name := range slices.Sorted(maps.Keys(given)) {
		p, err := given[name].withDefaults()
		if err != nil {
			errs = append(errs, fmt.Errorf("provider %s: %w", name, err))
		}
		o.Providers[name] = p
		o.Grace = max(o.Grace, p.Timeout)
	}
	o.Grace = cmp.Or(o.Grace, time.Second)
	return o, errors.Join(errs...)
}

func (p ProviderOptions) withDefaults() (ProviderOptions, error) {
	if p.Provider == nil {
		return p, errors.New("there is no Provider")
	}
	caps := p.Provider.Capabilities()
	errs := []error{caps.check()}
	if _, ok := p.Provider.(Batcher); !ok && caps.Batch > 1 {
		errs = append(errs, errors.New("its capabilities have a batch, and it is no Batcher"))
	}
	p.Concurrency = cmp.Or(p.Concurrency, 16)
	if caps.Lanes == LanePerHost {
		p.PerLane = cmp.Or(p.PerLane, max(1, p.Concurrency/4))
	}
	p.Timeout = cmp.Or(p.Timeout, 30*time.Second)
	p.GiveUpAfter = cmp.Or(p.GiveUpAfter, caps.GiveUpAfter, 24*time.Hour)
	p.Defer = cmp.Or(p.Defer, caps.Defer, time.Minute)
	if p.Concurrency < 1 || p.Concurrency > 10000 || p.PerLane < 0 {
		errs = append(errs, fmt.Errorf("option Concurrency %d and PerLane %d are not from 1 to 10000", p.Concurrency, p.PerLane))
	}
	if p.Hanging == 0 {
		p.Hanging = min(3*p.Concurrency, mostHanging)
	}
	if p.Hanging > mostHanging {
		errs = append(errs, fmt.Errorf("option Hanging %d is above %d", p.Hanging, mostHanging))
	}
	if p.Timeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("option Timeout %s is below 1ms", p.Timeout))
	}
	if p.GiveUpAfter < time.Minute || p.GiveUpAfter > 30*24*time.Hour || p.Defer < time.Millisecond || p.Defer > time.Hour {
		errs = append(errs, fmt.Errorf("option GiveUpAfter %s is not from 1m to 720h, or Defer %s not from 1ms to 1h", p.GiveUpAfter, p.Defer))
	}
	if len(p.VerifiedDomains) > 0 && !slices.Contains(caps.Channels, Email) {
		errs = append(errs, errors.New("option VerifiedDomains is of e-mails, and the provider sends none"))
	}
	for _, domain := range p.VerifiedDomains {
		if a, err := mail.ParseAddress("a@" + domain); err != nil || a.Address != "a@"+domain || strings.Contains(domain, "*") {
			errs = append(errs, fmt.Errorf("option VerifiedDomains: %q is no domain, such as example.com", domain))
		}
	}
	if !isRate(p.Rate) || (p.Burst != 0 && !(p.Burst >= 1 && p.Burst <= mostRate)) {
		errs = append(errs, fmt.Errorf("option Rate %g is not 0 nor from %g to %g, or Burst %g not 0 nor from 1 to %g", p.Rate, leastRate, mostRate, p.Burst, mostRate))
	}
	for _, lane := range slices.Sorted(maps.Keys(p.Lanes)) {
		if lane == "" || !isRate(p.Lanes[lane]) {
			errs = append(errs, fmt.Errorf("option Lanes: the rate of %q is not 0 nor from %g to %g", lane, leastRate, mostRate))
		}
	}
	return p, errors.Join(errs...)
}

// Calls a second that a limit may be of: more is none, and less is a pause.
const leastRate, mostRate = 1e-6, 1e6

// isRate reports whether v is such a limit, or 0: none. What is no number is not.
func isRate(v float64) bool { return v == 0 || v >= leastRate && v <= mostRate }

// serves reports whether a tenant's deliveries are made.
func (p ProviderOptions) serves(owner string) bool {
	return len(p.Tenants) == 0 || slices.ContainsFunc(p.Tenants, func(id tenant.ID) bool { return id.String() == owner })
}

// spare is how many calls of a tenant that hang may be under way beside the others.
func (p ProviderOptions) spare() int { return max(p.Hanging, 0) }

// limits are the calls a second, by lane: the adapter's, and before them those that
// were asked for.
func (p ProviderOptions) limits(caps Capabilities) map[string]float64 {
	all := maps.Clone(caps.Limits)
	if all == nil {
		all = map[string]float64{}
	}
	maps.Copy(all, p.Lanes)
	if p.Rate > 0 {
		all[""] = p.Rate
	}
	maps.DeleteFunc(all, func(_ string, rate float64) bool { return rate == 0 })
	return all
}

// burstOf is how many calls may come at once under a rate.
func burstOf(rate, burst float64) float64 {
	if burst > 0 {
		return burst
	}
	return max(1, rate/2)
}
