package delivery

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Rates is what a provider took in the last hour and day, of all domains or of one, and what
// it has said of that since (D13).
type Rates struct {
	Provider string `json:"provider"`
	Domain   string `json:"domain,omitempty"` // the recipients'; "": all, or all that are not told by name
	Whole    bool   `json:"whole"`            // false: an hour had more than was read
	Hour     Taken  `json:"last_hour"`
	Day      Taken  `json:"last_day"`
}

// Taken is what a provider took, and what it said of that by now: a message may be delivered
// and bounce later, and counts as both. What it refused at the call is not in it, nor what
// went to the sandbox.
type Taken struct {
	Accepted   int64 `json:"accepted"`
	Delivered  int64 `json:"delivered"`
	Bounced    int64 `json:"bounced"` // hard, or dropped: a soft bounce is none
	Complained int64 `json:"complained"`
}

// Plus is both together.
func (t Taken) Plus(o Taken) Taken {
	return Taken{t.Accepted + o.Accepted, t.Delivered + o.Delivered, t.Bounced + o.Bounced, t.Complained + o.Complained}
}

// How much of each hour is read: of the newest that ended.
const (
	RatesWell  = 50_000 // seconds, where there is so much
	RatesQuick = 2000   // for what is asked again and again
)

// Rates returns what providers took in the last hour and day and what they have said of it,
// by provider; provider "" is all of them. With domains it is by provider and recipient's
// domain, those with most first, and everything past so many of them together. each bounds
// what is read of each hour: [RatesWell], [RatesQuick]. Errors: [deed.Invalid]. Needs
// deed_worker or deed_admin.
func (l *Ledger) Rates(ctx context.Context, provider string, domains, each int) ([]Rates, error) {
	const op = "rates"
	if err := checkCount(op, "each", each, 1); err != nil {
		return nil, err
	}
	if err := checkCount(op, "domains", domains, 0); err != nil {
		return nil, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	rows, err := l.pool.Query(ctx, query.Rates, each, domains, sqlvalue.NullIfZero(provider))
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Rates, err error) {
		err = row.Scan(&r.Provider, &r.Domain, &r.Whole, &r.Hour.Accepted, &r.Hour.Delivered, &r.Hour.Bounced, &r.Hour.Complained,
			&r.Day.Accepted, &r.Day.Delivered, &r.Day.Bounced, &r.Day.Complained)
		return r, err
	})
	return list, deed.WrapError(op, err)
}
