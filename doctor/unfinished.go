package doctor

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

func checkBackfills(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Backfills, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var subscription, waits string
		var age float64
		var scanned, ends bool
		if err := row.Scan(&subscription, &age, &scanned, &waits, &ends); err != nil {
			return err
		}
		const name = "backfill-unfinished"
		switch {
		case ends:
			e.addf(Warn, name, subscription, "run a relay that drains the topic's other subscriptions; change-unfinished says for which of them that is waited",
				"the subscription was made %s ago, of a stream that is being made a queue; it begins when that is done", ago(age))
		case scanned && waits != "":
			e.addf(Warn, name, subscription, "end those transactions: select pg_terminate_backend(<pid>); or rollback prepared …",
				"its backfill began %s ago; before it can have all that was published before it, these must end: %s", ago(age), waits)
		default:
			e.addf(Warn, name, subscription, "run a relay that drains it, or call deed.backfill until it says finished",
				"its backfill began %s ago and has not brought all that was published before it; no relay seems to work on it, or it has still much to bring", ago(age))
		}
		return nil
	})
}

func checkChanges(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Changes, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var subscription, what, topic string
		var age float64
		var lanes, held int
		if err := row.Scan(&subscription, &age, &what, &topic, &lanes, &held); err != nil {
			return err
		}
		const name = "change-unfinished"
		asked := fmt.Sprintf("%s ago it was asked to make it %s", ago(age), what)
		if what == "a queue" {
			asked += fmt.Sprintf(" (deed topic set %s --mode stream calls that off)", topic)
		}
		switch {
		case lanes > held:
			e.addf(Warn, name, subscription, "run a relay that drains it, or the service that works it",
				"%s; %d of its lanes have not stopped where they change, and nobody has %d of these in hand", asked, lanes, lanes-held)
		case lanes > 0:
			e.addf(Warn, name, subscription, "see what their calls wait for (call-running); a relay or service that is older than deed's release with such changes has to be brought up to date",
				"%s; %d of its lanes have not stopped where they change, and a worker has each in hand", asked, lanes)
		default:
			e.addf(Warn, name, subscription, "run a relay that drains the topic's subscriptions; and end whoever keeps a lock (lock-held, horizon-session)",
				"%s; all of its lanes have stopped, and what comes next is not done: no relay works on it, another subscription of the topic is waited for, or somebody keeps a row locked", asked)
		}
		return nil
	})
}

func checkRemovals(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Removals, []any{e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var removed, waits string
		var isTenant bool
		var age float64
		if err := row.Scan(&removed, &isTenant, &age, &waits); err != nil {
			return err
		}
		const name = "removal-unfinished"
		if waits != "" {
			e.addf(Warn, name, removed, "end those transactions: select pg_terminate_backend(<pid>); or rollback prepared …",
				"it was removed %s ago; what may still be published to it is only known when these have ended: %s", ago(age), waits)
			return nil
		}
		if isTenant {
			e.addf(Warn, name, removed, "start a relay", "it was removed %s ago, and its rows are not all taken away; no relay seems to work on it", ago(age))
			return nil
		}
		e.addf(Warn, name, removed, "start a relay, or give the command again that removed it",
			"it was removed %s ago, and what waited for it is not all taken away; no relay seems to work on it", ago(age))
		return nil
	})
}
