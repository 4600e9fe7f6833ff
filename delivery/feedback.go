package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlstate"
)

// Said is what a provider says of a message that it took.
type Said string

// What providers say later.
const (
	SaidAccepted     Said = "accepted"     // it has taken it, and works on it
	SaidDelivered    Said = "delivered"    // it has reached the recipient's server or device
	SaidBounced      Said = "bounced"      // nobody is at that address, and nobody will be
	SaidSoftBounced  Said = "soft_bounced" // it could not be delivered, and another one may be
	SaidDropped      Said = "dropped"      // it gave it up for a reason that says nothing of the address
	SaidComplained   Said = "complained"   // the recipient calls it unwanted
	SaidUnsubscribed Said = "unsubscribed" // the recipient wants no more of these
	SaidOpened       Said = "opened"
	SaidClicked      Said = "clicked"
	SaidAnswered     Said = "answered" // a call has ended; the code says how: human, machine, busy, no-answer
)

// StatusEvent is one thing that a provider says of a message: verified by the caller.
type StatusEvent struct {
	Said Said
	// ID is the provider's id of the event, up to 255 bytes without control characters. Required.
	ID string
	// Delivery is the delivery's id, as the request carried it; empty: the event has none.
	Delivery string
	// MessageID is the provider's id of the message, as [Accepted] was given it.
	MessageID string
	// Address is whom it is about. Default, and where it is neither the delivery's recipient nor
	// who got a copy: the recipient; of an e-mail with copies nobody is suppressed then.
	Address string
	// At is when it happened. Default: now.
	At time.Time
	// Reason is what the provider says of a bounce, and Code what it calls it.
	Reason, Code string
}

// Recorded is what became of status events.
type Recorded struct {
	Matched int64 // they are of deliveries of this provider; those that were known changed nothing
	Waiting int64 // they name a message that no delivery has yet, and are tried again for seven days
	Strange int64 // they are of no delivery that this provider has called; nothing of them is kept
	Settled int   // deliveries in doubt that they proved to have been accepted
	Ignored int   // opened and clicked, unless [ProviderOptions.Engagement]
	Busy    int64 // somebody else has locked their deliveries, or what they would write; nothing of them is kept
}

// mostEvents bounds one statement.
const mostEvents = 1000

// Record records what a provider says of what it took, beside what the ledger says was
// done (D13): when each thing was said to have happened first. Repeats change nothing, in
// whatever order they come. An event of a delivery in doubt settles it. A bounce
// suppresses its address for everything, a complaint for all that has a purpose, an
// unsubscription for the delivery's purpose, or for all if it has none; the fifth soft
// bounce of an address in seven days, without a delivery between, for thirty days.
//
// provider is one of the ledger's, by whose account the delivery was called, and of whose
// tenants it must be: so what another service says changes nothing.
//
// What others have locked for longer than a second, as an erasure that is left open has, holds up
// no other events. Those are recorded, and there is an error that is [ErrAgain]: have the service say
// all of them again, which changes nothing of what was recorded. No more than three statements of a ledger
// record events at once, and two of one provider, so that deliveries keep the other connections; what
// has waited for [Options.Deadline] for its turn is to be said again, too.
//
// Errors: [deed.NotFound] for a provider that the ledger does not have, [deed.Invalid],
// [ErrAgain]. Needs deed_worker.
func (l *Ledger) Record(ctx context.Context, provider string, events ...StatusEvent) (Recorded, error) {
	const op = "record status events"
	var s *source
	for _, known := range l.sources {
		if known.name == provider {
			s = known
		}
	}
	if s == nil {
		return Recorded{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("this ledger has no provider %q", provider)}
	}
	var total Recorded
	kept := make([]StatusEvent, 0, len(events))
	for i, e := range events {
		if err := e.check(); err != nil {
			return Recorded{}, &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf("event %d: %w", i+1, err)}
		}
		if (e.Said == SaidOpened || e.Said == SaidClicked) && !s.opts.Engagement {
			total.Ignored++
			continue
		}
		kept = append(kept, e)
	}
	for len(kept) > 0 {
		n := min(len(kept), mostEvents)
		err := s.record(ctx, kept[:n], &total)
		for tries := 1; sqlstate.Again(err) && tries < 5; tries++ {
			err = s.record(ctx, kept[:n], &total)
		}
		if err != nil {
			return total, deed.WrapError(op, err)
		}
		kept = kept[n:]
	}
	if total.Busy > 0 {
		return total, deed.WrapError(op, fmt.Errorf("%w: %d of %d events are of deliveries that somebody else has locked", ErrAgain, total.Busy, len(events)))
	}
	return total, nil
}

func (s Said) check() error {
	switch s {
	case SaidAccepted, SaidDelivered, SaidBounced, SaidSoftBounced, SaidDropped, SaidComplained, SaidUnsubscribed, SaidOpened, SaidClicked, SaidAnswered:
		return nil
	}
	return fmt.Errorf("nothing is called %q that a provider says", string(s))
}

func (e StatusEvent) check() error {
	if err := e.Said.check(); err != nil {
		return err
	}
	if e.ID == "" || len(e.ID) > 255 {
		return errors.New("its id is missing, or has over 255 bytes")
	}
	if strings.ContainsFunc(e.ID, unicode.IsControl) {
		return errors.New("its id has a control character in it")
	}
	if len(e.MessageID) > 500 {
		return errors.New("its message id has over 500 bytes")
	}
	for _, text := range []string{e.ID, e.Delivery, e.MessageID, e.Address} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return errors.New("what names it is not UTF-8, or has a NUL in it")
		}
	}
	return nil
}

