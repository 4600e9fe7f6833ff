package doctor_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

func recovery(t *testing.T, _ *scene) {
	ctx := context.Background()
	c := pgtest.Private(t, pgembed.Options{Unsafe: true})
	db := c.DB(t)
	signal := filepath.Join(c.Dir(), "data", "standby.signal")
	if err := os.WriteFile(signal, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for the database to be dropped
		if err := os.Remove(signal); err != nil {
			t.Error(err)
		}
		if err := c.Restart(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	findings := examine(t, db.Conn(t, pgtest.Worker), doctor.Options{})
	find(t, findings, "recovery", doctor.Fail, "server")
	find(t, findings, "not-examined", doctor.OK, "") // all of it can be made on a standby
}

func connections(t *testing.T, _ *scene) {
	c := pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{"max_connections": "20"}})
	db := c.DB(t)
	find(t, examine(t, db.Conn(t, pgtest.Owner), doctor.Options{}), "connections", doctor.OK, "max_connections")
	for range 14 {
		session(t, db, pgtest.Worker, "greedy")
	}
	f := find(t, examine(t, db.Conn(t, pgtest.Owner), doctor.Options{}), "connections", doctor.Warn, "max_connections")
	says(t, f, "of 20 connections", "3 are kept for superusers", "greedy 14")
}

func autovacuum(t *testing.T, s *scene) {
	db := s.spoilt.DB(t)
	db.Exec(t, pgtest.Owner, `alter table deed.pending set (autovacuum_enabled = off)`)
	findings := examine(t, db.Pool(pgtest.Worker), doctor.Options{})
	find(t, findings, "autovacuum", doctor.Warn, "autovacuum")
	f := find(t, findings, "autovacuum", doctor.Warn, "deed.pending")
	db.Exec(t, pgtest.Owner, f.Remedy)
}

func deadRows(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `alter table deed.tenants set (autovacuum_enabled = off)`)
	opts := doctor.Options{Long: 1, DeadRows: 500}
	find(t, examine(t, db.Pool(pgtest.Worker), opts), "dead-rows", doctor.OK, "")
	conn := db.Conn(t, pgtest.Owner)
	do(t, conn,
		`insert into deed.tenants select gen_random_uuid(), 'tenant ' || n from generate_series(1, 1000) n`,
		`delete from deed.tenants where name like 'tenant %'`,
		`select pg_stat_force_next_flush()`,
		`select 1`,
	)
	says(t, find(t, examine(t, db.Pool(pgtest.Worker), opts), "dead-rows", doctor.Warn, "deed.tenants"), "1000 dead rows")
	find(t, examine(t, db.Pool(pgtest.Worker), doctor.Options{Long: 1000 * time.Hour, DeadRows: 500}), "dead-rows", doctor.OK, "") // it was made not that long ago
}

// An open transaction keeps vacuum from giving back the ids that others use.
func wraparound(t *testing.T, s *scene) {
	db := s.server.DB(t)
	do(t, session(t, db, pgtest.Owner, "sleeper"), `begin`, `select pg_current_xact_id()`)
	do(t, db.Conn(t, pgtest.Owner), `do $$
		begin
		  for n in 1..155000 loop
		    perform pg_current_xact_id();
		    commit;
		  end loop;
		end $$`)
	findings := examine(t, db.Pool(pgtest.Worker), doctor.Options{OldXIDs: 100_000})
	find(t, findings, "wraparound", doctor.Warn, "database "+db.Name())
	found := 0
	for _, f := range findings {
		if f.Name == "wraparound" && strings.HasPrefix(f.Subject, "deed.") {
			found++
		}
		// That it is old is seen by its ids, by a login that does not see since when.
		if f.Name == "horizon-session" && strings.Contains(f.Subject, "(sleeper)") {
			says(t, f, "transactions behind", "not known")
			found++
		}
	}
	if found < 2 {
		t.Errorf("no table of deed is found, or not who keeps it:\n%s", text(findings.Trouble()))
	}
}

