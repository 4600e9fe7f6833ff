package inbound_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// Who has the seeds and psql finds what they print: 004's smoke test 4, in one tenant, and of
// 002 the columns, the isolation, and what a reply and a message's end are bound by. What is
// refused is so for the reason that is meant, by its SQLSTATE and its words, and has changed nothing.
func TestContract_O15_AsTheSeedsPrintIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := schema.InstallFaces(t.Context(), db.Conn(t, pgtest.Owner), []string{"contacts"}, nil); err != nil {
		t.Fatal(err)
	}
	psql := func(role pgtest.Role, sql string) string {
		t.Helper()
		out, _ := db.Psql(t, role, "-v", "VERBOSITY=verbose", "-c", sql).CombinedOutput() // errors with their SQLSTATE
		return strings.TrimSpace(string(out))
	}
	const smoke4 = `
INSERT INTO contact_identities (tenant_id, contact_id, type, value)
VALUES
  (gen_random_uuid(), gen_random_uuid(), 'external_id', 'acct_123'),
  (gen_random_uuid(), gen_random_uuid(), 'external_id', 'acct_123');`
	const smoke4Email = `
INSERT INTO contact_identities (tenant_id, contact_id, type, value)
VALUES
  (gen_random_uuid(), gen_random_uuid(), 'email', 'Alice@Example.com'),
  (gen_random_uuid(), gen_random_uuid(), 'email', 'alice@example.com');`
	inOneTenant := strings.NewReplacer("(gen_random_uuid(), gen", "('00000000-0000-0000-0000-000000000000', gen")
	for sql, said := range map[string]string{
		inOneTenant.Replace(smoke4):      `23505: duplicate key value violates unique constraint "uniq_identity_external"`,
		inOneTenant.Replace(smoke4Email): `23505: duplicate key value violates unique constraint "uniq_identity_email_lower"`,
		smoke4:                           "DDTEN: add_identity: the tenant is not the one that the transaction has set", // others' tenants
		smoke4Email:                      "DDTEN: add_identity: the tenant is not the one that the transaction has set",
	} {
		if got := psql(pgtest.App, sql); !strings.Contains(got, said) {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	want(t, "contacts, and what they are known by", psql(pgtest.Owner, `select (select count(*) from deed.contacts), (select count(*) from deed.contact_identities)`), "0|0")

	url, _ := one(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		switch m.Text {
		case "denied":
			return inbound.Deny("rude"), nil
		case "failed":
			return inbound.Result{}, errors.New("no")
		}
		return echo(ctx, m)
	})
	want(t, "three messages", post(t, url, "1 ann hello\n2 bob denied\n3 cem failed"), 500)
	const set = `set search_path = deed; set app.current_tenant_id = '00000000-0000-0000-0000-000000000000'; `
	replies := map[string]string{
		// 002, Data Model: each column under its name, but for next_attempt_at, which is
		// process_after (O5).
		`SELECT tenant_id, provider, status, attempt_count, max_attempts, last_error IS NULL, locked_at IS NULL, sent_at IS NULL, created_at <= updated_at,
			recipient_id IS NULL, payload ->> 'text' FROM channel_outbox`: `00000000-0000-0000-0000-000000000000|hook|queued|0||t|t|t|t|t|hello`,
		// 002, Isolation.
		`SELECT count(*) FROM channel_outbox WHERE tenant_id = current_setting('app.current_tenant_id', true)::UUID`: `1`,
		`SELECT count(*) FROM channel_messages`: `3`,
		`SET app.current_tenant_id = '01a1fe76-14ee-7f1b-b119-532699ab7d4c'; SELECT count(*) FROM channel_outbox; SELECT count(*) FROM channel_messages`: "0\n0",
		// 002, Execution Integration: replies of what was executed, and of nothing else.
		`SELECT m.status, count(o.id) FROM channel_messages m LEFT JOIN channel_outbox o ON o.channel_message_id = m.id GROUP BY 1 ORDER BY 1`: "denied_rude|0\ndispatch_failed|0\nexecuted|1",
	}
	for sql, said := range replies {
		if got := psql(pgtest.App, set+sql); got != said {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	// Another row like that of the reply there is, which but for the key is one that may be.
	another := func(key string) string {
		return `INSERT INTO channel_outbox (id, tenant_id, workspace_id, idempotency_key, channel, provider, payload, created_at, updated_at)
			SELECT gen_random_uuid(), tenant_id, workspace_id, ` + key + `, channel, provider, payload, created_at, updated_at FROM channel_outbox RETURNING status`
	}
	want(t, "a row of another key", psql(pgtest.Owner, set+`BEGIN; `+another(`sha256('x')`)+`; ROLLBACK`), "queued")
	for sql, said := range map[string]string{
		`UPDATE channel_messages SET status = 'accepted', finished_at = NULL, lease_until = now() WHERE status = 'executed'`: `DDCON: channel message [0-9a-f-]{36}: executed may not become accepted`,
		// 002, Outbox State Machine: what is sent has its time, and pending is queued (D3).
		`UPDATE channel_outbox SET status = 'sent' WHERE status = 'queued'`:    `23514: .* violates check constraint "channel_outbox_(end|sent_at)_is_whole"`,
		`UPDATE channel_outbox SET status = 'pending' WHERE status = 'queued'`: `DDCON: delivery [0-9a-f-]{36}: queued may not become pending`,
		// 002, Data Model: a reply is of a message that there is, and (D2) its key is of no other.
		`SELECT reserve('{webhook}', '{hook}', '{https://example.com/}', array['{}'::jsonb], array[sha256('x')], p_channel_message_ids => array[gen_random_uuid()])`: `DDNFD: reserve: there is no channel message [0-9a-f-]{36}`,
		`DELETE FROM channel_messages WHERE status = 'executed'`: `23503: update or delete on table "channel_messages" violates foreign key constraint "channel_outbox_channel_message_fkey"`,
		another(`idempotency_key`):                               `23505: duplicate key value violates unique constraint "channel_outbox_idempotency_key_key"`,
	} {
		if got := psql(pgtest.Owner, set+sql); !regexp.MustCompile(said).MatchString(got) {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	for sql, said := range replies {
		if got := psql(pgtest.App, set+sql); got != said {
			t.Errorf("after what was refused: %s\n%s, want %s", sql, got, said)
		}
	}
	verified(t, db)
}