// record records events in one statement.
func (s *source) record(ctx context.Context, events []StatusEvent, total *Recorded) error {
	n := len(events)
	said, ids, markers, messages, addresses := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	ats, reasons, codes := make([]*time.Time, n), make([]string, n), make([]string, n)
	for i, e := range events {
		said[i], ids[i], markers[i], messages[i], addresses[i] = string(e.Said), e.ID, e.Delivery, e.MessageID, e.Address
		if !e.At.IsZero() && e.At.Year() >= 1970 && e.At.Year() <= 9999 {
			ats[i] = &e.At
		}
		reasons[i], codes[i] = errortext.Stored(e.Reason, 1000, ""), clip(e.Code)
	}
	var tenants []string // null: all
	for _, t := range s.opts.Tenants {
		tenants = append(tenants, t.String())
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := s.ledger.deadline(ctx)
	defer cancel()
	var r Recorded
	var told string
	err = s.ledger.pool.QueryRow(ctx, query.RecordEvents, s.name, s.caps.Kind, s.caps.Account, tenants, said, ids, markers, messages, addresses, ats, reasons, codes,
		"events of "+s.name, s.patience().Seconds()).Scan(&r.Matched, &r.Waiting, &r.Strange, &r.Busy, &told)
	if err != nil {
		return err
	}
	if r.Busy > 0 {
		s.blocked.Store(time.Now().UnixNano())
	}
	total.Matched, total.Waiting, total.Strange, total.Busy = total.Matched+r.Matched, total.Waiting+r.Waiting, total.Strange+r.Strange, total.Busy+r.Busy
	settled, err := s.ledger.tellProofs(told)
	total.Settled += settled
	return err
}

// patience is how long what somebody has locked is waited for: hardly, where that was in vain just now. Behind many
// that wait, those of other deliveries would be told later than a service that repeats the least asks again.
func (s *source) patience() time.Duration {
	if time.Since(time.Unix(0, s.blocked.Load())) < 2*time.Second {
		return 50 * time.Millisecond
	}
	return time.Second
}

// enter waits for a place to record events in, as long as a statement may take.
func (s *source) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := s.ledger.deadline(ctx)
	defer cancel()
	if leave, err = s.ledger.events.Enter(ctx, s.name); err != nil {
		return nil, fmt.Errorf("%w: other events of %s are being recorded: %w", ErrAgain, s.name, err)
	}
	return leave, nil
}

// Feedback is what a provider has said of a delivery, and when each was first.
type Feedback struct {
	DeliveredAt    *time.Time `json:"delivered_at,omitempty"`
	BouncedAt      *time.Time `json:"bounced_at,omitempty"` // of whatever kind
	ComplainedAt   *time.Time `json:"complained_at,omitempty"`
	UnsubscribedAt *time.Time `json:"unsubscribed_at,omitempty"`
	OpenedAt       *time.Time `json:"opened_at,omitempty"`
	ClickedAt      *time.Time `json:"clicked_at,omitempty"`
	AnsweredAt     *time.Time `json:"answered_at,omitempty"` // when a call ended
	// Bounce is the gravest kind that was said, and BounceSince when that was first; empty of
	// bounces that were recorded before deed kept it.
	Bounce      Bounce     `json:"bounce,omitempty"`
	BounceSince *time.Time `json:"bounce_since,omitempty"`
	Reason      string     `json:"reason,omitempty"` // of that bounce, else of how a call ended
	Code        string     `json:"code,omitempty"`
}

// Bounce is a kind of bounces.
type Bounce string

// The kinds of bounces, the gravest first.
const (
	HardBounce    Bounce = "hard"    // [SaidBounced]: the address is suppressed
	DroppedBounce Bounce = "dropped" // [SaidDropped]: the service gave it up, for a reason that says nothing of the address
	SoftBounce    Bounce = "soft"    // [SaidSoftBounced]: another one may arrive
)

// FeedbackTopic is a stream to which deed publishes a [FeedbackMessage] for each time of a
// [Feedback] (of a bounce again when a graver one is said), in the transaction that records it, while somebody subscribes to it. The key is
// the delivery's id, and the type the event.
const FeedbackTopic = "deed.feedback"

// FeedbackMessage is what a message of [FeedbackTopic] says.
type FeedbackMessage struct {
	Delivery         string    `json:"delivery_id"`
	Tenant           string    `json:"tenant_id"`
	CorrelationID    string    `json:"correlation_id,omitempty"`
	ChannelMessageID string    `json:"channel_message_id,omitempty"` // of the inbound message that it answers
	Provider         string    `json:"provider"`
	Event            Said      `json:"event"`
	At               time.Time `json:"at"`
	Reason           string    `json:"reason,omitempty"` // without addresses
	Code             string    `json:"code,omitempty"`
}

// Feedback returns what a delivery's provider has said of it since; zero: nothing. A
// tenant sees its own.
func (l *Ledger) Feedback(ctx context.Context, id string) (f Feedback, err error) {
	if err := checkID("feedback", id); err != nil {
		return Feedback{}, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	err = l.pool.QueryRow(ctx, query.Feedback, id).
		Scan(&f.DeliveredAt, &f.BouncedAt, &f.ComplainedAt, &f.UnsubscribedAt, &f.OpenedAt, &f.ClickedAt, &f.AnsweredAt, &f.Bounce, &f.BounceSince, &f.Reason, &f.Code)
	if errors.Is(err, pgx.ErrNoRows) {
		return Feedback{}, nil
	}
	return f, deed.WrapError("feedback", err)
}
