package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Provider sends deliveries: an adapter of one outside service. Its methods are
// called by several goroutines at once, and only by a [Ledger].
type Provider interface {
	// Capabilities says what the provider offers. It never changes.
	Capabilities() Capabilities

	// Render makes the request's bytes of what was reserved. They are stored
	// before the first call, and never made again. It calls nobody. An error
	// ends the delivery: it says what is wrong with the payload.
	Render(d Draft) ([]byte, error)

	// Send makes one call with r's request, byte for byte, and says what came
	// of it. It makes no second attempt, whatever a library offers, and returns
	// soon after ctx ends.
	Send(ctx context.Context, r Reservation) Outcome
}

// Finder is a Provider that can look a delivery up.
type Finder interface {
	Provider
	// Find looks for r at the provider, by what only this delivery has. Not to
	// have found it proves nothing.
	Find(ctx context.Context, r Reservation) (Finding, error)
}

// Finding is what a provider knows of a delivery.
type Finding struct {
	Found     bool
	MessageID string
	// Alike says that it was found by what it says and to whom, and not by the
	// delivery's id. It counts unless another delivery to the same recipient has that
	// message, or may have it, since it is being called or in doubt, or was put back or is
	// dead with a call of about then in doubt.
	Alike bool
}

// Checker is a Provider that can say whether it is set up, without sending.
type Checker interface {
	Provider
	// Check makes a dry run and returns what it looked at, in order, up to the
	// first thing that is wrong.
	Check(ctx context.Context) []Check
}

// Check is one thing that a dry run looked at.
type Check struct {
	What string `json:"what"`
	OK   bool   `json:"ok"`
	Info string `json:"info"` // what was found, or what is wrong and what to do
}

// Capabilities are what a provider declares. An adapter must fill in Kind,
// Channels, and Key: a zero Key is refused, so that nobody forgets it.
type Capabilities struct {
	// Kind names the adapter, such as "smtp".
	Kind string
	// Account names the account at the service, and holds no secret. What was
	// first called through one account is never called through another. At most
	// 300 characters. Default "": all are one.
	Account string
	// Channels are those it serves.
	Channels []Channel
	// Key says whether a repeat under [Reservation.Key] is safe.
	Key KeySupport
	// KeyWindow is for how long the provider remembers a key; for [HasKey] only.
	KeyWindow time.Duration
	// Batch is how many deliveries one call of a [Batcher] may take, at most 1000; it
	// has a key. Default: every call is of one delivery.
	Batch int
	// SettleDelay is how long after a call its outcome can be looked up.
	// Default 0.
	SettleDelay time.Duration
	// Lanes are what deliveries are taken apart by, so that one that hangs, is
	// paused or has a limit holds up no other. Default [LanePerDomain].
	Lanes LaneKind
	// Limits are the calls a second that the service takes of an account, by lane: ""
	// is for all of it, "*" for each lane, "-*" for each that begins with -, which
	// those of groups and channels do with [LanePerRecipient]. They hold for all
	// processes together, and for repeats; [ProviderOptions.Rate] and its Lanes come
	// before them. Default: no limit.
	Limits map[string]float64
	// Defer and GiveUpAfter are the service's own schedule for what is refused for
	// now, used where [ProviderOptions] has none. Default: as it says.
	Defer, GiveUpAfter time.Duration
	// Reports are what the service tells later of what it took, and the provider can verify: who
	// asks for a campaign that goes by something else is refused. Empty: it tells nothing.
	// Default: it is not known.
	Reports []Said
}

// LaneKind is what a lane of a provider's is.
type LaneKind string

const (
	// LanePerDomain: the domain of an e-mail address, or the host of a webhook; other
	// addresses are all of one lane.
	LanePerDomain LaneKind = "domain"
	// LanePerHost is as LanePerDomain, and each is a destination of its own, with its
	// own connections and failures, and for each tenant its own pauses: an [Outage] is
	// the lane's.
	LanePerHost LaneKind = "host"
	// LanePerCountry: the country's code of a number, such as +44.
	LanePerCountry LaneKind = "country"
	// LanePerRecipient: each recipient, such as a chat.
	LanePerRecipient LaneKind = "recipient"
	// OneLane: all of one.
	OneLane LaneKind = "none"
)

// KeySupport says whether a provider has an idempotency key.
type KeySupport string

const (
	// HasKey: a repeat under the same key is the same message.
	HasKey KeySupport = "key"
	// NoKey: a repeat is another message.
	NoKey KeySupport = "none"
)

