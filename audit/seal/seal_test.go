package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/audit/seal"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	text, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.ParsePrivateKey(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sealer(t testing.TB, db *pgtest.DB, key ed25519.PrivateKey, rows int) *seal.Sealer {
	t.Helper()
	s, err := seal.New(t.Context(), db.Pool(pgtest.Worker), key, seal.Options{Rows: rows, Patience: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sealed seals all that there is, for which nobody's transaction is waited.
func sealed(t testing.TB, s *seal.Sealer, want int) {
	t.Helper()
	var err error
	n := 0
	if !pgtest.Wait(pgtest.Patience, func() bool { // other sessions of the test may be just about to end
		var more int
		more, err = s.Seal(t.Context())
		n += more
		return err != nil || n >= want
	}) || err != nil || n != want {
		t.Fatalf("%d rows were sealed, want %d: %v", n, want, err)
	}
}

// act writes n rows of the audit log, of which each has a reason and details.
func act(t testing.TB, db *pgtest.DB, n int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		insert into deed.audit_log (actor, action, subject_type, subject_id, reason, details)
		select 'ann', 'test', 'message', 'm' || i, 'because of ' || i, jsonb_build_object('i', i, 'x', 1.50, 'error', 'too "bad" <' || i || '>')
		from generate_series(1, $1::int) i`, n)
}

func export(t testing.TB, db *pgtest.DB) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := seal.Export(t.Context(), db.Pool(pgtest.Admin), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func check(text []byte, key ed25519.PrivateKey, holds ...string) (seal.Checked, error) {
	return seal.Check(bytes.NewReader(text), seal.CheckOptions{Keys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}, Holds: holds})
}

// What is done to an export is found, and named by the first row that it was done to.
func TestContract_C6_WhatWasDoneToAnExportIsFound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key := newKey(t)
	before := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log`)
	gap := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select nextval('deed.audit_log_n_seq')`) // of a transaction that was rolled back
	act(t, db, 10)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (actor, action, subject_type, reason, details) values ('ann', 'test', 'message', 'because of 11', '{"changed": [0, {"to": 1}]}')`)
	sealed(t, sealer(t, db, key, 4), before+11)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (actor, action, subject_type, reason, details) values ('ann', 'test', 'message', 'because of 12', '{"i": 2}')`)
	act(t, db, 1)
	text := export(t, db)
	good, err := check(text, key)
	if err != nil || good.Sealed != int64(before+11) || good.Unsealed != 2 || good.Erased != 0 || good.Seals != int64((before+11+3)/4) {
		t.Fatalf("%+v %v", good, err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	row := func(want int) (at int, n string) { // the want-th row that act has made
		for i, l := range lines {
			if strings.Contains(l, fmt.Sprintf(`"because of %d"`, want)) {
				_, n, _ := strings.Cut(l, `"n":"`)
				n, _, _ = strings.Cut(n, `"`)
				return i, n
			}
		}
		t.Fatalf("row %d is not in the export", want)
		return 0, ""
	}
	seals := []int{}
	for i, l := range lines {
		if strings.Contains(l, `"leaves"`) {
			seals = append(seals, i)
		}
	}
	first, firstN := row(1)
	third, thirdN := row(3)
	sixth, sixthN := row(6)
	nested, nestedN := row(11)
	unsealed, unsealedN := row(12)
	edit := func(at int, old, becomes string) func([]string) []string {
		return func(l []string) []string {
			if !strings.Contains(l[at], old) {
				t.Fatalf("%s is not in %s", old, l[at])
			}
			l[at] = strings.Replace(l[at], old, becomes, 1)
			return l
		}
	}
	cut := func(at int) func([]string) []string {
		return func(l []string) []string { return slices.Delete(l, at, at+1) }
	}
	for _, c := range []struct {
		name string
		do   func([]string) []string
		want string
	}{
		{"an actor", edit(third, `"ann"`, `"bob"`), "row " + thirdN + " was changed"},
		{"a reason", edit(third, "because of 3", "because of 4"), "row " + thirdN + " was changed: its reason is not what was sealed"},
		{"a detail", edit(third, `"i":3`, `"i":4`), "row " + thirdN + " was changed"},
		{"what a detail quotes", edit(third, "too", "not"), "row " + thirdN + " was changed: its details is not what was sealed"},
		{"a reason that is taken away", edit(third, `"reason":"because of 3",`, ""), "row " + thirdN + " was changed: its reason is not what was sealed"},
		{"something beside", edit(third, `"actor"`, `"beside":1,"actor"`), "is none of an audit log's export"},
		{"a row behind a row", edit(third, "\n", ` {"row":{"n":"1"}}`+"\n"), "is none of an audit log's export"},
		{"a row beside a seal", edit(seals[1], `{"of":`, `{"row":{"n":"1","at":"2026-01-02T03:04:05Z","actor":"bob","login":"","action":"","subject_type":"","affected":"0"},"of":`), "is none of an audit log's export"},
		{"a row beside a seal, behind it", func(l []string) []string {
			l[seals[1]] = strings.TrimSuffix(l[seals[1]], "}\n") + `,"row":{"n":"1","at":"2026-01-02T03:04:05Z","actor":"bob","login":"","action":"","subject_type":"","affected":"0"}}` + "\n"
			return l
		}, "is none of an audit log's export"},
		{"an actor who stands twice", edit(third, `"actor":"ann"`, `"actor":"bob","ACTOR":"ann"`), "is none of an audit log's export"},
		{"a detail that stands twice", edit(third, `"i":3`, `"i":4,"i":3`), "row " + thirdN + " was changed: a key stands twice in its details"},
		{"a detail that stands twice, spelt otherwise", edit(third, `"i":3`, `"\u0069":4,"i":3`), "row " + thirdN + " was changed: a key stands twice in its details"},
		{"a detail of a detail that stands twice", edit(nested, `{"to":1}`, `{"to":2,"to":1}`), "row " + nestedN + " was changed: a key stands twice in its details"},
		{"what a detail quotes, twice", edit(third, `"error":`, `"error":"nothing","error":`), "row " + thirdN + " was changed: a key stands twice in its details"},
		{"a detail of what is not sealed yet, twice", edit(unsealed, `"i":2`, `"i":4,"i":2`), "row " + unsealedN + " was changed: a key stands twice in its details"},
		{"a time", edit(third, `"at":"2`, `"at":"1`), "row " + thirdN + " was changed"},
		{"a row", cut(third), "row " + thirdN + " was removed"},
		{"the last row of a seal", func(l []string) []string { return cut(seals[1] - 1)(l) }, "was removed"},
		{"one more", func(l []string) []string {
			return slices.Insert(l, first, strings.Replace(l[first], `"n":"`+firstN, fmt.Sprintf(`"n":"%d`, gap), 1))
		}, fmt.Sprintf("row %d was added", gap)},
		{"the same twice", func(l []string) []string { return slices.Insert(l, third, l[third]) }, "row " + thirdN + " stands twice"},
		{"two in another order", func(l []string) []string { l[third], l[sixth] = l[sixth], l[third]; return l }, "row " + thirdN + " "},
		{"two neighbours", func(l []string) []string { l[third], l[third-1] = l[third-1], l[third]; return l }, "does not stand in its place"},
		{"one under another number", edit(sixth, `"n":"`+sixthN, `"n":"`+thirdN), "row " + thirdN + " stands twice"},
		{"a seal", cut(seals[1]), "was added"},
		{"a seal with its rows", func(l []string) []string { return slices.Delete(l, seals[1], seals[2]) }, "seal 2 is not there"},
		{"a time of a seal", edit(seals[1], `"at":"2`, `"at":"1`), "seal 2 was changed"},
		{"the end", func(l []string) []string { return l[:len(l)-1] }, "it was cut off"},
		{"the newest seals, and what is behind them", func(l []string) []string {
			return append(l[:seals[1]:seals[1]], fmt.Sprintf(`{"end":{"seals":"1","rows":"%d"}}`, 4))
		}, "seal " + good.Last + " is not in it"},
	} {
		bad := strings.Join(c.do(slices.Clone(lines)), "")
		_, err := check([]byte(bad), key, good.Last)
		if err == nil || !strings.Contains(err.Error(), c.want) || deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if _, err := check(bytes.ReplaceAll(text, []byte(`,"at":`), []byte(` , "at" :  `)), key, good.Last); err != nil {
		t.Errorf("with blanks: %v", err)
	}
	if _, err := check(text, newKey(t)); err == nil || !strings.Contains(err.Error(), "seal 1 is not signed with a key that was given") {
		t.Errorf("another key: %v", err)
	}
}

