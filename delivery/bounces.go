package delivery

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/deedhq/deed"
)

// MailReader reads mail that comes back of what its provider sent: what servers say later
// of it. Safe for concurrent use.
type MailReader interface {
	// TakesMail reports whether an address looks like one that the provider's mail comes
	// back to.
	TakesMail(to string) bool
	// ReadMail reads a mail that came to an address. An event's address is whom the mail
	// names; it counts only if it is one of the delivery's. Errors: [ErrUnverified] for an address
	// that the provider has not made; any other: it is no mail. Their texts have nothing in
	// them that was sent.
	ReadMail(to string, raw []byte) (Told, error)
}

// Bounces records what mail that comes back says. Safe for concurrent use.
type Bounces struct {
	ledger  *Ledger
	readers map[string]MailReader

	mu     sync.Mutex
	counts map[EventCount]int64 // guarded by mu: by provider and outcome
}

// Bounces returns what takes the mail of the ledger's providers that comes back to those
// of readers.
func (l *Ledger) Bounces(readers map[string]MailReader) *Bounces {
	return &Bounces{ledger: l, readers: readers, counts: map[EventCount]int64{}}
}

// Counts returns what has come of mail that came back: unverified, invalid or failed; and
// of what it said, as [EventsHandler.Counts] has it.
func (b *Bounces) Counts() (list []EventCount) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, n := range b.counts {
		of.N = n
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b EventCount) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Outcome, b.Outcome))
	})
	return list
}

func (b *Bounces) count(provider, outcome string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n != 0 {
		b.counts[EventCount{Provider: provider, Outcome: outcome}] += n
	}
}

// Takes reports whether an address looks like one that a provider's mail comes back to.
func (b *Bounces) Takes(to string) bool {
	for _, r := range b.readers {
		if r.TakesMail(to) {
			return true
		}
	}
	return false
}

// Take records what a mail says that came to an address: bounced, and why, or delivered. The
// address proves that the delivery is ours, not who writes: of one with copies no bounce is hard.
// What says nothing of a delivery, such as an answer, is ignored. Errors: [ErrNoEvents] for
// an address that no provider's mail comes back to, [ErrUnverified] for one that looks so
// and was made by others, [ErrNoMail]; nothing is changed then. Any other is the database's,
// and the mail may be brought again.
func (b *Bounces) Take(ctx context.Context, to string, raw []byte) (Recorded, error) {
	first := ""
	for _, name := range slices.Sorted(maps.Keys(b.readers)) {
		if !b.readers[name].TakesMail(to) {
			continue
		}
		told, err := b.readers[name].ReadMail(to, raw)
		if !errors.Is(err, ErrUnverified) { // several may have one address, and secrets of their own
			return b.record(ctx, name, told, err)
		}
		first = cmp.Or(first, name)
	}
	if first == "" {
		return Recorded{}, ErrNoEvents
	}
	b.count(first, "unverified", 1)
	return Recorded{}, ErrUnverified
}

// ErrNoMail says that what came is no mail that can be read.
var ErrNoMail = errors.New("it is no e-mail that can be read")

func (b *Bounces) record(ctx context.Context, provider string, told Told, err error) (Recorded, error) {
	if err != nil {
		b.count(provider, "invalid", 1)
		return Recorded{}, ErrNoMail
	}
	for i, e := range told.Events {
		var copied bool
		if told.Events[i].Address, copied, err = b.ledger.addressee(ctx, e.Delivery, e.Address); err != nil {
			break
		}
		if copied && e.Said == SaidBounced { // all who got it know the address, and may say this of each other
			told.Events[i].Said = SaidSoftBounced
		}
	}
	var done Recorded
	if err == nil {
		done, err = b.ledger.Record(ctx, provider, told.Events...)
	}
	if err != nil {
		b.count(provider, "failed", 1)
		return done, err
	}
	done.Ignored += told.Other
	for outcome, n := range map[string]int64{
		"matched": done.Matched, "waiting": done.Waiting, "strange": done.Strange, "settled": int64(done.Settled), "ignored": int64(done.Ignored),
	} {
		b.count(provider, outcome, n)
	}
	return done, nil
}

// addressee is an address if a delivery goes to it, be it a copy, else ""; and whether it
// has copies.
func (l *Ledger) addressee(ctx context.Context, delivery, address string) (its string, copied bool, err error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var is bool
	if err := l.pool.QueryRow(ctx, query.Addressee, delivery, address).Scan(&is, &copied); err != nil {
		return "", false, deed.WrapError("bounce", err)
	}
	if !is {
		address = ""
	}
	return address, copied, nil
}