// Who pins the horizon is named, with what it is and since when, and without
// a word of what it has run.
func horizonSession(t *testing.T, s *scene) {
	db := s.server.DB(t)
	writer := session(t, db, pgtest.App, "shop-writer")
	do(t, writer, `begin`, `select deed.publish('orders', '{"card": "4711-hush"}')`)
	reader := session(t, db, pgtest.App, "shop-report")
	do(t, reader, `begin isolation level repeatable read`, `select 'hush'`)
	innocent := session(t, db, pgtest.App, "shop-idle")
	findings := examine(t, db.Pool(pgtest.Owner), impatient)
	for name, conn := range map[string]*pgx.Conn{"shop-writer": writer, "shop-report": reader} {
		pid := conn.PgConn().PID()
		f := find(t, findings, "horizon-session", doctor.Warn, fmt.Sprintf("pid %d (%s)", pid, name))
		says(t, f, "idle in transaction", "last statement", "login deed_test_app", "database "+db.Name())
		if !strings.Contains(f.Remedy, fmt.Sprintf("pg_terminate_backend(%d)", pid)) {
			t.Errorf("the remedy is %q", f.Remedy)
		}
	}
	if got := text(findings); strings.Contains(got, "hush") || strings.Contains(got, "(shop-idle)") {
		t.Errorf("a query's text, or an innocent session, is shown:\n%s", got)
	}
	do(t, innocent, `select 1`)
	for _, f := range examine(t, db.Pool(pgtest.Owner), doctor.Options{}) {
		if f.Name == "horizon-session" && f.Level != doctor.OK && strings.Contains(f.Subject, "shop-") {
			t.Errorf("a transaction of a moment is called long: %+v", f)
		}
	}
	db.Exec(t, pgtest.Owner, find(t, findings, "horizon-session", doctor.Warn, fmt.Sprintf("pid %d (shop-report)", reader.PgConn().PID())).Remedy[len("end it in the application, or: "):])
}

func horizonPrepared(t *testing.T, s *scene) {
	db := s.server.DB(t)
	do(t, db.Conn(t, pgtest.App), `begin`, `select deed.publish('orders', '{}')`, `prepare transaction 'it''s stuck'`)
	f := find(t, examine(t, db.Pool(pgtest.Worker), impatient), "horizon-prepared", doctor.Warn, "it's stuck")
	says(t, f, "login deed_test_app", "database "+db.Name())
	if !strings.Contains(f.Remedy, `rollback prepared 'it''s stuck';`) {
		t.Errorf("the remedy is %q", f.Remedy)
	}
}

// makeLogicalSlot is for the time before any test's transaction: it would wait
// for them.
func (s *scene) makeLogicalSlot(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	do(t, conn, `select pg_create_logical_replication_slot('forgotten', 'pgoutput')`)
}

// The server does not say since when a slot holds what it holds; the log does.
func horizonSlot(t *testing.T, s *scene) {
	db := s.server.DB(t)
	db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
	f := find(t, examine(t, db.Pool(pgtest.Worker), impatient), "horizon-slot", doctor.Warn, "forgotten")
	says(t, f, "catalogs", "logical, not in use", "or more, by the messages published since")
	if !strings.Contains(f.Remedy, "pg_drop_replication_slot('forgotten')") {
		t.Errorf("the remedy is %q", f.Remedy)
	}

	db.Exec(t, pgtest.Owner, `select pg_create_physical_replication_slot('replica_2')`)
	pid := s.standby(t, db, "replica-2", "replica_2")
	f = find(t, s.holding(t, db, "horizon-slot", "replica_2"), "horizon-slot", doctor.Warn, "replica_2")
	says(t, f, "all tables", "physical, in use", fmt.Sprintf("pid %d", pid))
}

