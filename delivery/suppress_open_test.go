package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Whose transaction is open, with fifty addresses in it that a provider calls bad, holds up what became of those
// fifty, and of nobody else: that is recorded within seconds, and theirs once it has ended.
func TestContract_D11_ASuppressionLeftOpenHoldsUpNoOutcome(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if strings.HasPrefix(r.Recipient(), "bad") {
			return delivery.BadAddress(errors.New("5.1.1 no such user")), false
		}
		return delivery.Accepted("m-" + r.ID()), true
	}
	var bad, well []delivery.Delivery
	var addresses []string
	for i := range 50 {
		bad = append(bad, email(fmt.Sprintf("bad%d@example.com", i)))
		addresses = append(addresses, bad[i].Recipient)
	}
	for i := range 200 {
		well = append(well, email(fmt.Sprintf("well%d@example.org", i)))
	}
	made := reserve(t, db, bad...)
	end := leftOpen(t, db, pgtest.Owner, `select deed.suppress('email', $1, 'asked for', 'somebody', '00000000-0000-0000-0000-000000000000')`, addresses)
	var log logs
	opts := fast(f)
	opts.Logger = log.logger()
	run(t, db, opts)
	owner := db.Pool(pgtest.Owner)
	if took := lastOf(t, db, "those", well); took > 5*time.Second {
		t.Errorf("others' outcomes were recorded within %s", took)
	}
	eventually(t, "the fifty to be called", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where recipient like 'bad%' and status = 'sending' and lease_until > clock_timestamp()`) == 50
	})
	if text := log.String(); strings.Contains(text, "exchange failed") {
		t.Errorf("others were undone: %.2000s", text)
	}
	end()
	for _, m := range made {
		if e := until(t, db, m.ID, delivery.Failed); e.Attempts != 1 || !slices.Equal(outcomes(t, db, m.ID), []string{"bad address"}) {
			t.Errorf("%+v, %q", e, outcomes(t, db, m.ID))
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*) from deed.audit_log where action = 'doubt' or to_status = 'sending' and from_status = 'sending'`); n != 0 {
		t.Errorf("%d were in doubt", n)
	}
	if n := len(suppressed(t, db)); n != 50 {
		t.Errorf("%d are suppressed", n)
	}
}

// Who asks as before is refused, and nothing of it is recorded, as in older processes: they let go
// of what they hear nothing of.
func TestSettle_OlderProcessesAreRefusedBesideAnOpenSuppression(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, stop := run(t, db, fast(newFake())) // which registers the provider
	stop()
	made := reserve(t, db, email("bad@example.com"), email("well@example.com"))
	db.Exec(t, pgtest.Owner, `select from deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
	db.Exec(t, pgtest.Worker, `
		select from deed.channel_outbox c, lateral deed.attempt(array[c.id], array[c.claim], array['x'::bytea], null, '1 minute', 'w', 'fake', '', false) a`)
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sending'`); n != 2 {
		t.Fatalf("%d are being called", n)
	}
	settle := func(leave string) (list []string, err error) {
		rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `
			select o.recipient || ' ' || s.status || ' ' || s.busy
			from (select array_agg(c.id order by c.recipient) as ids, array_agg(c.claim order by c.recipient) as claims from deed.channel_outbox c) c,
			  deed.settle(c.ids, c.claims, '{bad_address,accepted}', '{null,m}', '{"no such user",null}', '{null,null}', 'w'`+leave+`) s
			join deed.channel_outbox o on o.id = s.id
			order by 1`)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, rows.Err()
	}
	end := leftOpen(t, db, pgtest.Owner, `select deed.suppress('email', '{bad@example.com}', 'asked for', 'somebody', '00000000-0000-0000-0000-000000000000')`)
	if list, err := settle(""); sqlState(err) != "55P03" {
		t.Errorf("as before: %q, %v", list, err)
	}
	if got := entry(t, db, made[1].ID).Status; got != delivery.Sending {
		t.Errorf("the other is %s", got)
	}
	for range 2 { // again, harmless
		if list, err := settle(", p_leave => true"); err != nil || len(list) == 0 || list[0] != "bad@example.com sending true" {
			t.Errorf("%q, %v", list, err)
		}
		if got := entry(t, db, made[1].ID).Status; got != delivery.Sent {
			t.Errorf("the other is %s", got)
		}
	}
	end()
	if list, err := settle(", p_leave => true"); err != nil || !slices.Equal(list, []string{"bad@example.com failed false"}) {
		t.Errorf("%q, %v", list, err)
	}
}
