package campaign_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// oneName is a run's only delivery, through a provider without keys that gives every message of it one name, as a mail
// server does, and the calls that were made.
type oneName struct {
	t     *testing.T
	db    *pgtest.DB
	calls []struct {
		claim  int64
		number int
	}
}

const itsID = `(select id from deed.channel_outbox)`

// call has a worker begin a call.
func (o *oneName) call() {
	o.t.Helper()
	o.db.Exec(o.t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	o.db.Exec(o.t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 1, '1 minute', p_runs => true)`)
	var c struct {
		claim  int64
		number int
	}
	if err := o.db.Pool(pgtest.Worker).QueryRow(o.t.Context(), `
		select c.claim, a.attempts from deed.channel_outbox c, deed.attempt(array[c.id], array[c.claim], array['x'::bytea], null, '1 minute', 'w') a where a.status = 'sending'`).Scan(&c.claim, &c.number); err != nil {
		o.t.Fatal(err)
	}
	o.calls = append(o.calls, c)
}

// answer has what came of call n come, in time or too late.
func (o *oneName) answer(n int, outcome string) {
	o.t.Helper()
	c := o.calls[n-1]
	note := func() {
		o.db.Exec(o.t, pgtest.Worker, `select deed.note_attempts(array[`+itsID+`], array[$1::bigint], array[$2::int], array[$3], array['one'], '{null}', '{null}', '{null}', '{f}', '{0.1}', 'w')`,
			c.claim, c.number, strings.Replace(outcome, "later", "not now", 1))
	}
	if outcome != "accepted" {
		note()
	}
	o.db.Exec(o.t, pgtest.Worker, `select deed.settle(array[`+itsID+`], array[$1::bigint], array[$2], array[case when $2 = 'accepted' then 'one' end], '{null}', '{null}', 'w')`, c.claim, outcome)
	if outcome == "accepted" {
		note()
	}
}

// lost has the lease of a call be over, and the delivery in doubt.
func (o *oneName) lost() {
	o.t.Helper()
	o.db.Exec(o.t, pgtest.Owner, `update deed.channel_outbox set lease_until = now() - interval '1 second'`)
	o.db.Exec(o.t, pgtest.Worker, `select deed.claim_doubts('fake', 'w', 1, '1 minute', false, false)`)
}

// lookedUp has a worker ask for what is in doubt, of which the provider says that it has it.
func (o *oneName) lookedUp() {
	o.t.Helper()
	o.db.Exec(o.t, pgtest.Owner, `update deed.channel_outbox set lease_until = now() - interval '1 second'`)
	o.db.Exec(o.t, pgtest.Worker, `
		select deed.settle(array[d.id], array[d.claim], '{accepted}', '{one}', '{null}', '{null}', 'w') from deed.claim_doubts('fake', 'w', 1, '1 minute', false, true) d where d.action = 'look_up'`)
}

// told has the provider say of a message that it has taken it, as a webhook does.
func (o *oneName) told(message string) {
	o.t.Helper()
	o.db.Exec(o.t, pgtest.Worker, `select deed.prove_delivery(`+itsID+`, $1, 'events')`, message)
}

// decide is what a person says of it.
func (o *oneName) decide(what string) {
	o.t.Helper()
	o.db.Exec(o.t, pgtest.Admin, `select deed.settle_delivery(`+itsID+`, $1, 'I have looked', 'ann', case $1 when 'sent' then 'one' end)`, what)
}

// Where messages of a delivery all have one name, that name is no proof that they are one: what was called twice and
// accepted twice is found, and not signed for. What was called once, or accepted once, is not, whoever has said so first.
func TestContract_C4_TwoMessagesOfOneName(t *testing.T) {
	t.Parallel()
	again := func(o *oneName) {
		o.call()
		o.lost()
		o.decide("send_again")
		o.call()
	}
	for name, c := range map[string]struct {
		happens func(*oneName)
		twice   int
	}{
		"sent again, and the first call comes to its end": {func(o *oneName) { again(o); o.answer(2, "accepted"); o.answer(1, "accepted") }, 1},
		"put off before it was accepted again": {func(o *oneName) {
			again(o)
			o.answer(2, "deferred")
			o.call()
			o.answer(3, "accepted")
			o.answer(1, "accepted")
		}, 1},
		"three times": {func(o *oneName) {
			again(o)
			o.lost()
			o.decide("send_again")
			o.call()
			o.answer(3, "accepted")
			o.answer(2, "accepted")
			o.answer(1, "accepted")
		}, 2},
		"both answers are late": {func(o *oneName) {
			again(o)
			o.lost()
			o.decide("send_again")
			o.answer(2, "accepted")
			o.answer(1, "accepted")
		}, 2},
		"the first answer comes while the second call is made": {func(o *oneName) { again(o); o.answer(1, "accepted"); o.answer(2, "accepted") }, 2},
		"and that one is refused":                              {func(o *oneName) { again(o); o.answer(1, "accepted"); o.answer(2, "refused") }, 0},
		"an event of the first, while the second is made":      {func(o *oneName) { again(o); o.told("first"); o.answer(2, "accepted") }, 1},
		"an event of the second, before its answer":            {func(o *oneName) { again(o); o.told("one"); o.answer(2, "accepted") }, 0},
		"an event of the first, and the second is refused":     {func(o *oneName) { again(o); o.told("first"); o.answer(2, "refused") }, 0},
		"an event of the only call, before its answer":         {func(o *oneName) { o.call(); o.told("one"); o.answer(1, "accepted") }, 0},
		"an event that names none, while the second is made":   {func(o *oneName) { again(o); o.told(""); o.answer(2, "accepted") }, 0},
		"and the first call comes to its end, too":             {func(o *oneName) { again(o); o.told(""); o.answer(2, "accepted"); o.answer(1, "accepted") }, 2},
		"an event that names none, and the call it is of":      {func(o *oneName) { o.call(); o.lost(); o.decide("send_again"); o.told(""); o.answer(1, "accepted") }, 0},
		"an event that names none, of what is in doubt":        {func(o *oneName) { o.call(); o.lost(); o.told(""); o.answer(1, "accepted") }, 0},
		"it answers late":            {func(o *oneName) { o.call(); o.lost(); o.answer(1, "accepted") }, 0},
		"a person has seen it there": {func(o *oneName) { o.call(); o.lost(); o.decide("sent"); o.answer(1, "accepted") }, 0},
		"it was asked for":           {func(o *oneName) { o.call(); o.lookedUp(); o.answer(1, "accepted") }, 0},
		"sent again, refused for now, and the first call was accepted": {func(o *oneName) { again(o); o.answer(2, "later"); o.answer(1, "accepted") }, 0},
		"sent again, refused, and a person has seen it there": {func(o *oneName) {
			again(o)
			o.answer(2, "refused")
			o.decide("sent")
			o.answer(1, "accepted")
		}, 0},
		"the first answer is first": {func(o *oneName) { again(o); o.answer(1, "accepted") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := deploy(t, db, request(t, db, 1))
			expandAll(t, db)
			c.happens(&oneName{t: t, db: db})
			rollUp(t, db)
			want(t, "the run", states(t, db, run), "completed: completed 1/0/0/0/0")
			p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]int64{}
			if c.twice > 0 {
				found["accepted twice"] = int64(c.twice)
			}
			want(t, "found", fmt.Sprint(p.Found), fmt.Sprint(found))
			_, key, _ := ed25519.GenerateKey(nil)
			if _, err := campaign.Sign(t.Context(), db.Pool(pgtest.Worker), run, key, &bytes.Buffer{}); (deed.CodeOf(err) == deed.Conflict) != (c.twice > 0) {
				t.Errorf("signed: %v", err)
			}
		})
	}
}
