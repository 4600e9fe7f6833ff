package schema_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// docs/sql.md prints the signature of every function that users may call, as
// the database has it.
func TestSQLDocument(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	text, err := os.ReadFile("../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := db.Pool(pgtest.Owner).Query(context.Background(), `
		select 'deed.' || p.proname || '(' || replace(pg_get_function_arguments(p.oid), ', ', E',\n  ') || E')\n  returns ' || pg_get_function_result(p.oid)
		from pg_proc p
		where p.pronamespace = 'deed'::regnamespace
		  and p.proname in ('publish', 'publish_one', 'publish_many', 'claim', 'extend', 'finish', 'fail', 'verify', 'subscribe', 'redrive', 'status',
		    'declare_topic', 'set_topic', 'set_subscription', 'blocked_keys', 'lag', 'cancel_redrive', 'discard', 'set_door', 'reschedule',
		    'remove_subscription', 'remove_topic', 'remove_step', 'count_removal', 'remove_tenant', 'count_tenant', 'remove_tenant_step',
		    'upsert_contacts', 'merge_contacts', 'unmerge_contacts', 'check_identity', 'known_as',
		    'set_consents', 'confirm_consent', 'consents_of', 'add_identity', 'erase_contact', 'reserve', 'put_content', 'remove_content', 'suppress', 'unsuppress', 'idempotency_key', 'create_run', 'start_run', 'start_requests', 'redact_run', 'append_events', 'put_plan', 'load_plan', 'record_steps', 'claim_external', 'extend_external', 'finish_external', 'fail_external',
		    'put_campaign', 'put_audience', 'add_audience_members', 'finish_audience', 'deploy_campaign', 'pause_run', 'resume_run', 'cancel_run', 'retry_run', 'choose_winner', 'remove_audience')
		order by p.proname`)
	if err != nil {
		t.Fatal(err)
	}
	signatures, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(signatures) != 66 {
		t.Fatal(len(signatures), err)
	}
	for _, s := range signatures {
		if !strings.Contains(string(text), s) {
			t.Errorf("docs/sql.md lacks this signature:\n%s", s)
		}
	}
}
