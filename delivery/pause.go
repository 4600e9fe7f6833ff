package delivery

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/errortext"
)

// mostUnknown is how many calls of a destination in a row may end without
// anybody knowing how, in one process, before it is paused: each leaves a
// delivery in doubt.
const mostUnknown = 5

// mostHold bounds for how long a process leaves a destination alone by itself.
const mostHold = 250 * time.Millisecond

// dest is the destination that a call to the row goes to.
func (s *source) dest(w *row) destination {
	if s.caps.Lanes == LanePerHost {
		return laneOf(w)
	}
	return destination{}
}

// laneOf is a row's lane as a destination; the provider, if it has none.
func laneOf(w *row) destination {
	if w.lane == "" {
		return destination{}
	}
	return destination{w.lane, w.tenant}
}

// failing is the destination that an outcome says something of.
func (s *source) failing(it *item) destination {
	if it.out.ofLane {
		return laneOf(&it.row)
	}
	return s.dest(&it.row)
}

// holds reports whether the row's provider or its lane has failed just now.
func (s *source) holds(w *row) bool {
	return s.watch.holds(destination{}) || s.watch.holds(laneOf(w))
}

// withoutLane makes of a lane's outage a refusal of this delivery for now, where the
// provider has lanes and the delivery has not come into one: what a chat says of itself
// is not said of all.
func (s *source) withoutLane(it *item) {
	if it.out.ofLane && it.row.lane == "" && s.caps.Lanes != OneLane {
		it.out.kind, it.out.ofLane = kindDeferred, false
	}
}

// judge says of a call what its outcome means for its destination, and for the
// delivery in deed.settle's words.
func (s *source) judge(it *item) {
	s.withoutLane(it)
	unknown := it.out.unanswered()
	s.judgeCall(it, unknown || it.out.kind == kindOutage, unknown)
	it.kind = it.out.settles(s.failing(it))
}

// judgeCall says of a call, which is told of with one delivery, what it means for
// its destination.
func (s *source) judgeCall(it *item, failed, unknown bool) {
	inARow := s.watch.count(s.dest(&it.row), unknown)
	it.failed = failed
	it.pauses = failed && !unknown || inARow >= mostUnknown
	if it.pauses {
		o := s.ledger.opts
		long := min(mostHold, time.Duration(float64(o.BaseRetry)*o.JitterMin))
		if it.out.renewed.text != "" {
			long = mostHold // a quota is not there again after a retry's delay
		}
		s.watch.hold(s.failing(it), long)
	}
}

// settles is an outcome at a destination in deed.settle's words.
func (o Outcome) settles(dest destination) string {
	switch o.kind {
	case kindAccepted:
		return "accepted"
	case kindRefused:
		return "refused"
	case kindBadAddress:
		return "bad_address"
	case kindOptedOut:
		return "opted_out"
	case kindLater:
		return "later"
	case kindDeferred:
		return "deferred"
	case kindOutage:
		if dest.name != "" {
			return "unreachable"
		}
		return "outage"
	}
	if o.answers {
		return "in_use"
	}
	return "unknown"
}

// queuePauses pauses what failed, before the outcomes are settled: a probe that
// failed does not end its pause.
func (s *source) queuePauses(batch *pgx.Batch, items []*item) {
	var ids, names, errs, stored []string // errs for the log, where addresses of the network may stand
	var dests []destination
	var claims []int64
	var after []*float64
	var quotas []*string
	var opens []bool
	o := s.ledger.opts
	for _, it := range items {
		if !it.failed {
			continue
		}
		var asked *float64
		if it.out.after > 0 {
			v := it.out.after.Seconds()
			asked = &v
		}
		// What was answered long ago, as the database could not be told, is no longer so:
		// of a quota a probe finds out.
		var renewed *string
		if it.out.renewed.text != "" && (it.made == nil || since(it.made.at) < o.Lease) {
			renewed = &it.out.renewed.text
		}
		dest := s.failing(it)
		ids, claims, names, dests = append(ids, it.id), append(claims, it.claim), append(names, dest.name), append(dests, dest)
		after, opens, quotas = append(after, asked), append(opens, it.pauses), append(quotas, renewed)
		why := it.withoutRecipient(it.out.Err().Error())
		errs, stored = append(errs, clip(why)), append(stored, errortext.Stored(why, maxError, it.lane))
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(query.Pause, s.name, ids, claims, names, stored, after, opens, o.BaseRetry.Seconds(), []float64{o.JitterMin, o.JitterMax}, quotas).Query(func(rows pgx.Rows) error {
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
				dest.about(s.log).Info("still paused", "since", since, "until", until, "probes", failures-1, "error", why)
			}
		}
		return rows.Err()
	})
}
