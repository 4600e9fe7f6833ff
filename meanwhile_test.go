package deed_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// beside runs a statement in a session of its own, and returns when it waits for a lock; end waits for what becomes of it.
func beside(t testing.TB, db *pgtest.DB, role pgtest.Role, sql string) (end func()) {
	t.Helper()
	conn := db.Conn(t, role)
	result := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), sql)
		result <- err
	}()
	eventually(t, "it to wait: "+sql, func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	return func() {
		t.Helper()
		if err := <-result; err != nil {
			t.Fatal(err)
		}
	}
}

// Who subscribes to a topic while it is removed is subscribed to it when it is declared anew, and gets what is published then.
func TestRemove_WhileSomebodySubscribes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	subscribe(t, db, "t", "s")
	db.Exec(t, pgtest.Owner, `alter function deed.join_list(int) set lock_timeout = '2min'`)
	open := openTx(t, db, pgtest.Admin, `select deed.remove_topic('t', 'over')`)
	end := beside(t, db, pgtest.Worker, `select deed.subscribe('t', 's2')`)
	commit(t, open)
	end()
	id := pgtest.One[int](t, db.Pool(pgtest.Owner), `select id from deed.subscriptions where topic = 't'`)
	scan(t, db, id)
	publish(t, db, message("t", 1))
	same(t, "messages of the new one", len(given(t, db, id)), 1)
}

// A subscription that is removed while it comes into its topic's list leaves nothing in it.
func TestRemove_WhileItJoins(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	changing := openTx(t, db, pgtest.Owner, `lock table deed.list_lock in exclusive mode`)
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('t', 's')`)
	commit(t, changing)
	db.Exec(t, pgtest.Owner, `alter function deed.remove_subscription(text, text, text, text) set lock_timeout = '2min'`)
	joins := openTx(t, db, pgtest.Owner, fmt.Sprintf(`select deed.join_list(%d)`, id))
	end := beside(t, db, pgtest.Admin, `select deed.remove_subscription('t', 's', 'over')`)
	commit(t, joins)
	end()
	same(t, "subscriptions of the list", pgtest.One[int](t, db.Pool(pgtest.Owner), `select cardinality(subscriptions) from deed.topics where topic = 't'`), 0)
}

// Who deletes finished messages in a transaction that is left open takes none away from a subscription that begins with them.
func TestBackfill_BesideADeletionLeftOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	first := subscribe(t, db, "t", "s")
	publish(t, db, message("t", 1))
	list := claim(t, worker, "t", "w", 10)
	same(t, "finished", finish(t, worker, first, list[0].Claim, ids(list)...), 1)
	open := openTx(t, db, pgtest.Owner, fmt.Sprintf(`insert into deed.purges (id) values (%d)`, list[0].ID), `select deed.purge()`)
	second := pgtest.One[int](t, worker, `select subscription from deed.subscribe('t', 's2', 'beginning')`)
	for range 10 {
		pgtest.One[int](t, worker, `select added from deed.backfill($1)`, second)
	}
	commit(t, open)
	scan(t, db, second)
	same(t, "messages without content", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.pending p where not exists (select from deed.log l where l.slot = p.slot and l.id = p.id)`), 0)
}

// A row that somebody changes while an adopted table is moved is moved as it is then, with all others.
func TestAdopt_WhatIsChangedMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `create table public.outbox_before (id bigint primary key, event_type text, payload jsonb, retry_count int default 0, created_at timestamptz default now(), processed_at timestamptz)`)
	db.Exec(t, pgtest.Owner, `insert into public.outbox_before (id, event_type, payload) select i, 't', '{}' from generate_series(1, 5) i`)
	db.Exec(t, pgtest.Owner, `insert into deed.contracts (pack, hash, adopting) values ('m10_recovery', 'x', 'public.outbox_before')`)
	open := openTx(t, db, pgtest.Owner, `update public.outbox_before set retry_count = 1 where id = 1`)
	end := beside(t, db, pgtest.Owner, `select deed.adopt('m10_recovery', 2)`)
	commit(t, open)
	end()
	for pgtest.One[int](t, db.Pool(pgtest.Owner), `select deed.adopt('m10_recovery', 2)`) > 0 {
	}
	same(t, "rows that were left", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from public.outbox_before where processed_at is null`), 0)
}
