package doctor

import (
	"context"
	"slices"
)

// A check makes findings of one or more names, or none where all is well.
type check struct {
	names []string
	well  []string // what to say of each name when nothing is found
	deed  bool     // reads what only an installed schema has
	run   func(context.Context, *exam) error
}

// checks are made in this order: what the first ones learn of the login, the
// others use.
var checks = []check{
	{
		[]string{"not-examined"},
		[]string{"every check was made"},
		false, func(context.Context, *exam) error { return nil },
	},
	{
		[]string{"login-superuser", "login-grant", "hidden-sessions"},
		[]string{"this login is held by row-level security", "this login holds deed_worker or deed_admin", "this login sees what other sessions do"},
		false, checkLogin,
	},
	{
		[]string{"roles", "superuser-logins"},
		[]string{"deed_app, deed_worker and deed_admin are as they should be", "no login that holds a role of deed goes past row-level security"},
		false, checkRoles,
	},
	{[]string{"schema-version"}, []string{"the schema is the one that this program knows"}, false, checkVersion},
	{[]string{"schema-drift"}, []string{"every object of the schema is as it was installed"}, true, checkDrift},
	{
		[]string{"function-overload", "function-foreign"},
		[]string{"each function of deed exists once", "the schema deed has deed's functions only"},
		true, checkFunctions,
	},
	{[]string{"row-security"}, []string{"row-level security is forced on every table and partition"}, true, checkRowSecurity},
	{[]string{"invalid-index"}, []string{"every index of the schema deed is valid"}, true, checkIndexes},
	{[]string{"partitions-ahead"}, []string{"two partitions or more are ahead"}, true, checkPartitions},
	{[]string{"retention-overdue"}, []string{"no partition of the log has stayed past its retention"}, true, checkRetention},
	{[]string{"log-sequence"}, []string{"deed.log_seq is ahead of everything that was published"}, true, checkSequence},
	{[]string{"cluster-changed"}, []string{"this is the server, and the environment, that the installation belongs to"}, true, checkCluster},
	{[]string{"backfill-unfinished"}, []string{"every subscription has been given what was published before it"}, true, checkBackfills},
	{[]string{"change-unfinished"}, []string{"no change of a stream's lanes or mode is waited for"}, true, checkChanges},
	{[]string{"removal-unfinished"}, []string{"nothing is left of what was removed"}, true, checkRemovals},
	{[]string{"suppression-unreadable"}, []string{"every suppression is of an address"}, true, checkSuppressions},
	{
		[]string{"topic-unread", "dead-letters-old"},
		[]string{"nothing waits in topics that nobody declared", "no dead letter is older than a week"},
		true, checkMessages,
	},
	{[]string{"subscription-unattended"}, []string{"some process works on whatever has been due for long"}, true, checkUnattended},
	{[]string{"call-running"}, []string{"no call of a sink has been running for long"}, true, checkCalls},
	{[]string{"sink-paused"}, []string{"no sink has been unavailable for long"}, true, checkSinkPauses},
	{
		[]string{"provider-paused", "deliveries-elsewhere", "deliveries-deferred", "deliveries-dead"},
		[]string{"no provider has been paused for long", "no delivery waits for another account than its provider has", "no delivery has been put off for more than an hour", "no delivery is dead"},
		true, checkDeliveries,
	},
	{
		[]string{"bounce-rate", "complaint-rate"},
		[]string{"no provider bounces more than 5 % of a day", "at no provider more than 0.1 % of a day is complained about"},
		true, checkRates,
	},
	{
		[]string{"inbound-held", "inbound-failed", "inbound-unattended"},
		[]string{"no inbound message waits for a person", "what failed of inbound messages has been repeated within the hour", "some relay works on inbound messages that have been due for long"},
		true, checkInbound,
	},
	{
		[]string{"projector-gap", "projector-lag"},
		[]string{"no run misses an event", "snapshots of runs are at most five seconds behind"},
		true, checkRuns,
	},
	{[]string{"steps-unserved"}, []string{"every step of a run that has been due for long is some worker's"}, true, checkSteps},
	{[]string{"step-stuck"}, []string{"no end of a step was appended in the way of its engine"}, true, checkStuck},
	{[]string{"plan-integrity"}, []string{"no plan was refused within a day as not what was stored"}, true, checkDamaged},
	{[]string{"run-paused-itself"}, []string{"no run of a campaign has paused itself"}, true, checkPausedRuns},
	{[]string{"campaign-unexpanded"}, []string{"every job of a campaign that has been due for long was expanded"}, true, checkJobs},
	{[]string{"audience-unfinished"}, []string{"no audience of a campaign has been loading for more than a day"}, true, checkAudiences},
	{[]string{"audit-unsealed"}, []string{"what was written to the audit log long ago is sealed, if anything of it is"}, true, checkSeals},
	{[]string{"relay-idle"}, []string{"every relay serves its providers as they are registered"}, true, checkIdle},
	{[]string{"server-version"}, []string{"the server's version is one that deed is tested with"}, false, checkServer},
	{[]string{"recovery"}, []string{"the server takes writes"}, false, checkRecovery},
	{
		[]string{"durability", "setting-hint"},
		[]string{"a commit survives a crash", "no setting calls for a remark"},
		false, checkSettings,
	},
	{[]string{"clock-skew"}, []string{"this process's clock and the database's agree"}, false, checkClock},
	{[]string{"connections"}, []string{"there are connections to spare"}, false, checkConnections},
	{[]string{"autovacuum"}, []string{"autovacuum is on"}, false, checkAutovacuum},
	{[]string{"dead-rows"}, []string{"the tables of deed are vacuumed in time"}, true, checkDeadRows},
	{[]string{"wraparound"}, []string{"no table or database is near the end of its transaction ids"}, false, checkWraparound},
	{
		[]string{"horizon-session", "horizon-prepared", "horizon-slot", "horizon-standby"},
		[]string{
			"no session holds back the horizon for long", "no prepared transaction holds back the horizon for long",
			"no replication slot holds back the horizon for long", "no standby holds back the horizon for long",
		},
		false, checkHorizon,
	},
	{[]string{"late-publisher"}, []string{"no publisher keeps its transaction open for long"}, true, checkPublishers},
	{[]string{"lock-held"}, []string{"nobody keeps one of deed's own locks for long"}, true, checkLocksHeld},
	{[]string{"lock-wait"}, []string{"nobody who uses deed's tables waits long for another"}, true, checkLockWaits},
}

// Names returns the names that a finding can have, sorted. They are stable:
// alerts may be built on them.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.names...)
	}
	slices.Sort(names)
	return names
}

// Count is how many findings there are of a name and a level.
type Count struct {
	Name  string
	Level Level
	N     int
}

// Counts counts the findings: a row for each of [Names] and each level, zeros
// included, so that a gauge made of it goes back when the trouble is over.
func (fs Findings) Counts() []Count {
	type key struct {
		name  string
		level Level
	}
	n := map[key]int{}
	for _, f := range fs {
		n[key{f.Name, f.Level}]++
	}
	var counts []Count
	for _, name := range Names() {
		for _, level := range []Level{OK, Warn, Fail} {
			counts = append(counts, Count{name, level, n[key{name, level}]})
		}
	}
	return counts
}
