package delivery_test

import (
	"fmt"
	"testing"
	"time"

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
	program.Start(t, "settled:1", env...).Crashed(t, "settled:1", time.Minute)
	other := program.Start(t, "", env...)
	eventually(t, "everything to be finished or held", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select count(*) = $1 from deed.channel_outbox where finished_at is not null or held_at is not null`, crashDeliveries)
	})
	other.Stop()
	if err := other.Wait(t, time.Minute); err != nil {
		t.Errorf("the other worker ended with %v", err)
	}
	judgeCrash(t, db, &figures{rows: map[string]*figure{}}, f.times(), "resend-batch", delivery.AtMostOnce)
}
