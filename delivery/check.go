package delivery

import (
	"context"
	"strings"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/tenant"
)

// Check says what the ledger's own providers would refuse of deliveries before they
// call anybody, which is a text over the service's limit, a number that is not
// E.164, a template without a name: what else is only said when a delivery is
// attempted, which then has failed. It makes their requests and forgets them, and asks neither
// the database nor a provider. Deliveries of providers that the ledger does not have, and
// those without a recipient, pass. Errors: [deed.Invalid], which names the first
// delivery, counted from 1, and the field.
func (l *Ledger) Check(ds ...Delivery) error {
	for i := range ds {
		d := &ds[i]
		for _, s := range l.sources {
			if s.name != d.Provider || strings.Trim(d.Recipient, " \t\r\n") == "" {
				continue
			}
			w := row{
				id: unmadeID, key: d.Key[:], channel: d.Channel, recipient: strings.Trim(d.Recipient, " \t\r\n"), recipientID: d.RecipientID,
				payload: d.Payload, correlationID: d.CorrelationID, channelMsgID: d.ChannelMessageID,
			}
			if _, err := s.render(d.Channel, w.draft()); err != nil {
				return invalidf("reserve", "delivery %d: provider %s: %w", i+1, s.name, err)
			}
		}
	}
	return nil
}

// unmadeID is of a delivery that is not reserved.
const unmadeID = "00000000-0000-0000-0000-000000000000"

// Reserve is [Reserve] after [Ledger.Check]: what a provider would refuse is told
// now, and nothing is reserved.
func (l *Ledger) Reserve(ctx context.Context, db deed.DB, ds ...Delivery) ([]Reserved, error) {
	if err := l.Check(ds...); err != nil {
		return nil, err
	}
	return Reserve(ctx, db, ds...)
}

// ReserveFor is [ReserveFor] after [Ledger.Check].
func (l *Ledger) ReserveFor(ctx context.Context, db deed.DB, owner tenant.ID, ds ...Delivery) ([]Reserved, error) {
	if err := l.Check(ds...); err != nil {
		return nil, err
	}
	return ReserveFor(ctx, db, owner, ds...)
}
