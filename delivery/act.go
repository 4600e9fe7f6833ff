package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
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
	var ended bool
	var was, status Status
	var provider string
	w := row{id: id}
	err := l.pool.QueryRow(ctx, query.Prove, id, messageID, actor).
		Scan(&ended, &was, &status, &w.tenant, &provider, &w.channel, &w.attempts, &w.correlationID, &w.channelMsgID)
	if err == nil && was != "" {
		log := about(l.opts.Logger.With("provider", provider), &w).With("from", was, "to", status, "attempts", w.attempts)
		if ended {
			log.Info("delivered: the provider said so")
		} else {
			log.Warn("the provider said that it had accepted a delivery that had ended otherwise; it stays as it was")
		}
	}
	return ended, deed.WrapError("prove delivery", err)
}

// Suppression is an address that is not written to.
type Suppression struct {
	Tenant    string    `json:"tenant"`
	Channel   Channel   `json:"channel"`
	Address   string    `json:"address"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	CreatedAt time.Time `json:"created_at"`
}

// Suppress ends writing to addresses over a channel, and returns how many were
// new. It holds from the next attempt on, for what is reserved too. owner nil:
// the tenant that db has set. Errors: [deed.Invalid], also unless act says who and
// why; [deed.Forbidden].
func Suppress(ctx context.Context, db deed.DB, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	return suppress(ctx, db, "suppress", query.Suppress, owner, channel, addresses, act)
}

// Unsuppress allows writing to addresses again, and returns how many were
// suppressed. What was skipped stays skipped.
func Unsuppress(ctx context.Context, db deed.DB, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	return suppress(ctx, db, "unsuppress", query.Unsuppress, owner, channel, addresses, act)
}

func suppress(ctx context.Context, db deed.DB, op, statement string, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	var id any
	if owner != nil {
		id = owner.String()
	}
	rows, err := db.Query(ctx, statement, string(channel), nonNil(addresses), act.Reason, act.By, id)
	if err != nil {
		return 0, deed.WrapError(op, err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	return n, deed.WrapError(op, err)
}

// Suppressions lists what db may see of them, newest first. owner nil, channel
// and address empty: all.
func Suppressions(ctx context.Context, db deed.DB, owner *tenant.ID, channel Channel, address string, limit int) ([]Suppression, error) {
	if channel != "" && !slices.Contains([]Channel{Email, SMS, Voice, Social, Chat, Webhook}, channel) {
		return nil, invalidf("suppressions", "there is no channel %q: it is email, sms, voice, social, chat or webhook", channel)
	}
	if err := checkCount("suppressions", "limit", limit, 1); err != nil {
		return nil, err
	}
	var id any
	if owner != nil {
		id = owner.String()
	}
	rows, err := db.Query(ctx, query.Suppressions, id, sqlvalue.NullIfZero(string(channel)), sqlvalue.NullIfZero(address), limit)
	if err != nil {
		return nil, deed.WrapError("suppressions", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Suppression])
	return list, deed.WrapError("suppressions", err)
}
