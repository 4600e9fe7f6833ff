package doctor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// troubles makes for each name the trouble that it is for, and has it found.
var troubles = map[string]func(*testing.T, *scene){
	"not-examined":            notExamined,
	"login-superuser":         loginSuperuser,
	"login-grant":             loginGrant,
	"hidden-sessions":         hiddenSessions,
	"roles":                   roles,
	"superuser-logins":        superuserLogins,
	"schema-version":          schemaVersion,
	"schema-drift":            schemaDrift,
	"function-overload":       functionOverload,
	"function-foreign":        functionForeign,
	"row-security":            rowSecurity,
	"invalid-index":           invalidIndex,
	"partitions-ahead":        partitionsAhead,
	"retention-overdue":       retentionOverdue,
	"log-sequence":            logSequence,
	"cluster-changed":         clusterChanged,
	"backfill-unfinished":     backfillUnfinished,
	"change-unfinished":       changeUnfinished,
	"removal-unfinished":      removalUnfinished,
	"suppression-unreadable":  suppressionUnreadable,
	"call-running":            callRunning,
	"sink-paused":             sinkPaused,
	"subscription-unattended": subscriptionUnattended,
	"topic-unread":            topicUnread,
	"dead-letters-old":        deadLettersOld,
	"provider-paused":         deliveryTroubles,
	"deliveries-dead":         deliveryTroubles,
	"deliveries-deferred":     deliveryTroubles,
	"bounce-rate":             badRates,
	"complaint-rate":          badRates,
	"inbound-held":            inboundTroubles,
	"inbound-unattended":      inboundTroubles,
	"inbound-failed":          inboundTroubles,
	"projector-gap":           runTroubles,
	"projector-lag":           runTroubles,
	"steps-unserved":          unservedSteps,
	"step-stuck":              stuckSteps,
	"plan-integrity":          damagedPlan,
	"run-paused-itself":       pausedRun,
	"campaign-unexpanded":     waitingJobs,
	"audience-unfinished":     unfinishedAudience,
	"audit-unsealed":          unsealedAudit,
	"relay-idle":              deliveryTroubles,
	"deliveries-elsewhere":    deliveryTroubles,
	"server-version":          serverTooNew,
	"recovery":                recovery,
	"durability":              durability,
	"setting-hint":            settingHint,
	"clock-skew":              clockSkew,
	"connections":             connections,
	"autovacuum":              autovacuum,
	"dead-rows":               deadRows,
	"wraparound":              wraparound,
	"horizon-session":         horizonSession,
	"horizon-prepared":        horizonPrepared,
	"horizon-slot":            horizonSlot,
	"horizon-standby":         horizonStandby,
	"late-publisher":          latePublisher,
	"lock-held":               lockHeld,
	"lock-wait":               lockWait,
}

// scene has servers for troubles that concern all of their databases.
type scene struct {
	server *pgtest.Cluster // transactions, slots and logins may be anyhow
	spoilt *pgtest.Cluster // its roles and autovacuum are not as they should be
}

// Every finding is found when, and says what, its trouble is.
func TestFindings(t *testing.T) {
	t.Parallel()
	s := &scene{
		server: pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{
			"wal_level":                 "logical",
			"autovacuum_freeze_max_age": "100000",
			"wal_sender_timeout":        "0",
		}}),
		spoilt: pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{"autovacuum": "off"}}),
	}
	s.makeLogicalSlot(t)
	for _, name := range doctor.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			make, ok := troubles[name]
			if !ok {
				t.Fatal("no test makes this trouble")
			}
			make(t, s)
		})
	}
}

// session opens a connection under an application's name.
func session(t *testing.T, db *pgtest.DB, role pgtest.Role, application string) *pgx.Conn {
	t.Helper()
	conn := db.Conn(t, role)
	do(t, conn, `select set_config('application_name', '`+application+`', false)`)
	return conn
}

