package doctor

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	unreadAfter  = time.Hour
	deadOldAfter = 7 * 24 * time.Hour
)

// checkUnattended names the subscriptions that nobody works on.
func checkUnattended(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Unattended, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var subscription, due string
		var seconds float64
		if err := row.Scan(&subscription, &due, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "subscription-unattended", subscription,
			"run a relay whose deed.yaml has a sink for it, or the service that works it; if nobody wants it any more: deed subscription remove",
			"%s, the first for %s, and no process works on them", dueMessages(due), ago(seconds))
		return nil
	})
}

// dueMessages says how many messages are due, as status counts them.
func dueMessages(n string) string {
	if n == "1" {
		return "1 message is due"
	}
	return n + " messages are due"
}

// checkMessages names topics whose messages nobody takes, and dead letters that
// nobody has decided about.
func checkMessages(ctx context.Context, e *exam) error {
	err := e.query(ctx, query.Unread, []any{unreadAfter.Seconds()}, func(row pgx.Rows) error {
		var topic string
		var n int64
		var seconds float64
		if err := row.Scan(&topic, &n, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "topic-unread", topic,
			"declare it in deed.yaml with a sink and run a relay; if nobody wants them it can be removed then: deed topic remove "+topic,
			"nobody declared it, and %d messages or more wait, the first for %s", n, ago(seconds))
		return nil
	})
	if err != nil {
		return err
	}
	return e.query(ctx, query.OldDead, []any{deadOldAfter.Seconds()}, func(row pgx.Rows) error {
		var subscription string
		var n int64
		var seconds float64
		if err := row.Scan(&subscription, &n, &seconds); err != nil {
			return err
		}
		e.addf(Warn, "dead-letters-old", subscription,
			"deed dead list says why; deed dead redrive tries them again, deed dead discard gives them up",
			"%d dead letters wait for a decision, one for %s; they are kept until then, and of a stream in order their keys wait", n, ago(seconds))
		return nil
	})
}