// So is what the owner does to the table, once nothing keeps him from it.
func TestContract_C6_WhatWasDoneToTheTableIsFound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken()
	key := newKey(t)
	before := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log`)
	act(t, db, 6)
	sealed(t, sealer(t, db, key, 1000), before+6)
	n := pgtest.One[int64](t, db.Pool(pgtest.Owner), `select max(n) - 3 from deed.audit_log`)
	for _, q := range []string{`delete from deed.audit_seals`, `update deed.audit_seals set at = now()`, `delete from deed.audit_blinds`, `update deed.audit_blinds set salt = sha256 where false or salt is not null`} {
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), q); err == nil {
			t.Errorf("%s is not refused", q)
		}
	}
	db.Exec(t, pgtest.Owner, `alter table deed.audit_log disable trigger user`)
	for _, c := range []struct{ do, undo, want string }{
		{`update deed.audit_log set reason = 'else' where n = $1`, `update deed.audit_log set reason = 'because of 3' where n = $1`, "row %d was changed"},
		{`update deed.audit_log set affected = 2 where n = $1`, `update deed.audit_log set affected = 1 where n = $1`, "row %d was changed"},
		{`update deed.audit_log set reason = 'erased' where n = $1`, `update deed.audit_log set reason = 'because of 3' where n = $1`, "row %d was changed"},
		{`update deed.audit_log set tenant_id = deed.current_tenant() where n = $1`, `update deed.audit_log set tenant_id = null where n = $1`, "row %d was changed"},
		{`delete from deed.audit_log where n = $1`, ``, "row %d was removed"},
	} {
		db.Exec(t, pgtest.Owner, c.do, n)
		_, err := check(export(t, db), key)
		if f, ok := errors.AsType[*seal.Finding](err); !ok || f.Row != n || !strings.HasPrefix(f.Error(), fmt.Sprintf(c.want, n)) {
			t.Errorf("%s: %v, want %s", c.do, err, fmt.Sprintf(c.want, n))
		}
		if c.undo != "" {
			db.Exec(t, pgtest.Owner, c.undo, n)
		}
	}
}

// Nothing is sealed that a transaction may still precede, however late it commits, whatever
// comes behind it, and though it has no id of its own yet.
func TestContract_C6_AnOpenTransactionIsNotPassedOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key := newKey(t)
	s := sealer(t, db, key, 1000)
	sealed(t, s, pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log`))
	open, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	if _, err := open.Exec(t.Context(), `insert into deed.audit_log (actor, action, subject_type) values ('slow', 'test', 'message')`); err != nil {
		t.Fatal(err)
	}
	act(t, db, 3)
	if n, err := s.Seal(t.Context()); n != 0 || err != nil {
		t.Fatalf("%d rows were sealed beside one that may precede them: %v", n, err)
	}
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealed(t, s, 4)
	if c, err := check(export(t, db), key); err != nil || c.Unsealed != 0 {
		t.Fatalf("%+v %v", c, err)
	}
	// One that is taken back has left a gap, which is none of the seals'.
	if open, err = db.Pool(pgtest.Owner).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(t.Context(), `insert into deed.audit_log (actor, action, subject_type) values ('slow', 'test', 'message')`); err != nil {
		t.Fatal(err)
	}
	act(t, db, 1)
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sealed(t, s, 1)
	if c, err := check(export(t, db), key); err != nil || c.Unsealed != 0 {
		t.Fatalf("%+v %v", c, err)
	}
}