func do(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

func notExamined(t *testing.T, _ *scene) {
	findings := examine(t, pgtest.New(t).Pool(pgtest.App), doctor.Options{})
	f := find(t, findings, "not-examined", doctor.Warn, "partitions-ahead")
	says(t, f, "permission denied")
	if want := "grant deed_admin, pg_monitor to deed_test_app;"; f.Remedy != want {
		t.Errorf("the remedy is %q, want %q", f.Remedy, want)
	}
	find(t, findings, "row-security", doctor.OK, "") // the checks after it are made
}

func loginSuperuser(t *testing.T, s *scene) {
	db := s.server.DB(t)
	findings := examine(t, db.Pool(pgtest.Owner), doctor.Options{})
	says(t, find(t, findings, "login-superuser", doctor.Warn, pgembed.Superuser), "superuser")

	db.Exec(t, pgtest.Owner, `create role deed_test_bypass login bypassrls password 'deed_test' in role deed_worker`)
	findings = examine(t, db.Conn(t, "bypass"), doctor.Options{})
	says(t, find(t, findings, "login-superuser", doctor.Warn, "deed_test_bypass"), "BYPASSRLS")
}

func loginGrant(t *testing.T, s *scene) {
	db := s.server.DB(t)
	findings := examine(t, db.Pool(pgtest.App), doctor.Options{})
	says(t, find(t, findings, "login-grant", doctor.Warn, "deed_test_app"), "deed_app alone")

	db.Exec(t, pgtest.Owner, `create role deed_test_nobody login password 'deed_test'`)
	findings = examine(t, db.Conn(t, "nobody"), doctor.Options{})
	f := find(t, findings, "login-grant", doctor.Fail, "deed_test_nobody")
	says(t, f, "holds none")
	if !strings.HasPrefix(f.Remedy, "grant deed_worker to deed_test_nobody;") {
		t.Errorf("the remedy is %q", f.Remedy)
	}

	// From PostgreSQL 16 on the grant decides, before it the role.
	db.Exec(t, pgtest.Owner, `create role deed_test_noinherit login noinherit password 'deed_test' in role deed_worker`)
	findings = examine(t, db.Conn(t, "noinherit"), doctor.Options{})
	says(t, find(t, findings, "login-grant", doctor.Fail, "deed_test_noinherit"), "does not inherit")
}

func hiddenSessions(t *testing.T, _ *scene) {
	findings := examine(t, pgtest.New(t).Pool(pgtest.Worker), doctor.Options{})
	f := find(t, findings, "hidden-sessions", doctor.Warn, "deed_test_worker")
	if want := "grant pg_monitor to deed_test_worker;"; f.Remedy != want {
		t.Errorf("the remedy is %q, want %q", f.Remedy, want)
	}
}

func roles(t *testing.T, s *scene) {
	db := s.spoilt.DB(t)
	db.Exec(t, pgtest.Owner, `alter role deed_app login bypassrls`)
	db.Exec(t, pgtest.Owner, `grant deed_worker to deed_app`)
	db.Exec(t, pgtest.Owner, `alter role deed_admin rename to somebody`)
	findings := examine(t, db.Pool(pgtest.Owner), doctor.Options{})
	says(t, find(t, findings, "roles", doctor.Warn, "deed_app"), "can log in")
	says(t, find(t, findings, "roles", doctor.Fail, "deed_app"), "goes past row-level security")
	says(t, find(t, findings, "roles", doctor.Fail, "deed_admin"), "does not exist")
	if !strings.Contains(text(findings), "revoke deed_worker from deed_app;") {
		t.Errorf("deed_app's membership is not found:\n%s", text(findings.Trouble()))
	}
}

func superuserLogins(t *testing.T, s *scene) {
	db := s.server.DB(t)
	db.Exec(t, pgtest.Owner, `create role deed_test_team nologin in role deed_worker`)
	db.Exec(t, pgtest.Owner, `create role "The boss" superuser login in role deed_test_team, deed_app`)
	findings := examine(t, db.Pool(pgtest.Owner), doctor.Options{})
	f := find(t, findings, "superuser-logins", doctor.Warn, `"The boss"`)
	says(t, f, "deed_app, deed_worker", "superuser")
}

func schemaVersion(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	see := func(level doctor.Level, what string, statements ...string) {
		t.Helper()
		for _, sql := range statements {
			db.Exec(t, pgtest.Owner, sql)
		}
		says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "schema-version", level, "schema deed"), what)
	}
	see(doctor.Warn, "compatible", `insert into deed.migrations (version, name, breaking, hash) values (9998, '9998_new', false, '')`)
	see(doctor.Fail, "9999_newer", `insert into deed.migrations (version, name, breaking, hash) values (9999, '9999_newer', true, '')`)
	see(doctor.Fail, "lacks 0001", `delete from deed.migrations where version in (1, 9998, 9999)`)
}

