package delivery_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/deedsql"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// A list has every file once, those that were used last first, with what needs them; one is
// found by its name in each tenant.
func TestContents_PagesAreWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for i := range 7 {
		put(t, db, fmt.Sprint(i))
	}
	shared := put(t, db, "shared")
	id := reserve(t, db, withFile("bob@example.com", shared))[0].ID
	theirs := tenants(t, db, 2)[1]
	if _, err := delivery.PutContent(t.Context(), db.Pool(pgtest.Worker), &theirs, []byte("shared"), "text/html"); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.contents set used_at = '2026-01-01' where convert_from(bytes, 'UTF8') in ('1', '2', '3')`) // at the same time
	admin := db.Pool(pgtest.Admin)
	walk := func(f delivery.ContentFilter) (list []delivery.Content) {
		t.Helper()
		f.Limit = 2
		for {
			page, err := delivery.Contents(t.Context(), admin, f)
			if err != nil {
				t.Fatal(err)
			}
			if list = append(list, page.Items...); page.Next == "" {
				return list
			}
			f.Cursor = page.Next
		}
	}
	all := walk(delivery.ContentFilter{})
	seen := map[string]int{}
	for i, c := range all {
		seen[c.SHA256]++
		if i > 0 && c.UsedAt.After(all[i-1].UsedAt) {
			t.Errorf("%s stands behind what was used before", c.SHA256)
		}
		if needed := c.SHA256 == shared && c.Tenant == tenant.Default.String(); needed != (len(c.NeededBy) == 1 && c.NeededBy[0] == id) || c.Size < 1 || c.Type == "" {
			t.Errorf("%+v", c)
		}
	}
	if len(all) != 9 || seen[shared] != 2 || len(seen) != 8 {
		t.Errorf("%d files, %v", len(all), seen)
	}
	own := tenant.Default
	if list := walk(delivery.ContentFilter{Tenant: &own}); len(list) != 8 {
		t.Errorf("%d of one tenant", len(list))
	}
	if list := walk(delivery.ContentFilter{SHA256: shared}); len(list) != 2 {
		t.Errorf("%d of one name", len(list))
	}
	if list := walk(delivery.ContentFilter{SHA256: shared, Tenant: &theirs}); len(list) != 1 || list[0].Type != "text/html" {
		t.Errorf("%+v", list)
	}
	if content, err := delivery.ReadContent(t.Context(), admin, nil, shared); err != nil || string(content) != "shared" {
		t.Errorf("%q, %v", content, err)
	}
	for what, err := range map[string]error{
		"cursor": func() error {
			_, err := delivery.Contents(t.Context(), admin, delivery.ContentFilter{Cursor: "x"})
			return err
		}(),
		"sha256": func() error {
			_, err := delivery.Contents(t.Context(), admin, delivery.ContentFilter{SHA256: "x"})
			return err
		}(),
	} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := delivery.ReadContent(t.Context(), admin, nil, strings.Repeat("0", 64)); deed.CodeOf(err) != deed.NotFound {
		t.Error(err)
	}
}

// A file is removed by who says why, and not while something needs it or is naming it.
func TestRemoveContent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	free, needed, named := put(t, db, "free"), put(t, db, "needed"), put(t, db, "named")
	id := reserve(t, db, withFile("bob@example.com", needed))[0].ID
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := delivery.Reserve(t.Context(), tx, withFile("ann@example.com", named)); err != nil {
		t.Fatal(err)
	}
	remove := func(sum, reason string) error {
		return delivery.RemoveContent(t.Context(), db.Pool(pgtest.Admin), nil, sum, audit.Act{By: "ann", Reason: reason})
	}
	for _, c := range []struct {
		sum, reason string
		code        deed.Code
		want        string
	}{
		{needed, "wrong", deed.Conflict, id},
		{named, "wrong", deed.Conflict, "try again"},
		{strings.Repeat("0", 64), "wrong", deed.NotFound, "there is no content"},
		{free, "", deed.Invalid, "reason"},
		{"x", "wrong", deed.Invalid, "sha256"},
	} {
		if err := remove(c.sum, c.reason); deed.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	if n := contentsLeft(t, db); n != 3 {
		t.Errorf("%d files are left", n)
	}
	if err := remove(free, "the wrong version"); err != nil {
		t.Fatal(err)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select actor || ' ' || subject_id || ' ' || reason from deed.audit_log where subject_type = 'content'`); len(got) != 1 || got[0] != "ann "+free+" the wrong version" {
		t.Errorf("the audit log has %q", got)
	}
	if _, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), withFile("carl@example.com", free)); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("named afterwards: %v", err)
	}
}

