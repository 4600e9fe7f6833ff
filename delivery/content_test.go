package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// put keeps a file of the default tenant's.
func put(t testing.TB, db *pgtest.DB, content string) string {
	t.Helper()
	sum, err := delivery.PutContent(t.Context(), db.Pool(pgtest.App), nil, []byte(content), "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// withFile is an e-mail whose attachment names a file.
func withFile(recipient, sum string) delivery.Delivery {
	d := email(recipient, "file")
	d.Payload = delivery.EmailPayload{Subject: "x", Text: "x", Attachments: []delivery.Attachment{{Name: "a.txt", SHA256: sum}}}.JSON()
	return d
}

func contentsLeft(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.contents`)
}

func ageContents(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.contents set used_at = now() - interval '40 days'`)
}

// ageAnHour has all files put and named so long ago that nobody is about to name them.
func ageAnHour(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.contents set used_at = now() - interval '2 hours'`)
	db.Exec(t, pgtest.Owner, `update deed.erased_contents set tried_at = tried_at - interval '1 minute'`)
}

// purgeContents returns how many files went.
func purgeContents(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	before := contentsLeft(t, db)
	db.Exec(t, pgtest.Worker, `select deed.purge_contents('30 days', 100, 'w')`)
	return before - contentsLeft(t, db)
}

// What an attachment names is in the request as if its bytes had been in the payload, with the
// type that it was put with; what is repeated are the bytes of the first call, whatever
// became of the file.
func TestContract_D5_AFileThatIsNamedIsInTheRequest(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if n == 1 {
			return delivery.NotNow(errors.New("busy"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	sum := put(t, db, "hello file")
	if again := put(t, db, "hello file"); again != sum || contentsLeft(t, db) != 1 {
		t.Errorf("put again: %s and %s, %d rows", sum, again, contentsLeft(t, db))
	}
	id := reserve(t, db, withFile("bob@example.com", sum))[0].ID
	run(t, db, fast(f))
	until(t, db, id, delivery.Sent)
	var got [2]delivery.EmailPayload
	for i, request := range f.requests[id] {
		if err := json.Unmarshal([]byte(request), &got[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a := got[0].Attachments; len(f.requests[id]) != 2 || len(a) != 1 || string(a[0].Content) != "hello file" || a[0].Type != "text/plain" || a[0].SHA256 != "" || f.requests[id][0] != f.requests[id][1] {
		t.Errorf("requests: %q", f.requests[id])
	}
}

// A reservation is refused, and nothing stored, that names what is not there, another
// tenant's, no SHA-256, or more than 7 MiB together; a duplicate is one whatever became of its file.
func TestReserve_FilesThatAreNamed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	sum, missing := put(t, db, "x"), strings.Repeat("0", 64)
	theirs := pgtest.One[string](t, db.Pool(pgtest.Owner), `insert into deed.contents (tenant_id, sha256, bytes, size, type, created_at, used_at)
		values ('00000000-0000-4000-8000-000000000007', sha256('theirs'), 'theirs', 6, 'text/plain', now(), now()) returning encode(sha256, 'hex')`)
	big, err := delivery.PutContent(t.Context(), db.Pool(pgtest.App), nil, bytes.Repeat([]byte("b"), 4<<20), "")
	if err != nil {
		t.Fatal(err)
	}
	raw := func(attachments string) string {
		return `{"subject": "x", "text": "x", "attachments": ` + attachments + `}`
	}
	for what, c := range map[string]struct {
		payload, state, want string
	}{
		"not there":        {raw(`[{"name": "a", "sha256": "` + missing + `"}]`), "DDNFD", "delivery 1: there is no content " + missing},
		"another tenant's": {raw(`[{"name": "a", "sha256": "` + theirs + `"}]`), "DDNFD", theirs},
		"no SHA-256":       {raw(`[{"name": "a", "sha256": "ABC"}]`), "DDARG", "sha256 of an attachment"},
		"beside its bytes": {raw(`[{"name": "a", "sha256": "` + sum + `", "content": "eA=="}]`), "DDARG", "sha256 of an attachment"},
		"too much":         {raw(`[{"name": "a", "sha256": "` + big + `"}, {"name": "b", "sha256": "` + big + `"}]`), "DDARG", "7 MiB"},
		"one that is":      {raw(`[{"name": "a", "sha256": "` + sum + `"}, {"name": "b", "content": "eA=="}]`), "", ""},
	} {
		_, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed.reserve('{email}', '{fake}', '{bob@example.com}', array[$1::jsonb], array[sha256(convert_to($2, 'UTF8'))])`, c.payload, what)
		if sqlState(err) != c.state || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.channel_outbox`); n != 1 {
		t.Errorf("%d deliveries", n)
	}
	d := withFile("bob@example.com", sum)
	first := reserve(t, db, d)[0].ID
	l, stop := run(t, db, fast(newFake()))
	drained(t, l)
	stop()
	ageContents(t, db)
	if n := purgeContents(t, db); n != 3 {
		t.Errorf("%d removed", n)
	}
	if again := reserve(t, db, d)[0]; !again.Duplicate || again.ID != first {
		t.Errorf("again: %+v", again)
	}
	d.Key = delivery.NewKey("another")
	if _, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), d); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("of a file that is gone: %v", err)
	}
	for _, content := range [][]byte{nil, make([]byte, 7<<20+1)} {
		if _, err := delivery.PutContent(t.Context(), db.Pool(pgtest.App), nil, content, ""); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("put of %d bytes: %v", len(content), err)
		}
	}
}

// In one transaction with what it is for: neither is there if it does
// not commit.
func TestPutContent_InTheTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	work := func(tx deed.DB, to string) error {
		sum, err := delivery.PutContent(t.Context(), tx, nil, []byte(to), "")
		if err != nil {
			return err
		}
		_, err = delivery.Reserve(t.Context(), tx, withFile(to, sum))
		return err
	}
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := work(tx, "ann@example.com"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil || contentsLeft(t, db) != 0 {
		t.Errorf("after a rollback: %d, %v", contentsLeft(t, db), err)
	}
	if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error { return work(tx, "bob@example.com") }); err != nil {
		t.Fatal(err)
	}
	if n := contentsLeft(t, db); n != 1 {
		t.Errorf("%d files", n)
	}
}

// A file stays while something unfinished needs it, or what failed may be put back; and one
// that is being named by a reservation that has not committed, or did so while it was purged.
func TestPurgeContents_NeverWhatIsNeeded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sum := put(t, db, "x")
	id := reserve(t, db, withFile("bob@example.com", sum))[0].ID
	ageContents(t, db)
	if n := purgeContents(t, db); n != 0 {
		t.Errorf("queued: %d removed", n)
	}
	_, stop := run(t, db, fast(answers(delivery.Refused(errors.New("no")))))
	until(t, db, id, delivery.Failed)
	stop()
	if n := purgeContents(t, db); n != 0 {
		t.Errorf("failed: %d removed", n)
	}
	sum = put(t, db, "another")
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := delivery.Reserve(t.Context(), tx, withFile("ann@example.com", sum)); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.contents set used_at = now() - interval '40 days'`)
	if n := purgeContents(t, db); n != 0 {
		t.Errorf("%d removed while it is being named", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := purgeContents(t, db); n != 0 || contentsLeft(t, db) != 2 {
		t.Errorf("%d removed of what is named", n)
	}
}

// The gap between a purge's look and its lock: a reservation that names the file commits in
// it, and does not touch it, since somebody else does at that moment, who then gives up. The purge
// looks again once it has the lock.
func TestPurgeContents_ReservedBetweenLookAndLock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	sum := put(t, db, "x")
	ageContents(t, db)
	// Whoever purges stops where it has begun to look.
	db.Exec(t, pgtest.Owner, `
		create function deed.stops() returns boolean language plpgsql as $$
		begin
		  if current_setting('deed.stops', true) = 'on' then
		    perform pg_advisory_xact_lock(4711);
		  end if;
		  return true;
		end
		$$`)
	// Policies are for who is no superuser, as an installation's owner is none.
	for _, sql := range []string{
		`alter policy contents_worker on deed.contents using (deed.stops())`,
		`create policy contents_locked on deed.contents for update to deed_worker using (true)`,
		`grant update on deed.contents to deed_worker`,
		`alter function deed.drop_contents security definer`,
		`alter function deed.purge_erased_contents security definer`,
		`grant execute on function deed.drop_contents, deed.purge_erased_contents to deed_worker`,
		`alter function deed.purge_contents owner to ` + pgtest.One[string](t, db.Pool(pgtest.Worker), `select quote_ident(current_user)`),
	} {
		db.Exec(t, pgtest.Owner, sql)
	}
	gate, purger := db.Conn(t, pgtest.Owner), db.Conn(t, pgtest.Worker)
	for conn, sql := range map[*pgx.Conn]string{gate: `select pg_advisory_lock(4711)`, purger: `select set_config('deed.stops', 'on', false)`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	purged := make(chan error, 1)
	go func() {
		_, err := purger.Exec(t.Context(), `select deed.purge_contents('30 days', 100, 'w')`)
		purged <- err
	}()
	eventually(t, "the purge to look", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_locks l where l.locktype = 'advisory' and l.objid = 4711 and not l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database()))`)
	})
	other, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `select from deed.contents for no key update`); err != nil {
		t.Fatal(err)
	}
	reserve(t, db, withFile("bob@example.com", sum))
	if err := other.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := gate.Exec(t.Context(), `select pg_advisory_unlock(4711)`); err != nil {
		t.Fatal(err)
	}
	if err := <-purged; err != nil {
		t.Error(err)
	}
	if left := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(case when used_at < now() - interval '30 days' then 'old' else 'used' end, ' '), 'none') from deed.contents`); left != "old" {
		t.Errorf("the file is %s: the reservation was to leave it as it is", left)
	}
}

