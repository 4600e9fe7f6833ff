package delivery

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// mostUnknown is how many calls of a destination in a row may end without
// anybody knowing how, in one process, before it is paused: each leaves a
// delivery in doubt.
const mostUnknown = 5

// mostHold bounds for how long a process leaves a destination alone by itself.
const mostHold = 250 * time.Millisecond

// dest is the destination that a call to the row goes to.
func (s *source) dest(w *row) destination {
	if s.caps.PerDomain && w.lane != "" {
		return destination{w.lane, w.tenant}
	}
	return destination{}
}

// judge says of a call what its outcome means for its destination, and for the
// delivery in deed.settle's words.
func (s *source) judge(it *item) {
	dest := s.dest(&it.row)
	unknown := s.watch.count(dest, it.out.kind == kindUnknown)
	it.failed = it.out.kind == kindOutage || it.out.kind == kindUnknown
	it.pauses = it.out.kind == kindOutage || unknown >= mostUnknown
	if it.pauses {
		o := s.ledger.opts
		s.watch.hold(dest, min(mostHold, time.Duration(float64(o.BaseRetry)*o.JitterMin)))
	}
	switch it.out.kind {
	case kindAccepted:
		it.kind = "accepted"
	case kindRefused:
		it.kind = "refused"
	case kindBadAddress:
		it.kind = "bad_address"
	case kindOptedOut:
		it.kind = "opted_out"
	case kindLater:
		it.kind = "later"
	case kindDeferred:
		it.kind = "deferred"
	case kindOutage:
		it.kind = "outage"
		if dest.name != "" {
			it.kind = "unreachable"
		}
	default:
		it.kind = "unknown"
	}
}

// queuePauses pauses what failed, before the outcomes are settled: a probe that
// failed does not end its pause.
func (s *source) queuePauses(batch *pgx.Batch, items []*item) {
	var ids, names, errs []string
	var dests []destination
	var claims []int64
	var after []*float64
	var opens []bool
	for _, it := range items {
		if !it.failed {
			continue
		}
		var asked *float64
		if it.out.after > 0 {
			v := it.out.after.Seconds()
			asked = &v
		}
		dest := s.dest(&it.row)
		ids, claims, names, dests = append(ids, it.id), append(claims, it.claim), append(names, dest.name), append(dests, dest)
		errs, after, opens = append(errs, clip(it.withoutRecipient(it.out.Err().Error()))), append(after, asked), append(opens, it.pauses)
	}
	if len(ids) == 0 {
		return
	}
	o := s.ledger.opts
	batch.Queue(query.Pause, s.name, ids, claims, names, errs, after, opens, o.BaseRetry.Seconds(), []float64{o.JitterMin, o.JitterMax}).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var dest destination
			var since, until time.Time
			var failures int
			if err := rows.Scan(&dest.name, &dest.tenant, &since, &until, &failures); err != nil {
				return err
			}
			why := errs[slices.Index(dests, dest)]
			if failures == 1 {
				dest.about(s.log).Warn("paused: deed providers list shows it until it is over", "until", until, "error", why)
			} else {
				dest.about(s.log).Info("still paused: a probe failed", "since", since, "until", until, "probes", failures-1, "error", why)
			}
		}
		return rows.Err()
	})
}
