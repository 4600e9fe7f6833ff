package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// An import that is killed wherever it is goes on from what it had stored, or begins anew: in the
// end everybody is there once. Merges and unmerges that are made beside it are not lost.
func TestContacts_ImportKilledAndResumed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const rows = 3000
	var text strings.Builder
	text.WriteString("external_id,email,data.plan\n")
	for i := range rows {
		fmt.Fprintf(&text, "c%d,c%d@example.com,free\n", i, i)
	}
	file := filepath.Join(t.TempDir(), "contacts.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	owner := db.Pool(pgtest.Owner)
	count := func() int { return pgtest.One[int](t, owner, `select count(*)::int from deed.contacts`) }
	done := func(args ...string) string {
		t.Helper()
		p := start(t, db.URL(pgtest.App), args...)
		if code := p.wait(); code != 0 {
			t.Fatalf("%v: status %d", args, code)
		}
		return p.out.String()
	}
	var merged []string
	for kill := range 4 { // each a little later, and one while somebody merges
		before := count()
		p := start(t, db.URL(pgtest.App), "contacts", "import", file, "--batch", "50")
		eventually(t, "some to be stored", func() bool {
			select {
			case <-p.done:
				return true
			default:
				return count() >= min(rows, before+200)
			}
		})
		if kill > 0 {
			from := fmt.Sprintf("external_id:c%d", kill)
			id := pgtest.One[string](t, owner, `select contact_id::text from deed.contact_identities where value = $1`, strings.TrimPrefix(from, "external_id:"))
			done("contacts", "merge", id, pgtest.One[string](t, owner, `select contact_id::text from deed.contact_identities where value = 'c0'`), "--reason", "one person")
			merged = append(merged, id)
		}
		_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
		<-p.done
	}
	done("contacts", "unmerge", merged[0], "--reason", "they are two")
	for range 2 {
		done("contacts", "import", file, "--batch", "500")
	}
	if out := done("contacts", "import", file); !strings.Contains(out, fmt.Sprintf("created 0, updated 0, unchanged %d, conflicts 0, rejected 0", rows)) {
		t.Errorf("the whole file again: %s", out)
	}
	got := pgtest.One[string](t, owner, `
		select concat_ws(' ', count(*), count(distinct lower(i.value)), (select count(*) from deed.contacts c), (select count(*) from deed.contacts c where c.merged_into is not null))
		from deed.contact_identities i`)
	if want := fmt.Sprintf("%d %d %d %d", 2*rows, 2*rows, rows, len(merged)-1); got != want {
		t.Errorf("identities, values, contacts, merged: %s, want %s", got, want)
	}
	root := pgtest.One[string](t, owner, `select contact_id::text from deed.contact_identities where value = 'c0'`)
	for i, id := range merged {
		want := root
		if i == 0 {
			want = ""
		}
		if into := pgtest.One[string](t, owner, `select coalesce(merged_into::text, '') from deed.contacts where id = $1::text::uuid`, id); into != want {
			t.Errorf("%s is merged into %q, want %q", id, into, want)
		}
	}
}
