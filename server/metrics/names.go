package metrics

import "github.com/prometheus/client_golang/prometheus"

var perSubscription = []string{"topic", "subscription"}

// What this process did since it started.
var (
	claimed = prometheus.NewDesc("deed_process_claimed_total",
		"Messages claimed.", perSubscription, nil)
	attempts = prometheus.NewDesc("deed_process_attempts_total",
		"Messages handed to the sink.", perSubscription, nil)
	delivered = prometheus.NewDesc("deed_process_delivered_total",
		"Messages recorded as delivered.", perSubscription, nil)
	failed = prometheus.NewDesc("deed_process_failed_total",
		"Attempts that failed and are retried.", perSubscription, nil)
	died = prometheus.NewDesc("deed_process_dead_total",
		"Messages that ended dead.", perSubscription, nil)
	takenOver = prometheus.NewDesc("deed_process_taken_over_total",
		"Claims of other workers that had run out and were taken over.", perSubscription, nil)
	lostClaims = prometheus.NewDesc("deed_process_lost_claims_total",
		"Claims of this process that others took over.", perSubscription, nil)
	staleFinishes = prometheus.NewDesc("deed_process_stale_finishes_total",
		"Finishes that were refused because the claim had gone to another worker.", perSubscription, nil)
	inFlight = prometheus.NewDesc("deed_process_in_flight",
		"Messages in the sink's hands now.", perSubscription, nil)
	sinkDown = prometheus.NewDesc("deed_process_sink_down",
		"1 while the sink is unavailable and the subscription pauses, else 0.", perSubscription, nil)
	processHeld = prometheus.NewDesc("deed_process_held",
		"1 while the process holds on a new cluster or in another environment and claims nothing, else 0.", nil, nil)
	exchange = prometheus.NewDesc("deed_process_exchange_seconds",
		"Round trips to the database that claimed, recorded outcomes, or did both.", append(perSubscription, "op"), nil)
	deliver = prometheus.NewDesc("deed_process_deliver_seconds",
		"Calls of the sink.", perSubscription, nil)
	runEvents = prometheus.NewDesc("deed_process_run_events_projected_total",
		"Events of runs that were projected here.", nil, nil)
	runSnapshots = prometheus.NewDesc("deed_process_run_snapshots_total",
		"Snapshots of runs that were stored from here.", nil, nil)
	runGaps = prometheus.NewDesc("deed_process_run_gaps_total",
		"PROJECTOR_GAP_DETECTED, PROJECTOR_RUN_HALTED: runs of which an event was found missing here, or that could not be projected.", nil, nil)
	runSteps = prometheus.NewDesc("deed_process_run_steps_total",
		"What became of steps of runs here: completed, failed, skipped, released (given back), lost (to another), expired (not recorded while the lease lasted).",
		[]string{"outcome"}, nil)
	runJournal = prometheus.NewDesc("deed_process_run_journal_total",
		"Announcements that the database did not take within the budget: written to the journal, told from it; and error: times that it could not be used, and lines of it that were broken.",
		[]string{"outcome"}, nil)
	inboundCount = prometheus.NewDesc("deed_process_inbound_total",
		"What came of platforms' requests (unverified, invalid, ignored, failed, busy) and of their messages (new, repeat, executed, denied, dispatch_failed, held, late, unreadable; status of what became of messages that went out).",
		[]string{"source", "outcome"}, nil)
	eventCount = prometheus.NewDesc("deed_process_events_total",
		"What came of requests by which providers' services say what became of messages (unverified, invalid, failed, busy), and of their events (matched, waiting, strange, settled, ignored, unreadable).",
		[]string{"provider", "outcome"}, nil)
)