func (c Capabilities) check() error {
	var errs []error
	if c.Kind == "" {
		errs = append(errs, errors.New("its capabilities name no kind"))
	}
	if utf8.RuneCountInString(c.Account) > 300 {
		errs = append(errs, errors.New("its account's name has over 300 characters"))
	}
	if len(c.Channels) == 0 {
		errs = append(errs, errors.New("its capabilities name no channel"))
	}
	switch c.Key {
	case HasKey:
		if c.KeyWindow < time.Minute {
			errs = append(errs, errors.New("its capabilities have a key, but no window of a minute or more"))
		}
	case NoKey:
		if c.KeyWindow != 0 {
			errs = append(errs, errors.New("its capabilities have a window without a key"))
		}
		if c.Batch > 1 {
			errs = append(errs, errors.New("its capabilities have a batch without a key: one lost answer would leave all of it in doubt for good"))
		}
	default:
		errs = append(errs, errors.New("its capabilities do not say whether it has an idempotency key: HasKey or NoKey"))
	}
	if !slices.Contains([]LaneKind{"", LanePerDomain, LanePerHost, LanePerCountry, LanePerRecipient, OneLane}, c.Lanes) {
		errs = append(errs, fmt.Errorf("its capabilities have lanes of no known kind: %q", c.Lanes))
	}
	for _, lane := range slices.Sorted(maps.Keys(c.Limits)) {
		if c.Limits[lane] == 0 || !isRate(c.Limits[lane]) {
			errs = append(errs, fmt.Errorf("its capabilities have a limit that is none: %g for %q", c.Limits[lane], lane))
		}
	}
	for _, said := range c.Reports {
		if err := said.check(); err != nil {
			errs = append(errs, fmt.Errorf("its capabilities report: %w", err))
		}
	}
	if c.Batch < 0 || c.Batch > 1000 || (c.Batch > 1 && c.Lanes == LanePerHost) {
		errs = append(errs, errors.New("its capabilities have a batch that is not from 0 to 1000, or one of several destinations"))
	}
	return errors.Join(errs...)
}

// Draft is what a request is made of. One for the sandbox has its address, and
// an ID and a Key of its own.
type Draft struct {
	ID            string
	Key           string // as [Reservation.Key]
	Tenant        string
	Channel       Channel
	Recipient     string
	SandboxFor    string // whom the sandbox stands in for; "" for a real call
	RecipientID   string
	CorrelationID string
	// ChannelMessageID is the inbound message that the delivery answers; "" if none.
	ChannelMessageID string
	// Purpose is what it is for, "" if it is transactional, and Contact the id of whom it is
	// for, "" if that was not said.
	Purpose, Contact string
	// Run is the campaign's run that it is of; "" for none.
	Run string
	// Unsubscribe is the link by which its recipient leaves what it is for; "" for none.
	// [ReadEmail] puts it into the headers.
	Unsubscribe string
	// At is when the request is made, to the millisecond, by the process's clock and in UTC: an
	// adapter that dates what it says takes this for it, so that the same can be made again
	// ([Ledger.Render]).
	At      time.Time
	Payload json.RawMessage
}

type outcomeKind int

// The zero kind is unknown: an outcome that nobody filled in proves nothing.
const (
	kindUnknown outcomeKind = iota
	kindAccepted
	kindRefused
	kindBadAddress
	kindOptedOut
	kindLater
	kindDeferred
	kindOutage
)

// Outcome is what came of a call. The zero value is [Unknown].
type Outcome struct {
	kind      outcomeKind
	messageID string
	err       error
	after     time.Duration
	code      string
	ofLane    bool // what is out is the delivery's lane alone
	answers   bool // it is unknown, and the provider is there
	renewed   Renewal
}

// Accepted: the provider took it. messageID is how it calls it, or "".
func Accepted(messageID string) Outcome { return Outcome{kind: kindAccepted, messageID: messageID} }

// Refused: the provider did not take it and never will. No retry cures it.
func Refused(err error) Outcome { return Outcome{kind: kindRefused, err: orNone(err)} }

// BadAddress: as [Refused], since there is nobody at the recipient's address. It is
// suppressed for everything, for the delivery's tenant and channel, unless it was the
// sandbox's.
func BadAddress(err error) Outcome { return Outcome{kind: kindBadAddress, err: orNone(err)} }

// OptedOut: the provider certainly did not take it, since the recipient has told it to
// take no such messages for them. The delivery is skipped; nothing is suppressed.
func OptedOut(err error) Outcome { return Outcome{kind: kindOptedOut, err: orNone(err)} }

