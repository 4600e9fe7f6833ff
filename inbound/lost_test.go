package inbound_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// claimer claims and ends messages of the source plain, as a process does.
type claimer struct {
	t  *testing.T
	db *pgtest.DB
}

func (c claimer) accept(id string) {
	c.t.Helper()
	c.db.Exec(c.t, pgtest.Worker, `select deed.accept_messages('plain', array[$1], array['telegram'], array['of' || $1], array[''], array[''], array['{}'], '', 'link',
		'00000000-0000-0000-0000-000000000000', 'w')`, id)
}

// claim returns what is to be run, and what is held, as "ID", or "ID held".
func (c claimer) claim() []string {
	c.t.Helper()
	return pgtest.One[[]string](c.t, c.db.Pool(pgtest.Worker), `
		select coalesce(array_agg(platform_message_id || case when held then ' held' else '' end order by platform_message_id), '{}') from deed.claim_messages('plain', 100, '1 hour', 10, 'w')`)
}

// die has the leases of all that is in hand run out.
func (c claimer) die() {
	c.t.Helper()
	c.db.Exec(c.t, pgtest.Owner, `update deed.channel_messages set lease_until = clock_timestamp() - interval '1 second' where claimed_by is not null and status = 'accepted'`)
}

func (c claimer) finish(status string) {
	c.t.Helper()
	c.db.Exec(c.t, pgtest.Worker, `
		select from deed.channel_messages m, deed.finish_messages(array[m.id], array[m.claim], array[$1], array['broken'], array[0]::float8[], 10, 'w')
		where m.claimed_by is not null and m.status = 'accepted'`, status)
}

func (c claimer) errorOf(id string) string {
	c.t.Helper()
	return pgtest.One[string](c.t, c.db.Pool(pgtest.Owner), `select coalesce(error, '') from deed.channel_messages where platform_message_id = $1`, id)
}

// A message that kills its process each time takes along what the process has in hand beside it twice, and no more: from then on it
// is claimed alone, and what comes later is run in between. It alone is held.
func TestContract_D8_AMessageThatKillsHarmsNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := claimer{t, db}
	c.accept("kills")
	c.accept("innocent")
	deaths, alone, came := 0, 0, 0
	for n := 0; ; n++ {
		if n == 400 {
			t.Fatalf("after %d claims: %s", n, state(t, db))
		}
		if deaths >= 2 {
			came++
			c.accept(fmt.Sprint("later", came))
		}
		got := c.claim()
		if slices.Contains(got, "kills held") {
			break
		}
		if !slices.Contains(got, "kills") {
			c.finish("executed")
			continue
		}
		if deaths++; deaths > 2 && len(got) > 1 {
			t.Fatalf("claimed together, after %d deaths: %v", deaths-1, got)
		} else if len(got) == 1 {
			alone++
		}
		c.die()
	}
	want(t, "deaths, and of it alone", fmt.Sprint(deaths, " ", alone), "10 8")
	c.finish("executed")
	for range came { // what came with the last claims
		c.claim()
		c.finish("executed")
	}
	got := state(t, db)
	if !strings.HasPrefix(got, "kills dispatch_failed x10 r0, innocent executed x3 r0, ") || strings.Count(got, "executed x1 r0") != came {
		t.Errorf("messages: %s", got)
	}
	want(t, "why it is held", c.errorOf("kills"), "it was claimed 10 times and never ended: each time the process died, or was too slow for its lease")
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'take' and subject_id = (select id::text from deed.channel_messages where platform_message_id = 'kills')`); n < 8 {
		t.Errorf("%d times taken from who had it, by the audit log", n)
	}
	db.Exec(t, pgtest.Admin, `select deed.retry_messages(array[(select id from deed.channel_messages where platform_message_id = 'kills')], 'mended')`)
	want(t, "run again by a person", c.claim(), []string{"kills"})
	c.die()
	want(t, "and once more", c.claim(), []string{"kills"})
	verified(t, db)
}

// A claim that was lost is no failure of the message: it may fail as often as any other. What is held as it was lost too often says that,
// and as what it had failed before.
func TestContract_D8_ALostClaimIsNoFailure(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := claimer{t, db}
	c.accept("1")
	for range 5 {
		want(t, "claimed, and lost", c.claim(), []string{"1"})
		c.die()
	}
	for n := range 9 {
		want(t, fmt.Sprintf("claimed, to fail for the %d. time", n+1), c.claim(), []string{"1"})
		c.finish("dispatch_failed")
	}
	for range 4 {
		want(t, "claimed, and lost once more", c.claim(), []string{"1"})
		c.die()
	}
	want(t, "claimed, to fail for the last time", c.claim(), []string{"1"})
	c.finish("dispatch_failed")
	want(t, "held", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', status, attempts, held_at is not null, error) from deed.channel_messages`), "dispatch_failed 19 t broken")
	db.Exec(t, pgtest.Admin, `select deed.retry_messages(array[(select id from deed.channel_messages)], 'mended')`)
	c.claim()
	c.finish("dispatch_failed")
	for range 10 {
		want(t, "claimed, and lost again", c.claim(), []string{"1"})
		c.die()
	}
	want(t, "once more", c.claim(), []string{"1 held"})
	want(t, "why it is held", c.errorOf("1"), "it was claimed 11 times, and 10 times never ended: each time the process died, or was too slow for its lease; it had failed before: broken")
	verified(t, db)
}
