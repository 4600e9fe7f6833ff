package delivery_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Two who have one file are erased at once, and neither erasure sees the other's end: the file
// goes once both have committed.
func TestContract_D12_TwoErasedAtOnceShareAFile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sum := put(t, db, "theirs")
	list := reserve(t, db, withFile("ann@example.com", sum), withFile("bob@example.com", sum))
	ageAnHour(t, db)
	var ends []func()
	for _, r := range list {
		ends = append(ends, leftOpen(t, db, pgtest.Owner, `select deed.erase_deliveries(array[$1::text::uuid], 'gdpr')`, r.ID))
	}
	for _, end := range ends {
		end()
	}
	ageAnHour(t, db)
	if n := purgeContents(t, db); n != 1 {
		t.Errorf("%d files went, want the one that nobody has any more", n)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select actor || ' ' || reason from deed.audit_log where subject_type = 'content'`); fmt.Sprint(got) != "[gdpr erased]" {
		t.Errorf("the log has %q", got)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.erased_contents`); n != 0 {
		t.Errorf("%d marks are left", n)
	}
}

// Who has put a file may name it, whoever else's is erased meanwhile. Of what nobody has named within an
// hour nothing is left; what is named stays.
func TestContract_D12_AFileThatWasPutJustNowStays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	named, not := put(t, db, "named"), put(t, db, "not")
	list := reserve(t, db, withFile("ann@example.com", named), withFile("cat@example.com", not))
	ageAnHour(t, db)
	put(t, db, "named")
	put(t, db, "not")
	for _, r := range list {
		db.Exec(t, pgtest.Owner, `select deed.erase_deliveries(array[$1::text::uuid], 'gdpr')`, r.ID)
	}
	reserve(t, db, withFile("bob@example.com", named))
	for range 2 {
		db.Exec(t, pgtest.Owner, `update deed.erased_contents set tried_at = tried_at - interval '1 minute'`)
		if n := purgeContents(t, db); n != 0 {
			t.Errorf("%d files went within the hour", n)
		}
	}
	ageAnHour(t, db)
	if n := purgeContents(t, db); n != 1 {
		t.Errorf("%d files went after the hour", n)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select convert_from(bytes, 'UTF8') from deed.contents`); fmt.Sprint(got) != "[named]" {
		t.Errorf("left: %q", got)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.erased_contents`); n != 0 {
		t.Errorf("%d marks are left", n)
	}
}

// A file stays for two days, and so does the delivery that named it, however soon deliveries
// go: an erasure finds the file by it.
func TestContract_D12_AFileGoesBeforeItsDelivery(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := reserve(t, db, withFile("ann@example.com", put(t, db, "hers")), email("bob@example.com"), withFile("cat@example.com", put(t, db, "not hers")))
	l, stop := run(t, db, fast(newFake()))
	drained(t, l)
	stop()
	purged := func(hours int) int {
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set finished_at = clock_timestamp() - make_interval(hours => $1::int)`, hours)
		db.Exec(t, pgtest.Owner, `update deed.contents set used_at = clock_timestamp() - make_interval(hours => $1::int)`, hours)
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.purge_deliveries('1 day', 100, 'w')`)
	}
	if n := purged(47); n != 1 {
		t.Errorf("%d deliveries went within two days, want the one without a file", n)
	}
	db.Exec(t, pgtest.Owner, `select deed.erase_deliveries(array[$1::text::uuid], 'gdpr')`, list[0].ID)
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select convert_from(bytes, 'UTF8') from deed.contents`); fmt.Sprint(got) != "[not hers]" {
		t.Errorf("left after the erasure: %q", got)
	}
	if n := purged(49); n != 2 {
		t.Errorf("%d deliveries went after two days, want both", n)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.purge_contents('2 days', 100, 'w')`); n != 1 {
		t.Errorf("%d files went after two days", n)
	}
}

// However many old files are needed, a purge looks at as many as it is asked to, and at others
// the next time, until it has come by all; a day later it looks again.
func TestPurgeContents_WhatIsNeededHoldsUpNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	const needed = 3000
	id := reserve(t, db, withFile("bob@example.com", put(t, db, "x")))[0].ID
	db.Broken() // one delivery names more files than one may
	db.Exec(t, pgtest.Owner, `
		insert into deed.contents (tenant_id, sha256, bytes, size, type, created_at, used_at)
		select '00000000-0000-0000-0000-000000000000', sha256(b), b, octet_length(b), 'text/plain', now(), now() - interval '40 days' - interval '1 second' * n
		from generate_series(1, $1::int) n cross join lateral (select convert_to(n::text, 'UTF8') as b) x`, needed)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set contents = array(select sha256 from deed.contents) where id = $1::text::uuid`, id)
	put(t, db, "free")
	db.Exec(t, pgtest.Owner, `update deed.contents set used_at = now() - interval '40 days' where bytes = 'free'`)
	conn := db.Conn(t, pgtest.Worker)
	const purge = `select deed.purge_contents('30 days', 100, 'w')`
	for n := 0; pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.contents where bytes = 'free')`); n++ {
		if n > needed/100+1 {
			t.Fatal("what may go was not come by")
		}
		if b := pgtest.Measure(t, conn, 10_000, purge).Buffers; n > 0 && b > 10_000 {
			t.Fatalf("a purge of 100 touched %d buffers", b)
		}
	}
	looked := func() int { return pgtest.One[int](t, conn, purge) }
	for looked() > 0 {
	}
	if b := pgtest.Measure(t, conn, 200, purge).Buffers; b > 200 {
		t.Errorf("a purge that has nothing to look at touched %d buffers", b)
	}
	db.Exec(t, pgtest.Owner, `update deed.contents set passed_at = passed_at - interval '1 day'`)
	if n := looked(); n != 100 {
		t.Errorf("a day later it looked at %d", n)
	}
}