// The installation's state, as of deed_refresh_age_seconds ago.
var (
	messages = prometheus.NewDesc("deed_messages",
		"Unfinished messages: pending (of these: due, claimed under a live lease, or parked behind another of their key) and dead.", append(perSubscription, "state"), nil)
	published = prometheus.NewDesc("deed_messages_published",
		"Messages that the subscription has been given; absent while there are more than are counted.", perSubscription, nil)
	finished = prometheus.NewDesc("deed_messages_delivered",
		"Messages delivered, also those that retention has forgotten since.", perSubscription, nil)
	oldestDue = prometheus.NewDesc("deed_oldest_due_seconds",
		"How long the oldest due message has been due; 0 if none is.", perSubscription, nil)
	streamLag = prometheus.NewDesc("deed_stream_lag",
		"Messages that a stream has still to read, counted up to 10,000.", perSubscription, nil)
	blockedKeys = prometheus.NewDesc("deed_blocked_keys",
		"Keys of a stream that wait for one of their messages.", perSubscription, nil)
	lanes = prometheus.NewDesc("deed_lanes",
		"Lanes of a stream.", perSubscription, nil)
	lanesHeld = prometheus.NewDesc("deed_lanes_held",
		"Lanes of a stream that some process holds under a live lease.", perSubscription, nil)
	oldestCall = prometheus.NewDesc("deed_oldest_call_seconds",
		"How long the oldest call of the sink has been running; 0 if none has for 10 seconds.", perSubscription, nil)
	sinkPaused = prometheus.NewDesc("deed_sink_paused_seconds",
		"For how long the sink has been unavailable to some process, which pauses; 0 if it is to none.", perSubscription, nil)
	deliveries = prometheus.NewDesc("deed_deliveries",
		"Deliveries: queued (of these: due, or deferred, which were put off for now), sending (of these: in_doubt, or held for a person), and dead.", []string{"provider", "state"}, nil)
	providerTaken = prometheus.NewDesc("deed_provider_messages",
		"What the provider took in the last hour or day (window): accepted, and of these delivered, bounced and complained of by now; of each hour at most 2,000 are looked at.",
		[]string{"provider", "window", "state"}, nil)
	providerPauses = prometheus.NewDesc("deed_provider_pauses",
		"1 if the provider is paused, and 1 for each of its destinations that is, for each tenant.", []string{"provider"}, nil)
	providerPaused = prometheus.NewDesc("deed_provider_paused_seconds",
		"For how long the provider, or one of its destinations, has been paused; 0 if none is.", []string{"provider"}, nil)
	providerDeferred = prometheus.NewDesc("deed_provider_deferred_seconds",
		"How long ago the first of the deliveries that are deferred was put off first; 0 if none is.", []string{"provider"}, nil)
	unservedSteps = prometheus.NewDesc("deed_unserved_steps",
		"Steps of runs that are due and that no worker serves, counted up to 10,000 a queue: of a version of a function that no program has, say.", []string{"queue"}, nil)
	logPosition = prometheus.NewDesc("deed_log_position",
		"The newest number of the log, rolled back ones included.", nil, nil)
	partitionsAhead = prometheus.NewDesc("deed_partitions_ahead",
		"Partitions ahead of the one in use, of the log or of the logs of runs, of which fewer are.", nil, nil)
	oldestPartition = prometheus.NewDesc("deed_oldest_partition_seconds",
		"Since when the oldest partition of the log that has its content is closed; 0 if there is none.", nil, nil)
	horizonAge = prometheus.NewDesc("deed_horizon_age_seconds",
		"Age of the oldest transaction of the PostgreSQL cluster; it keeps dead rows from being removed.", nil, nil)
	doctorFindings = prometheus.NewDesc("deed_doctor_findings",
		"Findings of deed doctor, looked for once a minute.", []string{"name", "level"}, nil)
	refreshAge = prometheus.NewDesc("deed_refresh_age_seconds",
		"How old the installation's figures are; where none were read yet, for how long they have been waited for.", nil, nil)
	refreshFailures = prometheus.NewDesc("deed_refresh_failures_total",
		"Questions to the database for these figures that failed.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (m *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		claimed, attempts, delivered, failed, died, takenOver, lostClaims, staleFinishes, inFlight, sinkDown, processHeld,
		exchange, deliver, runEvents, runSnapshots, runGaps, runSteps, runJournal, inboundCount, eventCount, messages, published, finished, oldestDue, oldestCall, sinkPaused, streamLag, blockedKeys, lanes, lanesHeld, logPosition,
		partitionsAhead, oldestPartition, horizonAge, deliveries, providerTaken, providerPauses, providerPaused, providerDeferred, doctorFindings, refreshAge, refreshFailures, unservedSteps,
	} {
		out <- d
	}
}
