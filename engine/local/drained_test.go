package local_test

import (
	"testing"
	"time"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
)

// An engine has nothing left to do while what there is waits: for a later time, for a delivery that is on its way, for a
// handler of another's. It has once a step is due, is being done, or waits for a delivery that has ended.
func TestEngine_Drained(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "post", "mail") // which nobody serves
	e, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	drained := func(what string, wants bool) {
		t.Helper()
		got, err := e.Drained(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want(t, what, got, wants)
	}
	owner := db.Pool(pgtest.Owner)
	drained("nothing there", true)
	put(t, db, `
plan: p
version: "1"
steps:
  mail: {kind: deliver, channel: email, provider: mail, to: a@example.com, payload: {subject: Paid}, wait: sent}
  long: {kind: sleep, for: 10h}
  code: {kind: go, handler: none}
`)
	start(t, db, "a", nil)
	drained("steps are due", false)
	_, stop := serve(t, db, local.Options{})
	eventually(t, "the steps to wait", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.run_steps where parked and not ready`) == 2
	})
	stop()
	drained("they wait", true)
	db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = now() + interval '30 seconds' where step_id = 'long'`)
	drained("one is due within a minute", false)
	db.Exec(t, pgtest.Owner, `update deed.run_steps set process_after = now() + interval '10 hours' where step_id = 'long'`)
	p := mails(t, db)
	eventually(t, "the mail", func() bool {
		keys, _ := p.counts()
		return keys == 1 && pgtest.One[bool](t, owner, `select not exists (select from deed.channel_outbox where status in ('queued', 'sending'))`)
	})
	drained("the delivery has ended", false)
	serve(t, db, local.Options{PollInterval: time.Second})
	eventually(t, "all to be done", func() bool { yes, err := e.Drained(t.Context()); return err == nil && yes })
	want(t, "what is left", pgtest.One[string](t, owner, `select string_agg(step_id, ' ' order by step_id) from deed.run_steps`), "code long")
}
