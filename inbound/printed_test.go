package inbound_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/schema"
)

// Who has the seeds and psql finds what they print: 004's smoke test 4, in one tenant, and of
// 002 the columns, the isolation, and what a reply and a message's end are bound by.
func TestContract_O15_AsTheSeedsPrintIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := schema.InstallFaces(t.Context(), db.Conn(t, pgtest.Owner), []string{"contacts"}, nil); err != nil {
		t.Fatal(err)
	}
	psql := func(role pgtest.Role, sql string) string {
		t.Helper()
		out, _ := db.Psql(t, role, "-c", sql).CombinedOutput()
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
		inOneTenant.Replace(smoke4):      `duplicate key value violates unique constraint "uniq_identity_external"`,
		inOneTenant.Replace(smoke4Email): `duplicate key value violates unique constraint "uniq_identity_email_lower"`,
		smoke4:                           "ERROR:", // others' tenants
		smoke4Email:                      "ERROR:",
	} {
		if got := psql(pgtest.App, sql); !strings.Contains(got, said) {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	want(t, "contacts", psql(pgtest.Owner, `select count(*) from deed.contacts`), 0)

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
	for sql, said := range map[string]string{
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
	} {
		if got := psql(pgtest.App, set+sql); got != said {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	for sql, said := range map[string]string{
		`UPDATE channel_messages SET status = 'accepted', finished_at = NULL, lease_until = now() WHERE status = 'executed'`:                                         "may not become",
		`UPDATE channel_outbox SET status = 'sent' WHERE status = 'queued'`:                                                                                          "ERROR:",
		`UPDATE channel_outbox SET status = 'pending' WHERE status = 'queued'`:                                                                                       "ERROR:",
		`SELECT reserve('{webhook}', '{hook}', '{https://example.com/}', array['{}'::jsonb], array[sha256('x')], p_channel_message_ids => array[gen_random_uuid()])`: "ERROR:",
		`DELETE FROM channel_messages WHERE status = 'executed'`:                                                                                                     "ERROR:",
		`INSERT INTO channel_outbox SELECT (o).* FROM (SELECT o FROM channel_outbox o) x`:                                                                            "ERROR:",
	} {
		if got := psql(pgtest.Owner, set+sql); !strings.Contains(got, said) {
			t.Errorf("%s\n%s, want %s", sql, got, said)
		}
	}
	verified(t, db)
}