// What only an erased person's deliveries named goes with them; what another's delivery needs stays.
func TestContract_D12_FilesOfTheErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	own, shared := put(t, db, "own"), put(t, db, "shared")
	d := withFile("bob@example.com", own)
	d.Payload = delivery.EmailPayload{Subject: "x", Text: "x", Attachments: []delivery.Attachment{{Name: "a", SHA256: own}, {Name: "b", SHA256: shared}}}.JSON()
	id := reserve(t, db, d, withFile("ann@example.com", shared))[0].ID
	ageAnHour(t, db)
	db.Exec(t, pgtest.Owner, `select deed.erase_deliveries(array[$1::text::uuid], 'x')`, id)
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select convert_from(bytes, 'UTF8') from deed.contents`); len(got) != 1 || got[0] != "shared" {
		t.Errorf("left: %q", got)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select cardinality(contents)::text from deed.channel_outbox where contents is not null`); len(got) != 1 {
		t.Errorf("named by %q", got)
	}
}

// Somebody is erased in a transaction whose snapshot is older than a reservation that names the same
// file: the file stays, and what only the erased one named goes once the erasure has ended.
func TestContract_D12_AnErasureDoesNotSeeWhoNeedsAFile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	own, shared := put(t, db, "own"), put(t, db, "shared")
	d := withFile("bob@example.com", own)
	d.Payload = delivery.EmailPayload{Subject: "x", Text: "x", Attachments: []delivery.Attachment{{Name: "a", SHA256: own}, {Name: "b", SHA256: shared}}}.JSON()
	id := person(t, db, mail("bob@example.com"))
	reserve(t, db, d)
	ageAnHour(t, db)
	tx, err := db.Pool(pgtest.App).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	pgtest.One[int](t, tx, `select count(*) from deed.channel_outbox`)
	ann := reserve(t, db, withFile("ann@example.com", shared))[0].ID
	if _, err := contact.Erase(t.Context(), tx, nil, id, gdpr, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	erased(t, db, 100)
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select convert_from(bytes, 'UTF8') from deed.contents`); len(got) != 1 || got[0] != "shared" {
		t.Errorf("left: %q", got)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select status || ' ' || (erased_at is not null) || ' ' || coalesce(recipient, '') from deed.channel_outbox order by id`); len(got) != 2 || got[0] != "skipped true " {
		t.Errorf("deliveries: %q", got)
	}
	run(t, db, fast(newFake()))
	until(t, db, ann, delivery.Sent)
}
