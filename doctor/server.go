package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// The major versions of PostgreSQL that deed is tested with.
const oldestServer, newestServer = 15, 18

func checkServer(ctx context.Context, e *exam) error {
	var number int
	if err := e.queryRow(ctx, query.Version, nil, &number); err != nil {
		return err
	}
	subject := fmt.Sprintf("PostgreSQL %d.%d", number/10000, number%10000)
	switch major := number / 10000; {
	case major < oldestServer:
		e.addf(Fail, "server-version", subject, "upgrade the server", "deed needs PostgreSQL %d or newer", oldestServer)
	case major > newestServer:
		e.addf(Warn, "server-version", subject, "upgrade deed, or try it on a copy first", "deed was tested with PostgreSQL %d to %d, and not with this one", oldestServer, newestServer)
	default:
		e.addf(OK, "server-version", subject, "", "deed is tested with PostgreSQL %d to %d", oldestServer, newestServer)
	}
	return nil
}

func checkRecovery(ctx context.Context, e *exam) error {
	var recovering bool
	if err := e.queryRow(ctx, query.Recovery, nil, &recovering); err != nil {
		return err
	}
	if recovering {
		e.addf(Fail, "recovery", "server", "connect to the primary, or promote this server: select pg_promote();",
			"the server is a standby or still recovering: nothing can be published or claimed here")
	}
	return nil
}

func checkSettings(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Settings, nil, func(row pgx.Rows) error {
		var name, value string
		if err := row.Scan(&name, &value); err != nil {
			return err
		}
		switch {
		case name == "fsync" && value == "off":
			e.addf(Warn, "durability", name, "alter system set fsync = on; select pg_reload_conf();",
				"fsync is off: a crash of the machine may destroy the database")
		case name == "full_page_writes" && value == "off":
			e.addf(Warn, "durability", name, "alter system set full_page_writes = on; select pg_reload_conf();",
				"full_page_writes is off: a crash of the machine may leave torn pages behind")
		case name == "synchronous_commit" && value == "off":
			e.addf(Warn, "durability", name, "set it to on for publishers: alter role <login> set synchronous_commit = on;",
				"synchronous_commit is off: a crash may take back what was published last, with the transaction that published it")
		case name == "idle_in_transaction_session_timeout" && value == "0":
			e.addf(OK, "setting-hint", name, "alter role <login> set idle_in_transaction_session_timeout = '5min'; -- for applications",
				"no limit ends forgotten transactions, which hold back vacuum and their own messages")
		case name == "max_prepared_transactions" && value != "0":
			e.addf(OK, "setting-hint", name, "set it to 0 unless a transaction manager needs them",
				"prepared transactions are allowed (%s): one that nobody ends holds back vacuum for ever", value)
		}
		return nil
	})
}

// checkClock takes the middle of the exchange for the moment at which the
// database looked at its clock; half the exchange is how wrong that may be.
func checkClock(ctx context.Context, e *exam) error {
	var there time.Time
	asked := time.Now()
	if err := e.queryRow(ctx, query.Clock, nil, &there); err != nil {
		return err
	}
	half := time.Since(asked) / 2
	skew := there.Sub(asked.Add(half))
	level, remedy := OK, ""
	if skew.Abs()-half > e.opts.ClockSkew {
		level, remedy = Warn, "set the clocks by NTP; deed's decisions use the database's alone, people who compare logs use both"
	}
	way := "ahead of"
	if skew < 0 {
		way = "behind"
	}
	e.addf(level, "clock-skew", "clock", remedy, "the database's clock is %s %s this process's (give or take %s)",
		skew.Abs().Round(time.Millisecond), way, max(half.Round(time.Millisecond), time.Millisecond))
	return nil
}

func checkConnections(ctx context.Context, e *exam) error {
	var most, reserved, used int
	var here *string
	if err := e.queryRow(ctx, query.Connections, nil, &most, &reserved, &used, &here); err != nil {
		return err
	}
	level, remedy := OK, ""
	if open := most - reserved; used*10 >= open*8 {
		level, remedy = Warn, "give applications smaller pools or a pooler in transaction mode, or raise max_connections"
	}
	e.addf(level, "connections", "max_connections", remedy, "%d of %d connections are used, of which %d are kept for superusers; in this database: %s",
		used, most, reserved, value(here))
	return nil
}

func value(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

func checkAutovacuum(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Autovacuum, nil, func(row pgx.Rows) error {
		var kind, name string
		if err := row.Scan(&kind, &name); err != nil {
			return err
		}
		if kind == "setting" {
			e.addf(Warn, "autovacuum", name, fmt.Sprintf("alter system set %s = on; select pg_reload_conf();", name),
				"%s is off: tables grow without end and claims get slower", name)
			return nil
		}
		e.addf(Warn, "autovacuum", "deed."+name, fmt.Sprintf("alter table deed.%s reset (autovacuum_enabled);", name),
			"autovacuum is off for deed.%s: it grows without end", name)
		return nil
	})
}

func checkDeadRows(ctx context.Context, e *exam) error {
	return e.query(ctx, query.DeadRows, []any{e.opts.DeadRows, e.opts.Long.Seconds()}, func(row pgx.Rows) error {
		var table string
		var live, dead int64
		var vacuumed bool
		var age float64
		if err := row.Scan(&table, &live, &dead, &vacuumed, &age); err != nil {
			return err
		}
		last := fmt.Sprintf("it was vacuumed %s ago", ago(age))
		if !vacuumed {
			last = fmt.Sprintf("it was never vacuumed in the %s since the schema was installed", ago(age))
		}
		e.addf(Warn, "dead-rows", "deed."+table, fmt.Sprintf("see who holds back the horizon (horizon-…), then: vacuum deed.%s;", table),
			"deed.%s has %d dead rows beside %d live ones; %s", table, dead, live, last)
		return nil
	})
}

// lastXIDs is where the server is near the point at which it takes no writes.
const lastXIDs = 1_500_000_000

func checkWraparound(ctx context.Context, e *exam) error {
	return e.query(ctx, query.Wraparound, nil, func(row pgx.Rows) error {
		var subject string
		var age int64
		if err := row.Scan(&subject, &age); err != nil {
			return err
		}
		level := Warn
		if age > lastXIDs {
			level = Fail
		}
		e.addf(level, "wraparound", subject, "end what holds back the horizon (horizon-…), then: vacuum (freeze) the oldest tables",
			"it holds transaction ids that are %d old; at about 2,100,000,000 the server takes no more writes", age)
		return nil
	})
}

// ago is a number of seconds, for people.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