func schemaDrift(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `drop index deed.pending_dead_idx`)
	db.Exec(t, pgtest.Owner, `revoke execute on function deed.claim from deed_worker`)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "schema-drift", doctor.Fail, "schema deed"),
		"3 differences", "- CREATE INDEX pending_dead_idx", "+ function claim(")
}

func functionOverload(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `create function deed.publish(p_topic text) returns bigint language sql as 'select 1::bigint'`)
	findings := examine(t, db.Pool(pgtest.Worker), doctor.Options{})
	says(t, find(t, findings, "function-overload", doctor.Fail, "deed.publish"), "2 signatures", "deed.publish(text)")
	find(t, findings, "schema-drift", doctor.OK, "") // it is said once
}

func functionForeign(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `create function deed.mine(n int) returns int language sql as 'select n'`)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "function-foreign", doctor.Warn, "deed.mine"), "deed.mine(integer)")
}

func rowSecurity(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `alter table deed.log_p0 no force row level security`)
	db.Exec(t, pgtest.Owner, `alter table deed.pending disable row level security`)
	findings := examine(t, db.Pool(pgtest.Worker), doctor.Options{})
	says(t, find(t, findings, "row-security", doctor.Fail, "deed.log_p0"), "not forced")
	f := find(t, findings, "row-security", doctor.Fail, "deed.pending")
	says(t, f, "not enabled")
	db.Exec(t, pgtest.Owner, f.Remedy) // a remedy that is SQL runs as it stands
}

func invalidIndex(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Broken()
	for range 2 {
		db.Exec(t, pgtest.App, `select deed.publish('orders', '{}', p_key => 'k')`)
	}
	if _, err := db.Pool(pgtest.Owner).Exec(context.Background(), `create unique index concurrently twice on deed.pending (slot)`); err == nil {
		t.Fatal("two rows of a slot are unique")
	}
	findings := examine(t, db.Pool(pgtest.Worker), doctor.Options{})
	says(t, find(t, findings, "invalid-index", doctor.Fail, "deed.twice"), "deed.pending")
}

func retentionOverdue(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	const warns = "deed.log_p0"
	publish := func(topic string) {
		db.Exec(t, pgtest.App, `select deed.publish('`+topic+`', '{}'), deed.publish('`+topic+`', '{}')`)
	}
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('archive', p_retention => '400 days')`) // which has nothing in it
	publish("orders")
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 's')`)
	db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = now() - interval '25 hours' where n = 0`)
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "retention-overdue", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `update deed.partitions set opened_at = opened_at - interval '9 days' where opened_at is not null`)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "retention-overdue", doctor.Warn, warns),
		"orders/s is still brought what was published before it")
	db.Exec(t, pgtest.Owner, `update deed.backfills set window_n = 0, finished_at = now()`)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "retention-overdue", doctor.Warn, warns), "nothing keeps them")
	for range 3 { // began, moved, emptied
		db.Exec(t, pgtest.Worker, `select deed.retention_step()`)
	}
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "retention-overdue", doctor.Warn, warns), "no moment was found")
	db.Exec(t, pgtest.Worker, `select deed.retention_step()`)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "retention-overdue", doctor.OK, "")
}

func partitionsAhead(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Broken()
	// Not just before a week ends: the numbers of the weeks are counted on below.
	if !pgtest.Wait(pgtest.Patience, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select extract(epoch from clock_timestamp())::bigint % 604800 < 604800 - 60`)
	}) {
		t.Fatal("no week begins")
	}
	db.Exec(t, pgtest.Owner, `select deed.keep_partitions()`) // the template may be of the week before
	for n, level := range []doctor.Level{doctor.OK, doctor.Warn, doctor.Fail} {
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`select setval('deed.log_seq', %d)`, n<<36+1))
		says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "partitions-ahead", level, "deed.log"), fmt.Sprintf("%d partitions", 2-n))
	}
	for n, level := range []doctor.Level{doctor.OK, doctor.Warn, doctor.Fail} {
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`update deed.run_partitions set dropped_at = now() where n > (select floor(extract(epoch from now()) / 604800)) + %d`, 2-n))
		says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "partitions-ahead", level, "deed.run_log"), fmt.Sprintf("%d partitions of the logs of runs", 2-n))
	}
}

