package delivery_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// past puts deliveries that have ended into the ledger.
func past(t testing.TB, db *pgtest.DB, from, to int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, status, skipped, skip_reason, finished_at, due, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('ended' || n, 'UTF8')), 'email', 'fake', 'example.com', 'a' || n || '@example.com', '{}',
			'skipped', true, 'test', now(), false, now(), now()
		from generate_series($1::int, $2::int) n`, from, to)
}

// An erasure looks at what is open, and not at all that has ended, in a ledger of which
// nothing was analysed, and then of which all was. (Of a million it is the same.)
func TestPlan_AnErasureReadsWhatIsOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	past(t, db, 1, 30_000)
	for _, analysed := range []bool{false, true} {
		if analysed {
			db.Exec(t, pgtest.Owner, `analyze deed.channel_outbox, deed.audit_log, deed.contacts, deed.contact_identities, deed.suppressions`)
		}
		ann := person(t, db, mail(fmt.Sprintf("ann%t@example.com", analysed)))
		named := email("elsewhere@example.com", fmt.Sprint(analysed))
		named.Contact = ann
		made := reserve(t, db, named, email(fmt.Sprintf("ann%t@example.com", analysed)), email("stranger@example.com", fmt.Sprint(analysed)))
		err := pgx.BeginFunc(t.Context(), db.NewPool(pgtest.App, 1), func(tx pgx.Tx) error {
			read := pgtest.RowsRead(t, tx)
			_, err := contact.Erase(t.Context(), tx, nil, ann, gdpr, contact.EraseOptions{})
			for table, n := range read() {
				if n > 150 {
					t.Errorf("analysed %t: %d rows of %s were read", analysed, n, table)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []delivery.Status{delivery.Skipped, delivery.Skipped, delivery.Queued} {
			if e := entry(t, db, made[i].ID); e.Status != want {
				t.Errorf("%d is %s", i, e.Status)
			}
		}
	}
}

// Many that are erased, as after a restore, are one walk of the ledger, in which everybody's are
// found: by name, by address, by a copy, and what is two persons' once. What a record repeats
// nobody is called for meanwhile.
func TestErase_ManyAreOneWalk(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t) // others' transactions would hold it up
	const persons, limit = 40, 100
	past(t, db, 1, 900)
	ids := make([]string, persons)
	var list []delivery.Delivery
	for i := range persons {
		ids[i] = person(t, db, mail(fmt.Sprintf("p%d@example.com", i)))
		named := email("elsewhere@example.com", fmt.Sprint(i))
		named.Contact = ids[i]
		both := email(fmt.Sprintf("p%d@example.com", (i+1)%persons), "both", fmt.Sprint(i))
		both.Contact = ids[i]
		list = append(list, named, both, email(fmt.Sprintf("P%d@example.com", i), "address"))
	}
	made := reserve(t, db, append(list, email("stranger@example.com"))...)
	for _, id := range ids {
		erase(t, db, id, contact.EraseOptions{Recorded: true})
	}
	// By name at once, and by address as soon as somebody walks; before that it is stopped at the door.
	if e := entry(t, db, made[0].ID); e.Status != delivery.Skipped {
		t.Errorf("what names them is %s", e.Status)
	}
	f := newFake()
	run(t, db, fast(f))
	until(t, db, made[2].ID, delivery.Skipped)
	until(t, db, made[len(made)-1].ID, delivery.Sent)
	steps := 0
	for pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.erase_step($1, 'keeper')`, limit) > 0 {
		steps++
	}
	if most := (900+len(made))/limit + 2; steps > most {
		t.Errorf("%d steps, want one walk of at most %d", steps, most)
	}
	erased(t, db, limit)
	for i, m := range made[:len(made)-1] {
		if e := entry(t, db, m.ID); e.Status != delivery.Skipped || e.Recipient != "" || f.called(m.ID) > 0 {
			t.Errorf("%d: %s to %q, called %d times", i, e.Status, e.Recipient, f.called(m.ID))
		}
	}
	if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', count(*), sum(deliveries), count(finished_at)) from deed.erasures`); got != fmt.Sprintf("%d %d %d", persons, 3*persons, persons) {
		t.Errorf("erasures, deliveries, finished: %s", got)
	}
	if got := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where recipient is not null`); got != 901 {
		t.Errorf("%d strangers' are left", got)
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select invariant || ': ' || detail from deed.verify()`); len(got) > 0 {
		t.Errorf("deed.verify: %q", got)
	}
}