// Sealers beside each other and beside writers make one chain.
func TestContract_C6_SealersAtOnceMakeOneChain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key := newKey(t)
	act(t, db, 40)
	done := make(chan error)
	for range 3 {
		s := sealer(t, db, key, 3)
		go func() {
			for range 10 {
				if _, err := s.Seal(t.Context()); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 10 {
		act(t, db, 2)
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s := sealer(t, db, key, 1000)
	total := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log`)
	sealed(t, s, total-pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(rows), 0)::int from deed.audit_seals`))
	if c, err := check(export(t, db), key); err != nil || c.Sealed != int64(total) {
		t.Fatalf("%+v %v", c, err)
	}
}

// Retention leaves the seals and what they are over; an erasure takes a reason away, and the
// rest is proved as before. What stands where something was erased is found.
func TestContract_C6_SealsHoldBesideErasuresAndRetention(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	key := newKey(t)
	list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "email", Value: "ann@example.com"}}})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{ann@example.com}', 'ann@example.com asked to', 'bob')`)
	db.Exec(t, pgtest.Owner, `insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, reason) values ('00000000-0000-0000-0000-000000000000', 'bob', 'look', 'contact', $1, 'ann has called')`, list[0].ID)
	s := sealer(t, db, key, 1000)
	before := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log`)
	sealed(t, s, before)
	first, err := check(export(t, db), key)
	if err != nil || first.Erased != 0 {
		t.Fatalf("%+v %v", first, err)
	}
	if _, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, list[0].ID, audit.Act{By: "bob", Reason: "asked to"}, contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Admin, `select deed.purge_history()`)
	db.Exec(t, pgtest.Worker, `select deed.purge_deliveries('1 day', 100, 'w')`)
	text := export(t, db)
	if strings.Contains(string(text), "ann has called") {
		t.Error("what was erased is in the export")
	}
	got, err := check(text, key, first.Last)
	if err != nil || got.Erased == 0 || got.Sealed != int64(before) {
		t.Fatalf("%+v %v", got, err)
	}
	if salts := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(b.salt)::int from deed.audit_blinds b join deed.audit_log a on a.n = b.n where b.part = 'reason' and a.reason = 'erased'`); salts != 0 {
		t.Errorf("%d salts of what was erased are there: it can be guessed", salts)
	}
	bad := strings.Replace(string(text), `"reason":"erased"`, `"reason":"he wanted it"`, 1)
	if _, err := check([]byte(bad), key); err == nil || !strings.Contains(err.Error(), "its reason stands where one was erased") {
		t.Errorf("another reason: %v", err)
	}
}

// Keys that openssl makes are keys, and so are ours for it; what is none says so, and nothing of it.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, public := filepath.Join(dir, "key.pem"), filepath.Join(dir, "public.pem")
	for _, line := range []string{"openssl genpkey -algorithm ed25519 -out " + private, "openssl pkey -in " + private + " -pubout -out " + public} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	key, err := seal.ParsePrivateKey(read(private))
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Split(read(private), "\n")[1]
	if again, err := seal.ParsePrivateKey(line); err != nil || !again.Equal(key) {
		t.Errorf("the one line of it: %v", err)
	}
	theirs, err := seal.ParsePublicKey(read(public))
	if err != nil || !theirs.Equal(key.Public()) {
		t.Fatal(err)
	}
	if ours, err := seal.PublicKey(key); err != nil || string(ours) != read(public) {
		t.Errorf("%s %v", ours, err)
	}
	for _, bad := range []string{"", "secret-that-is-none", line[:20], read(public)} {
		if _, err := seal.ParsePrivateKey(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