func logSequence(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Broken()
	for range 20 {
		db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
	}
	last := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select max(id) from deed.log`)
	db.Exec(t, pgtest.Owner, `select setval('deed.log_seq', 5)`)
	f := find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "log-sequence", doctor.Fail, "deed.log_seq")
	says(t, f, "at 5", fmt.Sprintf("%d was reached", last))

	db.Exec(t, pgtest.Owner, `select setval('deed.log_seq', $1)`, last)
	db.Exec(t, pgtest.Worker, `select deed.open_window()`)
	db.Exec(t, pgtest.Owner, `truncate deed.log, deed.pending`)
	db.Exec(t, pgtest.Owner, `select setval('deed.log_seq', 6)`)
	f = find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "log-sequence", doctor.Fail, "deed.log_seq")
	says(t, f, "at 6", fmt.Sprintf("%d was reached", last)) // the window remembers

	db.Exec(t, pgtest.Owner, `select setval('deed.log_seq', 1000)`)
	db.Exec(t, pgtest.Owner, `alter sequence deed.log_seq cache 32 cycle`)
	f = find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "log-sequence", doctor.Fail, "deed.log_seq")
	says(t, f, "cache 32", "cycle true")
	db.Exec(t, pgtest.Owner, f.Remedy)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "log-sequence", doctor.OK, "")
}

func clusterChanged(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "cluster-changed", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `update deed.settings set system_identifier = 4711, database_oid = 1`)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "cluster-changed", doctor.Warn, "deed.settings"), "4711")
	db.Exec(t, pgtest.Owner, `update deed.settings set system_identifier = null, database_oid = null, environment = 'production'`)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "cluster-changed", doctor.OK, "")
	for _, environment := range []string{"", "staging"} {
		opts := doctor.Options{Environment: &environment}
		says(t, find(t, examine(t, db.Pool(pgtest.Worker), opts), "cluster-changed", doctor.Warn, "deed.settings"), `"production"`)
	}
}

func suppressionUnreadable(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{bob@example.com}', 'asked to')`)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "suppression-unreadable", doctor.OK, "")
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
		select tenant_id, 'email', a, reason, actor, created_at from deed.suppressions, unnest('{bob <bob@example.com>,notanaddress}'::text[]) a`)
	f := find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "suppression-unreadable", doctor.Warn, "deed.suppressions")
	says(t, f, "2 suppressions (email)")
	if strings.Contains(f.Detail, "bob") {
		t.Errorf("an address is named: %s", f.Detail)
	}
}

func backfillUnfinished(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	writer := session(t, db, pgtest.Owner, "month-end")
	do(t, writer, `begin`, `select pg_current_xact_id()`)
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'ledger')`)
	f := find(t, examine(t, db.Pool(pgtest.Owner), impatient), "backfill-unfinished", doctor.Warn, "orders/ledger")
	says(t, f, "no relay")
	for range 10 {
		db.Exec(t, pgtest.Worker, `select deed.backfill($1)`, id)
	}
	f = find(t, examine(t, db.Pool(pgtest.Owner), impatient), "backfill-unfinished", doctor.Warn, "orders/ledger")
	says(t, f, "must end")
	// Other tests' transactions may be among the first five that it names.
	if pid := fmt.Sprintf("pid %d (month-end)", writer.PgConn().PID()); !strings.Contains(f.Detail, pid) && strings.Count(f.Detail, "), ") < 4 {
		t.Errorf("%s is not named: %s", pid, f.Detail)
	}
	if fs := examine(t, db.Pool(pgtest.Owner), doctor.Options{}); !strings.Contains(text(fs), "has been given") {
		t.Errorf("a backfill of a moment is called long:\n%s", text(fs.Trouble()))
	}
	// What begins anew, as its stream has become a queue, has not gone on since the subscription was made.
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('calls', 'stream')`)
	calls := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('calls', 'ledger')`)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp() where subscription = $1`, calls)
	db.Exec(t, pgtest.Owner, `update deed.subscriptions set created_at = created_at - interval '1 day' where id = $1`, calls)
	db.Exec(t, pgtest.Admin, `select deed.set_topic('calls', 'queue')`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.backfills where subscription = $1 and finished_at is null`, calls); n != 1 {
		t.Fatalf("%d backfills have begun anew", n)
	}
	for _, f := range examine(t, db.Pool(pgtest.Owner), doctor.Options{}) {
		if f.Name == "backfill-unfinished" && f.Subject == "calls/ledger" {
			t.Errorf("a backfill that has just begun anew is called long: %s", f.Detail)
		}
	}
	db.Exec(t, pgtest.Owner, `update deed.backfills set began_at = began_at - interval '1 day' where subscription = $1`, calls)
	says(t, find(t, examine(t, db.Pool(pgtest.Owner), doctor.Options{}), "backfill-unfinished", doctor.Warn, "calls/ledger"), "much to bring")
}