// Outage: the provider certainly did not take it, and takes nothing now: it
// cannot be connected to, refuses who calls, or has had enough of the account.
// It costs the delivery no attempt. The provider, or with
// [LanePerHost] for the delivery's tenant the lane, is paused,
// for after at least, which is how long it asks for, 0 if it does not; then one
// delivery at a time finds out whether it is back.
func Outage(err error, after time.Duration) Outcome {
	return Outcome{kind: kindOutage, err: orNone(err), after: max(after, 0)}
}

// LaneOutage is as [Outage], of the delivery's lane alone: a chat that takes no more
// for a while. The others go on. [ProviderOptions.GiveUpAfter] ends it. With [OneLane]
// it is the provider's; of a delivery that has no lane all the same it is as [Deferred].
func LaneOutage(err error, after time.Duration) Outcome {
	return Outcome{kind: kindOutage, err: orNone(err), after: max(after, 0), ofLane: true}
}

// Quota: the provider certainly did not take it, since the account has used up what
// it may send, and takes nothing before it is renewed. It rests until then, by the
// database's clock, and nobody finds out before; nothing is counted. An operator may
// end that ([Ledger.Resume]).
func Quota(err error, renewed Renewal) Outcome {
	return Outcome{kind: kindOutage, err: orNone(err), renewed: renewed}
}

// Renewal is when a quota is there again; see [NextDay], [NextMonth] and [RenewedIn].
// The zero value is not known: [Quota] is as [Outage] then.
type Renewal struct{ text string } // in deed.pause's words

// NextDay is the next midnight of UTC.
func NextDay() Renewal { return Renewal{"day"} }

// NextMonth is midnight of UTC of the next month's first day.
func NextMonth() Renewal { return Renewal{"month"} }

// RenewedIn is so long after the answer. Up to 32 days are obeyed.
func RenewedIn(d time.Duration) Renewal {
	return Renewal{strconv.FormatFloat(max(d, time.Second).Seconds(), 'f', 3, 64)}
}

// Deferred: the provider certainly did not take this delivery and says to try
// it later, as greylisting does; after is as with [Outage]. It costs no attempt;
// [ProviderOptions.GiveUpAfter] ends it.
func Deferred(err error, after time.Duration) Outcome {
	return Outcome{kind: kindDeferred, err: orNone(err), after: max(after, 0)}
}

// NotNow: the provider certainly did not take this delivery, for any other
// reason that may pass. It is an attempt, of which there are few; after is as
// with [Outage].
func NotNow(err error, after time.Duration) Outcome {
	return Outcome{kind: kindLater, err: orNone(err), after: max(after, 0)}
}

// Unknown: the provider may have taken it; nobody can tell from the answer.
func Unknown(err error) Outcome { return Outcome{err: orNone(err)} }

// KeyInUse: something was sent under the key, and nobody can tell whether it was this:
// the request had other bytes. As [Unknown], of a provider that is there: however many
// there are, they pause nothing.
func KeyInUse(err error) Outcome { return Outcome{err: orNone(err), answers: true} }

// unanswered reports whether the provider may be what nothing is known for.
func (o Outcome) unanswered() bool { return o.kind == kindUnknown && !o.answers }

func orNone(err error) error {
	if err == nil {
		return errors.New("no cause given")
	}
	return err
}

// WithCode keeps the code that the provider answered with, such as 550 or 503,
// in the delivery's history.
func (o Outcome) WithCode(code string) Outcome {
	o.code = code
	return o
}

// Code returns the code that the provider answered with, or "".
func (o Outcome) Code() string { return o.code }

// Err returns the cause of an outcome that is not accepted.
func (o Outcome) Err() error {
	if o.kind == kindUnknown {
		return orNone(o.err)
	}
	return o.err
}

// MessageID returns the provider's name for what it accepted.
func (o Outcome) MessageID() string { return o.messageID }

// RetryAfter returns how long the provider asks to wait.
func (o Outcome) RetryAfter() time.Duration { return o.after }

// OfLane reports whether an outage is the lane's alone ([LaneOutage]).
func (o Outcome) OfLane() bool { return o.ofLane }

// Renewal returns when the quota is renewed that is used up ([Quota]).
func (o Outcome) Renewal() Renewal { return o.renewed }

// String names the outcome: accepted, refused, bad address, opted out, outage,
// deferred, not now or unknown.
func (o Outcome) String() string {
	switch o.kind {
	case kindAccepted:
		return "accepted"
	case kindRefused:
		return "refused"
	case kindBadAddress:
		return "bad address"
	case kindOptedOut:
		return "opted out"
	case kindOutage:
		return "outage"
	case kindDeferred:
		return "deferred"
	case kindLater:
		return "not now"
	}
	return "unknown"
}
