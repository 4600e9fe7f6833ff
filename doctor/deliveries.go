package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// named is a type of provider with its account.
func named(kind, account string) string {
	if account == "" {
		return kind
	}
	return kind + " " + account
}

// checkIdle names the providers that a relay serves otherwise than they are
// registered, and so calls nobody for.
func checkIdle(ctx context.Context, e *exam) error {
	return e.query(ctx, query.IdleRelays, nil, func(row pgx.Rows) error {
		var provider, kind, account, worker, idleKind, idleAccount string
		var sandbox, idleSandbox bool
		if err := row.Scan(&provider, &kind, &account, &sandbox, &worker, &idleKind, &idleAccount, &idleSandbox); err != nil {
			return err
		}
		e.addf(Warn, "relay-idle", provider,
			"give all who serve or register it the same type, account and sandbox in deed.yaml, and start that relay again, or the one that is to serve it",
			"is registered as %s, sandbox %t; the relay %s serves it as %s, sandbox %t, and calls nobody for it",
			named(kind, account), sandbox, worker, named(idleKind, idleAccount), idleSandbox)
		return nil
	})
}

// checkDeliveries names the providers that have been paused for long, those that
// are served otherwise than deliveries of theirs wait for, and those with dead
// deliveries, or with some that have been put off for long.
func checkDeliveries(ctx context.Context, e *exam) error {
	err := e.query(ctx, query.Pauses, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var provider, destination, why string
		var seconds float64
		var waiting, tenants int64
		var until time.Time
		var rests bool
		if err := row.Scan(&provider, &destination, &why, &seconds, &waiting, &tenants, &until, &rests); err != nil {
			return err
		}
		whose := ""
		if destination != "" {
			whose = fmt.Sprintf(" for %d tenants", tenants)
		}
		next := ""
		if rests { // longer than a probe that failed asks for: the provider has said so
			next = ", and nobody is called before " + until.UTC().Format("2006-01-02 15:04 MST")
		}
		e.addf(Warn, "provider-paused", strings.TrimSpace(provider+" "+destination),
			"mend what it says, such as credentials or a quota; deliveries go on by themselves when it is over, or at once: deed providers resume "+provider+" --reason TEXT",
			"has been paused%s for %s%s, and %d deliveries of the provider wait: %s", whose, ago(seconds), next, waiting, why)
		return nil
	})
	if err != nil {
		return err
	}
	err = e.query(ctx, query.ForeignDeliveries, nil, func(row pgx.Rows) error {
		var provider, kind, account, wasKind, wasAccount string
		var n int64
		if err := row.Scan(&provider, &kind, &account, &n, &wasKind, &wasAccount); err != nil {
			return err
		}
		e.addf(Warn, "deliveries-elsewhere", provider,
			"serve the provider again as it was until they have ended; or if it is the same account under another name, say so with account: in deed.yaml; those in doubt: deed deliveries settle",
			"is served as %s, and %d deliveries or more that were first called as %s wait for that", named(kind, account), n, named(wasKind, wasAccount))
		return nil
	})
	if err != nil {
		return err
	}
	err = e.query(ctx, query.DeferredDeliveries, nil, func(row pgx.Rows) error {
		var provider, last string
		var n int64
		var seconds float64
		if err := row.Scan(&provider, &n, &seconds, &last); err != nil {
			return err
		}
		e.addf(Warn, "deliveries-deferred", provider,
			"deed deliveries list --status queued --provider "+provider+" names them; they go on by themselves, and are dead when that has lasted for a day: see to it before, if what it says is about you",
			"has %d deliveries that have been put off for more than an hour, the first for %s: %s", n, ago(seconds), last)
		return nil
	})
	if err != nil {
		return err
	}
	return e.query(ctx, query.DeadDeliveries, nil, func(row pgx.Rows) error {
		var provider, last string
		var n int64
		if err := row.Scan(&provider, &last, &n); err != nil {
			return err
		}
		e.addf(Warn, "deliveries-dead", provider,
			"deed deliveries list --status dead --provider "+provider+" says why; deed deliveries retry puts them back",
			"has %d dead deliveries; the newest: %s", n, last)
		return nil
	})
}

// checkRates names the providers of which too much bounces or is complained about.
func checkRates(ctx context.Context, e *exam) error {
	return e.query(ctx, query.BadRates, nil, func(row pgx.Rows) error {
		var provider string
		var accepted, bounced, complained int64
		var bounces, complaints bool
		if err := row.Scan(&provider, &accepted, &bounced, &complained, &bounces, &complaints); err != nil {
			return err
		}
		const of = "of %d messages that it took in the last day, or of a part of them, %d %s (%.2g %%)"
		if bounces {
			e.addf(Warn, "bounce-rate", provider,
				"deed providers show "+provider+" says at which domains; write only to addresses that have been confirmed, or the service stops the account",
				of, accepted, bounced, "bounced", 100*float64(bounced)/float64(accepted))
		}
		if complaints {
			e.addf(Warn, "complaint-rate", provider,
				"deed providers show "+provider+" says at which domains; write only to those who asked for it, and let them unsubscribe, or the service stops the account",
				of, accepted, complained, "were complained about", 100*float64(complained)/float64(accepted))
		}
		return nil
	})
}