func changeUnfinished(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders', 'stream', 1)`)
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'ledger')`)
	db.Exec(t, pgtest.Owner, `update deed.backfills set finished_at = clock_timestamp()`) // other tests' transactions would hold it up
	take := func() {
		db.Exec(t, pgtest.Worker, `select deed.take_lanes('00000000-0000-0000-0000-000000000001', 'w', array[$1::int], p_protocol => 2)`, id)
	}
	take()
	db.Exec(t, pgtest.Admin, `select deed.set_topic('orders', 'queue')`)
	look := func(say ...string) {
		t.Helper()
		says(t, find(t, examine(t, db.Pool(pgtest.Owner), impatient), "change-unfinished", doctor.Warn, "orders/ledger"), append(say, "a queue", "deed topic set orders --mode stream")...)
	}
	look("a worker has each in hand")
	late := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'late')`)
	says(t, find(t, examine(t, db.Pool(pgtest.Owner), impatient), "backfill-unfinished", doctor.Warn, "orders/late"), "is being made a queue")
	db.Exec(t, pgtest.Owner, `update deed.lanes set worker = null, lease_until = null`)
	look("1 of its lanes", "nobody has 1 of these in hand")
	db.Exec(t, pgtest.Worker, `select deed.backfill($1)`, late) // it waits as well
	find(t, examine(t, db.Pool(pgtest.Owner), impatient), "backfill-unfinished", doctor.Warn, "orders/late")
	take()
	db.Exec(t, pgtest.Owner, `select deed.pause_lane(subscription, lane, fence) from deed.lanes`)
	look("all of its lanes have stopped")
	if fs := examine(t, db.Pool(pgtest.Owner), doctor.Options{}); !strings.Contains(text(fs), "no change of a stream's lanes or mode") {
		t.Errorf("a change of a moment is called long:\n%s", text(fs.Trouble()))
	}
	for range 2 {
		take()
	}
	find(t, examine(t, db.Pool(pgtest.Owner), impatient), "change-unfinished", doctor.OK, "")
}