func horizonStandby(t *testing.T, s *scene) {
	db := s.server.DB(t)
	pid := s.standby(t, db, "replica-1", "")
	subject := fmt.Sprintf("pid %d (replica-1)", pid)
	f := find(t, s.holding(t, db, "horizon-standby", subject), "horizon-standby", doctor.Warn, subject)
	says(t, f, "all tables")
}

// standby follows the server, through a slot if one is named, and says that a
// query of its own reads what there is now; then a message is published. It
// returns the pid of its sender.
func (s *scene) standby(t *testing.T, db *pgtest.DB, application, slot string) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), pgtest.Patience)
	defer cancel()
	cfg, err := pgconn.ParseConfig(s.server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["replication"] = "true"
	cfg.RuntimeParams["application_name"] = application
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Conn().Close() }) // a standby says no goodbye
	owner := db.Pool(pgtest.Owner)
	// Who asks for what is not flushed yet is refused within the stream that it is given, and what it says is passed over.
	begin := "START_REPLICATION"
	if slot != "" {
		begin += " SLOT " + slot
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: begin + " PHYSICAL " + pgtest.One[string](t, owner, `select pg_current_wal_flush_lsn()::text`)})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if refused, ok := msg.(*pgproto3.ErrorResponse); ok {
			t.Fatal(refused.Message)
		}
		if _, ok := msg.(*pgproto3.CopyBothResponse); ok {
			break
		}
	}
	eventually(t, "the server to know what the standby reads", func() bool {
		// Repeated, as a standby does.
		xid := pgtest.One[int64](t, owner, `select pg_current_xact_id()::text::bigint`)
		feedback := append([]byte{'h'}, make([]byte, 24)...)
		binary.BigEndian.PutUint32(feedback[9:], uint32(xid))
		binary.BigEndian.PutUint32(feedback[13:], uint32(xid>>32))
		conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
		if err := conn.Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
		return pgtest.One[bool](t, owner, `
			select exists (select from pg_stat_activity where pid = $1 and backend_xmin is not null)
			  or exists (select from pg_replication_slots where active_pid = $1 and xmin is not null)`, conn.PID())
	})
	db.Exec(t, pgtest.App, `select deed.publish('orders', '{}')`)
	return conn.PID()
}

// holding examines the server until something is found to hold back the horizon: while
// another test's writer, which is found itself, holds back as much, a standby is not.
func (s *scene) holding(t *testing.T, db *pgtest.DB, name, subject string) (findings doctor.Findings) {
	t.Helper()
	eventually(t, name+" of "+subject, func() bool {
		findings = examine(t, db.Pool(pgtest.Worker), impatient)
		return slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Name == name && f.Subject == subject })
	})
	return findings
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, cond) {
		t.Fatalf("waited in vain for %s", what)
	}
}

func latePublisher(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	shop := session(t, db, pgtest.App, "shop")
	do(t, shop, `begin`, `select deed.publish('orders', '{}')`)
	do(t, session(t, db, pgtest.App, "reader"), `begin`, `select count(*) from deed.log`)
	gid := "late of " + db.Name()
	do(t, db.Conn(t, pgtest.App), `begin`, `select deed.publish('orders', '{}')`, `prepare transaction '`+gid+`'`)
	findings := examine(t, db.Pool(pgtest.Owner), impatient)
	says(t, find(t, findings, "late-publisher", doctor.Warn, fmt.Sprintf("pid %d (shop)", shop.PgConn().PID())), "idle in transaction", "deed_test_app")
	says(t, find(t, findings, "late-publisher", doctor.Warn, gid), "prepared")
	for _, f := range findings {
		if f.Name == "late-publisher" && strings.Contains(f.Subject, "reader") {
			t.Errorf("who has only read is found: %+v", f)
		}
	}
	find(t, examine(t, db.Pool(pgtest.Owner), doctor.Options{}), "late-publisher", doctor.OK, "")
}
