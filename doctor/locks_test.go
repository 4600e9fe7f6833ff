package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// Who asks for a subscription and leaves the transaction open is named.
func lockHeld(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	db.Broken()
	admin, worker, owner := session(t, db, pgtest.Admin, "console"), db.Conn(t, pgtest.Worker), db.Conn(t, pgtest.Owner)
	gid := "held of " + db.Name()
	const short = 10 * time.Second // what is held for less is no trouble
	for again := 9; ; again-- {
		began := time.Now()
		do(t, admin, `begin`, `select deed.subscribe('orders', 'audit')`)
		do(t, worker, `begin`, `select deed.open_window()`, `prepare transaction '`+gid+`'`)
		patient := examine(t, db.Pool(pgtest.Owner), doctor.Options{})
		if time.Since(began) < short || again == 0 {
			find(t, patient, "lock-held", doctor.OK, "")
			break
		}
		do(t, admin, `rollback`) // it may have come to them too late
		do(t, owner, `rollback prepared '`+gid+`'`)
	}
	findings := examine(t, db.Pool(pgtest.Owner), impatient)
	says(t, find(t, findings, "lock-held", doctor.Warn, fmt.Sprintf("pid %d (console)", admin.PgConn().PID())), "list_lock", "idle in transaction", "deed_test_admin")
	says(t, find(t, findings, "lock-held", doctor.Warn, gid), "window_lock", "prepared")
	do(t, owner, `rollback prepared '`+gid+`'`)
}

// waits says whether somebody is named as who waits.
func waits(findings doctor.Findings, subject string) bool {
	return slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Name == "lock-wait" && f.Subject == subject })
}

// Who has locked a face's relation against others is named, and who waits for it.
func TestFindings_AFacesRelationIsLocked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := session(t, db, pgtest.Owner, "console")
	if _, err := schema.InstallFaces(context.Background(), owner, schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	waiter := session(t, db, pgtest.App, "publisher")
	do(t, owner, `begin`, `lock table public.outbox in share mode`)
	ended := make(chan error, 1)
	go func() {
		_, err := waiter.Exec(context.Background(), `insert into public.outbox (topic, payload) values ('t', '{}')`)
		ended <- err
	}()
	subject := fmt.Sprintf("pid %d (publisher)", waiter.PgConn().PID())
	var findings []doctor.Finding
	eventually(t, "who waits", func() bool {
		findings = examine(t, db.Pool(pgtest.Owner), impatient)
		return waits(findings, subject)
	})
	holder := fmt.Sprintf("pid %d (console", owner.PgConn().PID())
	says(t, find(t, findings, "lock-held", doctor.Warn, holder+")"), "public.outbox", "idle in transaction")
	says(t, find(t, findings, "lock-wait", doctor.Warn, subject), holder)
	do(t, owner, `rollback`)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Who has deleted from a face's relation and has not ended is named: until then no
// backfill gets on, as what goes with the deletion is not known.
func TestFindings_AnOpenDeletionFromAFace(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Conn(t, pgtest.Owner)
	if _, err := schema.InstallFaces(context.Background(), owner, schema.Faces(), nil); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `insert into public.outbox (topic, payload) values ('t', '1'), ('t', '2')`)
	const token = "00000000-0000-0000-0000-00000000000a"
	for range 2 { // a receipt each: of one, only one deletion at a time takes any out
		db.Exec(t, pgtest.Worker, `select app.outbox_mark_delivered('`+token+`', array(select id from app.outbox_claim(1, '`+token+`', null)))`)
	}
	remove := `delete from public.outbox where delivered_at is not null and payload = '%d'`
	gid := "deletes from " + db.Name()
	do(t, db.Conn(t, pgtest.Worker), `begin`, fmt.Sprintf(remove, 1), `prepare transaction '`+gid+`'`)
	deleter := session(t, db, pgtest.Worker, "console")
	do(t, deleter, `begin`, fmt.Sprintf(remove, 2))
	db.Exec(t, pgtest.Worker, `select deed.subscribe('t', 's', 'beginning')`)
	step := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select sum(b.added) from deed.subscriptions s cross join lateral deed.backfill(s.id) b where s.name = 's'`)
	}
	for range 5 {
		if n := step(); n != 0 {
			t.Fatalf("%d were given beside the deletion: nobody need be named", n)
		}
	}
	findings := examine(t, db.Pool(pgtest.Owner), impatient)
	says(t, find(t, findings, "lock-held", doctor.Warn, gid), "purges", "prepared")
	says(t, find(t, findings, "lock-held", doctor.Warn, fmt.Sprintf("pid %d (console)", deleter.PgConn().PID())), "purges", "idle in transaction")
	do(t, deleter, `rollback`)
	do(t, owner, `rollback prepared '`+gid+`'`)
	given := 0
	eventually(t, "the backfill to get on", func() bool { given += step(); return given == 2 })
	find(t, examine(t, db.Pool(pgtest.Owner), impatient), "lock-held", doctor.OK, "")
}

// Who waits is named, with whom it waits for.
func lockWait(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	holder, waiter := session(t, db, pgtest.Admin, "console"), session(t, db, pgtest.Admin, "second")
	db.Exec(t, pgtest.Worker, `select deed.declare_topic('orders')`)
	do(t, holder, `begin`, `select deed.subscribe('orders', 'audit')`, `select deed.set_subscription('orders', 'audit', 3)`)
	db.Exec(t, pgtest.Worker, `select deed.subscribe('orders', 's')`)
	do(t, holder, `select deed.set_subscription('orders', 's', 3)`)
	ended := make(chan error, 1)
	go func() {
		_, err := waiter.Exec(context.Background(), `select deed.set_subscription('orders', 's', 4)`)
		ended <- err
	}()
	subject := fmt.Sprintf("pid %d (second)", waiter.PgConn().PID())
	var findings []doctor.Finding
	eventually(t, "who waits", func() bool {
		findings = examine(t, db.Pool(pgtest.Owner), impatient)
		return waits(findings, subject)
	})
	says(t, find(t, findings, "lock-wait", doctor.Warn, subject), fmt.Sprintf("pid %d (console", holder.PgConn().PID()))
	do(t, holder, `rollback`)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
