package delivery_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// A worker whose outcomes the database refuses, so that it records fewer and fewer at once, is
// killed when it has recorded the first ones: a batch of which some members were and others
// were not could never be repeated, and those would wait for a person.
func TestContract_D5_ABatchIsRecordedWhole(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/deliverer")
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `create sequence deed.refused`)
	db.Exec(t, pgtest.Owner, `
		create function deed.refuse() returns trigger language plpgsql as $$
		begin
		  if nextval('deed.refused') <= 3 then -- the call with a claim, all alone, and half
		    raise exception 'refused';
		  end if;
		  return new;
		end
		$$`)
	db.Exec(t, pgtest.Owner, `create trigger refuses before insert on deed.audit_log for each row when (new.action = 'settle') execute function deed.refuse()`)
	f := newFar(t, "resend-batch", db)
	env := []string{
		"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_PROVIDER=resend-batch", "VICTIM_ADDRESS=" + f.address,
		"VICTIM_GUARANTEE=" + string(delivery.AtMostOnce), fmt.Sprintf("VICTIM_DELIVERIES=%d", crashDeliveries),
	}
	program.Start(t, "settled:1", env...).Crashed(t, "settled:1", pgtest.Patience)
	other := program.Start(t, "", env...)
	eventually(t, "everything to be finished or held", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select count(*) = $1 from deed.channel_outbox where finished_at is not null or held_at is not null`, crashDeliveries)
	})
	other.Stop()
	if err := other.Wait(t, pgtest.Patience); err != nil {
		t.Errorf("the other worker ended with %v", err)
	}
	judgeCrash(t, db, &figures{rows: map[string]*figure{}}, f.times(), "resend-batch", delivery.AtMostOnce)
}

// The first member of a batch in doubt stands for all, also where a later one's time has come beside it.
func TestContract_D5_ABatchIsRepeatedWholeWhoeverIsDue(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newVan(10).reserve(t, db, several(3, nil)...)
	worker := db.Pool(pgtest.Worker)
	attempted(t, worker, 3)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp()`)
	db.Exec(t, pgtest.Worker, `select from deed.claim_doubts('fake', 'w', 0, '1 minute', true, false, p_batches => true)`) // in doubt by now
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '1 second' * batch_place where batch_place in (1, 3)`)
	if got := repeatedOf(t, db); got != "repeat 1, repeat 2, repeat 3" {
		t.Errorf("claimed: %q", got)
	}
}

// Whoever repeated a batch is gone when its first member is in doubt again, and the others still in hand: it is
// repeated whole once more.
func TestContract_D5_ABatchIsRepeatedWholeOnceMore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newVan(10).reserve(t, db, several(3, nil)...)
	attempted(t, db.Pool(pgtest.Worker), 3)
	unknown := func(places ...int) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `
			select from deed.channel_outbox c
			cross join lateral deed.settle(array[c.id], array[c.claim], '{unknown}', '{null}', '{cut}', '{null}', 'w', p_base => '0') s
			where c.batch_place = any ($1)`, places)
	}
	unknown(1, 2, 3)
	if got := repeatedOf(t, db); got != "repeat 1, repeat 2, repeat 3" {
		t.Fatalf("claimed: %q", got)
	}
	unknown(1)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() where lease_until is not null`)
	if got := repeatedOf(t, db); got != "" {
		t.Errorf("claimed, with two members in somebody's hand: %q", got)
	}
	if got := repeatedOf(t, db); got != "repeat 1, repeat 2, repeat 3" {
		t.Errorf("claimed: %q", got)
	}
}

// repeatedOf claims doubts, and says what is to be done with which members of a batch.
func repeatedOf(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select coalesce(string_agg(action || ' ' || batch_place, ', ' order by batch_place), '')
		from deed.claim_doubts('fake', 'w', 8, '1 minute', true, false, p_batches => true)`)
}
