package delivery

import (
	"context"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Decision is what a person knows or wants of a delivery in doubt.
type Decision string

const (
	// WasSent: it has been sent.
	WasSent Decision = "sent"
	// HasFailed: it has not, and shall not be.
	HasFailed Decision = "failed"
	// SendAgain: it is queued again, come what may.
	SendAgain Decision = "send_again"
)

// Settle records a person's decision about a delivery in doubt. messageID is the provider's, for [WasSent], or "". Errors:
// [deed.NotFound], [deed.Conflict] for one that is not in doubt,
// [deed.Invalid] unless act says who and why. Needs deed_admin.
func (l *Ledger) Settle(ctx context.Context, id string, d Decision, messageID string, act audit.Act) (Status, error) {
	if err := checkID("settle delivery", id); err != nil {
		return "", err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var status Status
	err := l.pool.QueryRow(ctx, query.SettleDelivery, id, string(d), act.Reason, act.By, sqlvalue.NullIfZero(messageID)).Scan(&status)
	if err == nil {
		l.opts.Logger.Info("delivery settled by a person", "delivery", id, "from", Sending, "to", status, "actor", act.By)
	}
	return status, deed.WrapError("settle delivery", err)
}

// Retry queues failed and dead deliveries again, with their attempts at 0, and
// says how many; their keys and requests stay as they are. Errors:
// [deed.Conflict] for those of a run, [deed.Invalid] unless act says who and why.
// Needs deed_admin.
func (l *Ledger) Retry(ctx context.Context, ids []string, act audit.Act) (int64, error) {
	for _, id := range ids {
		if err := checkID("retry deliveries", id); err != nil {
			return 0, err
		}
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	var n int64
	err := l.pool.QueryRow(ctx, query.Retry, nonNil(ids), act.Reason, act.By).Scan(&n)
	if err == nil {
		l.opts.Logger.Info("deliveries put back by a person", "count", n, "actor", act.By)
	}
	return n, deed.WrapError("retry deliveries", err)
}

// Prove settles a delivery that is being called or in doubt by proof that the
// provider accepted it, such as a later event that carries its id. It reports
// whether that ended it. Needs deed_worker.
func (l *Ledger) Prove(ctx context.Context, id, messageID, actor string) (bool, error) {
	if err := checkID("prove delivery", id); err != nil {
		return false, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	p := proof{of: row{id: id}}
	w := &p.of
	err := l.pool.QueryRow(ctx, query.Prove, id, messageID, actor).
		Scan(&p.ended, &p.was, &p.is, &w.tenant, &p.provider, &w.channel, &w.attempts, &w.correlationID, &w.channelMsgID)
	if err == nil {
		p.tell(l.opts.Logger)
	}
	return p.ended, deed.WrapError("prove delivery", err)
}
