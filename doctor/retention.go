package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// retentionGrace is for how many seconds a partition may be overdue: relays
// take their steps every few minutes.
const retentionGrace = 24 * 60 * 60

func checkRetention(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Retention, []any{retentionGrace}, func(row pgx.Rows) error {
		var n int
		var state string
		var overdue float64
		var bytes int64
		var keptBy []string
		if err := row.Scan(&n, &state, &overdue, &bytes, &keptBy); err != nil {
			return err
		}
		const name = "retention-overdue"
		subject := fmt.Sprintf("deed.log_p%d", n)
		switch {
		case len(keptBy) > 0:
			e.addf(Warn, name, subject, "run a relay for what is named; if nobody is to read it any more: deed subscription remove; deed retention shows all partitions",
				"%.1f MB of the log should have gone %s ago and are kept: %s", float64(bytes)/1e6, ago(overdue), strings.Join(keptBy, "; "))
		case state == "empty":
			e.addf(Warn, name, subject, "deed retention run, as the schema's owner; or end the long transactions that use the log (horizon-session, late-publisher)",
				"the partition is empty, and since %s no moment was found to drop its table: some transaction always uses the log, or something of yours stands on it (a relay's log says what: \"retention failed\")", ago(overdue))
		default:
			e.addf(Warn, name, subject, "start a relay, or: deed retention run; if one runs, its log says why not (\"retention failed\")",
				"%.1f MB of the log should have gone %s ago, and nothing keeps them", float64(bytes)/1e6, ago(overdue))
		}
		return nil
	})
}
