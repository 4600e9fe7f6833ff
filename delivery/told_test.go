package delivery_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What is decided without the provider has one log line a delivery, with its
// ids, as it has one entry in the audit log: held and dead are errors.
func TestLog_WhatIsDecidedWithoutTheProvider(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		return delivery.Unknown(errCut), true
	}
	var said logs
	opts := fast(f)
	opts.Logger = said.logger()
	often := email("often@example.com")
	often.Guarantee, often.MaxAttempts, often.CorrelationID = delivery.AtLeastOnce, 2, "corr-often"
	once := email("once@example.com")
	once.CorrelationID = "corr-once"
	made := reserve(t, db, often, once, email("lost@example.com"))
	worker := db.Pool(pgtest.Worker)
	claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('fake', 'gone', 10, '1 minute') where id = $1::text::uuid`, made[2].ID)
	pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], null, '1 minute', 'gone')`, made[2].ID, claim)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox
		set lease_until = case status when 'sending' then clock_timestamp() - interval '1 second' end,
		  claim = case status when 'sending' then claim end, claimed_at = case status when 'sending' then claimed_at end, claimed_by = case status when 'sending' then claimed_by end`)
	_, stop := run(t, db, opts)
	until(t, db, made[0].ID, delivery.Dead)
	held(t, db, made[1].ID)
	held(t, db, made[2].ID)
	stop()
	for _, c := range []struct {
		id, level, message, more string
		n                        int
	}{
		{made[0].ID, "INFO", "delivery is queued again", "corr-often", 1},
		{made[0].ID, "ERROR", "delivery is dead", "corr-often", 1},
		{made[1].ID, "ERROR", "delivery is held for a person", "corr-once", 1},
		{made[2].ID, "WARN", "delivery is in doubt", "to=sending", 1},
		{made[2].ID, "ERROR", "delivery is held for a person", "to=sending", 1},
	} {
		n := 0
		for line := range strings.Lines(said.String()) {
			if strings.Contains(line, c.message) && strings.Contains(line, "delivery="+c.id) && strings.Contains(line, "level="+c.level) &&
				strings.Contains(line, c.more) && strings.Contains(line, "tenant=") {
				n++
			}
		}
		if n != c.n {
			t.Errorf("%d lines say at %s that %s %s, want %d", n, c.level, c.id, c.message, c.n)
		}
	}
	if t.Failed() {
		t.Log(said.String())
	}
}

// Of whoever has opted out at the provider the log says that, and of no sandbox.
func TestLog_WhoHasOptedOut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var said logs
	opts := fast(answers(delivery.OptedOut(errors.New("they said stop"))))
	opts.Logger = said.logger()
	made := reserve(t, db, email("stop@example.com"))
	_, stop := run(t, db, opts)
	until(t, db, made[0].ID, delivery.Skipped)
	stop()
	if text := said.String(); !strings.Contains(text, "delivery skipped: they have opted out") || strings.Contains(text, "went to the sandbox") {
		t.Error(text)
	}
}