// max_delivery bounds what a payload says: of a file that it names, the name. What the file
// has is bounded by itself.
func TestReserve_ANamedFileIsNotOfThePayload(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `update deed.settings set max_delivery = 4096`)
	content := bytes.Repeat([]byte("b"), 1<<20)
	sum, err := delivery.PutContent(t.Context(), db.Pool(pgtest.App), nil, content, "")
	if err != nil {
		t.Fatal(err)
	}
	f := newFake()
	id := reserve(t, db, withFile("bob@example.com", sum))[0].ID
	inline := email("ann@example.com")
	inline.Payload = delivery.EmailPayload{Subject: "x", Text: "x", Attachments: []delivery.Attachment{{Name: "a", Content: []byte(hex.EncodeToString(content[:4096]))}}}.JSON()
	if _, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), inline); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "over the limit of 4096") {
		t.Errorf("the same in the payload: %v", err)
	}
	run(t, db, fast(f))
	until(t, db, id, delivery.Sent)
	if n := len(f.requests[id][0]); n < len(content) {
		t.Errorf("the request has %d bytes", n)
	}
}

// A file that is put in a transaction of database/sql is there if and only if that commits.
func TestPutContent_DatabaseSQL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, err := sql.Open("pgx", db.URL(pgtest.App))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	work := func(content, mediaType string, end func(*sql.Tx) error) (string, error) {
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		sum, err := deedsql.PutContent(t.Context(), tx, nil, []byte(content), mediaType)
		if err != nil {
			return "", err
		}
		return sum, end(tx)
	}
	if _, err := work("gone", "", (*sql.Tx).Rollback); err != nil || contentsLeft(t, db) != 0 {
		t.Errorf("after a rollback %d, %v", contentsLeft(t, db), err)
	}
	sum, err := work("kept", "text/plain", (*sql.Tx).Commit)
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select encode(sha256, 'hex') || ' ' || type from deed.contents`); err != nil || len(got) != 1 || got[0] != sum+" text/plain" {
		t.Errorf("%q, %v; want %s", got, err, sum)
	}
	for what, err := range map[string]error{
		"empty":   func() error { _, err := work("", "", (*sql.Tx).Commit); return err }(),
		"no type": func() error { _, err := work("x", "pdf", (*sql.Tx).Commit); return err }(),
	} {
		if deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What reads files reads as few pages however many files and deliveries there are, with tables
// that were never analysed: the files of a delivery that is called, who needs one, a page of a list, and what is
// old enough to go.
func TestPlan_ContentsAmongMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	db.Exec(t, pgtest.Owner, `alter table deed.contents set (autovacuum_enabled = off)`)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.contents (tenant_id, sha256, bytes, size, type, created_at, used_at)
		select '00000000-0000-0000-0000-000000000000', sha256(b), b, octet_length(b), 'text/plain', now(), now() - interval '1 second' * n
		from generate_series(1, 20000) n cross join lateral (select convert_to(n::text, 'UTF8') as b) x`)
	sum := put(t, db, "77")
	id := reserve(t, db, withFile("bob@example.com", sum))[0].ID
	other := tenants(t, db, 1)[0].String()
	db.Exec(t, pgtest.Owner, `
		insert into deed.contents (tenant_id, sha256, bytes, size, type, created_at, used_at)
		select $1::text::uuid, sha256(b), b, octet_length(b), 'text/plain', now(), now() - interval '50 days' - interval '1 second' * n
		from generate_series(1, 20) n cross join lateral (select convert_to(n::text, 'UTF8') as b) x`, other)
	manyLanes(t, db, 20_000, `now() + interval '1 day'`)
	claim := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select claim from deed.claim_deliveries('fake', 'w', 1, '1 minute') where id is not null`)
	for _, test := range []struct {
		login      pgtest.Role
		q          string
		rows, most int
	}{
		{pgtest.Worker, fmt.Sprintf(`select * from deed.delivery_contents('%s', %d)`, id, claim), 1, 60},
		{pgtest.Admin, `select * from deed.look_at_contents('9999-01-01', '00000000-0000-0000-0000-000000000000', '', 100, 10)`, 100, 1500},
		{pgtest.Admin, `select * from deed.look_at_contents('9999-01-01', '00000000-0000-0000-0000-000000000000', '', 100, 10, p_tenant => '` + other + `')`, 20, 400},
		{pgtest.Admin, `select * from deed.look_at_contents('9999-01-01', '00000000-0000-0000-0000-000000000000', '', 100, 100, p_sha256 => decode('` + sum + `', 'hex'))`, 1, 60},
		{pgtest.Worker, `select deed.purge_contents('40 days', 10, 'w')`, 1, 600},
	} {
		conn := db.Conn(t, test.login)
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `savepoint a`); err != nil {
			t.Fatal(err)
		}
		pgtest.Measure(t, conn, pgtest.Any, test.q) // the session's first call reads the catalogue
		if _, err := tx.Exec(t.Context(), `rollback to savepoint a`); err != nil {
			t.Fatal(err)
		}
		c := pgtest.Measure(t, conn, test.most, test.q)
		t.Logf("%6d buffers, %3d rows: %s", c.Buffers, c.Rows, test.q)
		if c.Rows != test.rows || c.Buffers > test.most {
			t.Errorf("%s\ntouched %d buffers for %d rows, want at most %d for %d", test.q, c.Buffers, c.Rows, test.most, test.rows)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