func removalUnfinished(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 'ledger')`)
	writer := session(t, db, pgtest.Owner, "month-end")
	do(t, writer, `begin`, `select pg_current_xact_id()`)
	n := pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.remove_subscription('orders', 'ledger', 'x')`)
	says(t, find(t, examine(t, db.Pool(pgtest.Owner), impatient), "removal-unfinished", doctor.Warn, "orders/ledger"), "no relay")
	if state := pgtest.One[string](t, db.Pool(pgtest.Worker), `select state from deed.remove_step($1)`, n); state != "waits" {
		t.Fatalf("the removal %s", state)
	}
	f := find(t, examine(t, db.Pool(pgtest.Owner), impatient), "removal-unfinished", doctor.Warn, "orders/ledger")
	// Other tests' transactions may be among the first five that it names.
	if pid := fmt.Sprintf("pid %d (month-end)", writer.PgConn().PID()); !strings.Contains(f.Detail, pid) && strings.Count(f.Detail, "), ") < 4 {
		t.Errorf("%s is not named: %s", pid, f.Detail)
	}
	const acme = "6f1c2d3e-0000-4000-8000-000000000001"
	db.Exec(t, pgtest.Admin, `select deed.add_tenant($1, 'acme')`, acme)
	db.Exec(t, pgtest.Admin, `select deed.remove_tenant($1, 'x')`, acme)
	says(t, find(t, examine(t, db.Pool(pgtest.Owner), impatient), "removal-unfinished", doctor.Warn, "tenant "+acme), "no relay")
	for state := "going"; state == "going"; {
		state = pgtest.One[string](t, db.Pool(pgtest.Worker), `select state from deed.remove_tenant_step($1)`, acme)
	}
	says(t, find(t, examine(t, db.Pool(pgtest.Owner), impatient), "removal-unfinished", doctor.Warn, "tenant "+acme), "have ended")
	if fs := examine(t, db.Pool(pgtest.Owner), doctor.Options{}); !strings.Contains(text(fs), "nothing is left of what was removed") {
		t.Errorf("a removal of a moment is called long:\n%s", text(fs.Trouble()))
	}
}

// The server's functions are made to lie, in a database of the test's own.
func serverTooNew(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "server-version", doctor.OK, serverVersion(t, db))
	for number, want := range map[string]struct {
		level   doctor.Level
		subject string
	}{"190002": {doctor.Warn, "PostgreSQL 19.2"}, "140020": {doctor.Fail, "PostgreSQL 14.20"}} {
		db := pgtest.New(t)
		db.Exec(t, pgtest.Owner, `create or replace function pg_catalog.current_setting(text) returns text language sql as $$ select '`+number+`' $$`)
		find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "server-version", want.level, want.subject)
	}
}

func clockSkew(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	f := find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{ClockSkew: time.Minute}), "clock-skew", doctor.OK, "clock")
	says(t, f, "give or take")
	for way, by := range map[string]string{"ahead of": "1 hour", "behind": "-1 hour"} {
		db := pgtest.New(t)
		db.Broken()
		db.Exec(t, pgtest.Owner, `create or replace function pg_catalog.clock_timestamp() returns timestamptz
			language sql as $$ select pg_catalog.timeofday()::timestamptz + interval '`+by+`' $$`)
		f := find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{}), "clock-skew", doctor.Warn, "clock")
		says(t, f, way)
	}
}

func durability(t *testing.T, s *scene) {
	db := s.server.DB(t)
	db.Exec(t, pgtest.Owner, `alter database `+db.Name()+` set synchronous_commit = off`)
	findings := examine(t, db.Conn(t, pgtest.Worker), doctor.Options{})
	for _, name := range []string{"fsync", "full_page_writes", "synchronous_commit"} {
		says(t, find(t, findings, "durability", doctor.Warn, name), name+" is off")
	}
}

func settingHint(t *testing.T, s *scene) {
	findings := examine(t, s.server.DB(t).Pool(pgtest.Worker), doctor.Options{})
	for _, name := range []string{"idle_in_transaction_session_timeout", "max_prepared_transactions"} {
		if f := find(t, findings, "setting-hint", doctor.OK, name); f.Remedy == "" {
			t.Errorf("no remedy: %+v", f)
		}
	}
}
