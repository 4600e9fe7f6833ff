package deed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// mark is in everything that tenant b owns, and in nothing that tenant a may
// be shown.
const mark = "b-only-5d1e"

// tableCase says what the application may do with a table.
type tableCase string

const (
	ownRows  tableCase = "sees its tenant's rows, and changes none"
	shared   tableCase = "sees what is the same for all, and changes nothing"
	nobodies tableCase = "sees and changes nothing"
)

// tableCases has every table and sequence of the schema; partitions are as
// their parent, without a grant of their own.
var tableCases = map[string]tableCase{
	"audit_log": ownRows, "audit_seals": nobodies, "audit_blinds": nobodies, "channel_outbox": ownRows, "delivery_attempts": ownRows, "delivery_feedback": ownRows, "soft_bounces": ownRows, "contents": ownRows, "erased_contents": nobodies, "erased_contents_n_seq": nobodies, "unmatched_events": nobodies, "unmatched_events_n_seq": nobodies, "log": ownRows, "pending": ownRows, "publish_keys": ownRows,
	"contacts": ownRows, "contact_identities": ownRows, "identity_conflicts": ownRows, "contact_merges": ownRows, "consents": ownRows, "erasures": ownRows, "erasing": nobodies, "secrets": nobodies, "erasures_n_seq": nobodies, "channel_messages": ownRows, "message_transitions": nobodies, "turn_seq": nobodies,
	"suppressions": ownRows, "tenants": ownRows, "finished": ownRows, "kept": ownRows, "door_claims": ownRows,
	"migrations": shared, "settings": shared, "contracts": shared,
	"attended": nobodies, "campaign_workers": nobodies, "backfills": nobodies, "delivery_transitions": nobodies, "partitions": nobodies, "providers": nobodies, "rate_limits": nobodies, "lane_tokens": nobodies,
	"receipts": nobodies, "delivered": nobodies, "tallied": nobodies, "subscriptions": nobodies, "topics": nobodies, "windows": nobodies, "running_calls": nobodies, "sink_pauses": nobodies, "tenant_logins": nobodies,
	"lanes": nobodies, "former_lanes": nobodies, "progress": nobodies, "relays": nobodies, "relanings": nobodies, "purges": nobodies, "redrives": nobodies, "removals": nobodies, "removals_n_seq": nobodies,
	"audit_log_n_seq": nobodies, "receipts_n_seq": nobodies, "windows_n_seq": nobodies, "identity_conflicts_n_seq": nobodies, "contact_seq": nobodies,
	"log_seq": nobodies, "claim_seq": nobodies, "list_seq": nobodies, "topic_seq": nobodies, "subscription_seq": nobodies, "mark_seq": nobodies,
	"pauses": nobodies, "window_lock": nobodies, "list_lock": nobodies, "lane_lock": nobodies, "partition_lock": nobodies, "retention_lock": nobodies, "history_lock": nobodies,
	"runs": ownRows, "run_requests": ownRows, "run_log": ownRows, "run_events": ownRows, "run_snapshots": ownRows, "run_stale": ownRows, "plans": ownRows, "plan_steps": ownRows, "run_steps": ownRows, "run_partitions": nobodies, "run_behind": nobodies, "run_behind_n_seq": nobodies, "run_transitions": nobodies,
	"run_functions": nobodies, "run_workers": nobodies,
	"campaigns": ownRows, "campaign_contents": ownRows, "audiences": ownRows, "audience_members": ownRows, "campaign_runs": ownRows, "job_queue": ownRows, "campaign_audit_log": ownRows, "delivery_holds": ownRows, "campaign_transitions": nobodies,
	"provider_lock": nobodies, "run_request_lock": nobodies, "tenant_removals": nobodies, "shut_logins": nobodies,
}

// functionCase says what the application's role gets of a function.
type functionCase struct {
	refused bool   // it may not be called
	pure    bool   // it reads no table
	call    string // what is called in b's name, or about what b owns; $1 is b
	state   string // the SQLSTATE that the call must end with; "": it succeeds, and shows and changes nothing of b's
}

var refusedToApp = functionCase{refused: true}

// functionCases has every function of the schema.
var functionCases = map[string]functionCase{
	"idempotency_key": {pure: true}, "is_bad_header": {pure: true}, "is_json": {pure: true}, "message_id": {pure: true}, "message_seq": {pure: true},
	"fold_address": {pure: true}, "check_address": {pure: true}, "address_domain": {pure: true}, "fold_case": {pure: true}, "has_invisible": {pure: true},
	"has_vast_numbers": {pure: true}, "is_deep": {pure: true}, "json_excess": {pure: true}, "order_at": {pure: true}, "json_digits": refusedToApp, "domain_ascii": {pure: true}, "punycode": {pure: true}, "punycode_bias": {pure: true}, "unpunycode": {pure: true},
	"campaigns_served": {call: `select deed.campaigns_served() where $1::text <> ''`}, // of workers, which are nobody's
	"current_tenant":   {call: `select deed.current_tenant() where $1::text <> ''`},   // one's own
	"slot":             {call: `select deed.slot(0, $1::text, 1)`},
	"payload_json":     {call: `select deed.payload_json('text/plain', $1::text::bytea)`},
	"doors":            {call: `select deed.doors() where $1::text <> ''`}, // numbers of subscriptions

	// Where the log's numbers are, and of what it looks at there the tenant's own.
	"log_extents":    {call: `select from_id from deed.log_extents() where $1::text = ''`},
	"look_by_number": {call: `select id from deed.look_by_number(0, 9223372036854775807, 10, p_tenant => $1::text::uuid) where id is not null`},
	"look_at_kept":   {call: `select id from deed.look_at_kept(9223372036854775807, 10, 10, p_tenant => $1::text::uuid) where id is not null`},

	// Its own, as many as it sees of the log.
	"tail_window": {call: `select 1 from (select count(*) as n from deed.tail_window(0, 9223372036854775807, '3:3:', pg_current_snapshot()) w, unnest(w.ids)) t, (select count(*) as n from deed.log) l where t.n <> l.n and $1::text <> ''`},

	"look_at_suppressions": {call: `select address from deed.look_at_suppressions('9999-01-01', '00000000-0000-0000-0000-000000000000', '', '', '', 10, 10, p_tenant => $1::text::uuid) where address is not null`},

	"publish":      {call: `select deed.publish('orders', '{}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"publish_one":  {call: `select id from deed.publish_one('orders', '{}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"publish_many": {call: `select id from deed.publish_many('{orders}', '{"{}"}', p_tenants => array[$1::text::uuid])`, state: "DDTEN"},
	// Reads topics and settings as its caller, who may not read topics.
	"publish_problems": {call: `select problem from deed.publish_problems('{orders}', '{"{}"}', '{null}', '{null}', '{null}', '{null}', array[$1])`, state: "42501"},

	"reserve":        {call: `select id from deed.reserve('{email}', '{p}', '{x@y.z}', '{"{}"}', array[sha256('x')], p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"remove_content": {call: `select deed.remove_content('x', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},
	"put_content":    {call: `select deed.put_content('x', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"suppress":       {call: `select deed.suppress('email', '{x@y.z}', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},
	"unsuppress":     {call: `select deed.unsuppress('email', '{` + mark + `@example.com}', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},

	"put_campaign":         {call: `select deed.put_campaign('x', '{}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"put_audience":         {call: `select deed.put_audience('x', 'email', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"add_audience_members": {call: `select deed.add_audience_members('` + someID + `', 0, '{x@y.z}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"finish_audience":      {call: `select deed.finish_audience('` + someID + `', 0, p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"deploy_campaign":      {call: `select deed.deploy_campaign('` + someID + `', '` + otherID + `', 'x', 'email', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"pause_run":            {call: `select deed.pause_run('` + someID + `', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"resume_run":           {call: `select deed.resume_run('` + someID + `', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"cancel_run":           {call: `select deed.cancel_run('` + someID + `', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"choose_winner":        {call: `select deed.choose_winner('` + someID + `', 'A', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"cells_of":             {pure: true},
	"variant_of":           {pure: true},
	"erased_message_id":    {pure: true},
	"remove_audience":      {call: `select deed.remove_audience('` + someID + `', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"retry_run":            {call: `select deed.retry_run('` + someID + `', 'x', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"put_plan":             {call: `select deed.put_plan('{"plan": "x", "version": "1", "steps": {"a": {"kind": "sleep"}}}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"load_plan":            {call: `select body from deed.load_plan('p', '1', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"create_run":           {call: `select deed.create_run('p', '1', 'x', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"start_run":            {call: `select deed.start_run('p', '1', 'x', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"start_requests":       {call: `select r.run_id from deed.start_requests('{p}', '{1}', '{x}', '{"{}"}', '{default}', '{default}', '{null}', '{null}', '{null}', array[$1::text::uuid]) r`, state: "DDTEN"},
	"event_key":            {call: `select deed.event_key($1::text::uuid, 'RUN', 1, 'RunStarted', '1')`}, // what one gives it
	"run_event_id":         {pure: true},
	"check_identity":       {pure: true},
	"upsert_contacts":      {call: `select id from deed.upsert_contacts('{1}', '{email}', '{x@y.z}', '{null}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"merge_contacts":       {call: `select deed.merge_contacts('` + someID + `', '` + otherID + `', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},
	"unmerge_contacts":     {call: `select deed.unmerge_contacts('` + someID + `', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},
	"erase_contact":        {call: `select deed.erase_contact('` + someID + `', 'x', 'x', $1::text::uuid)`, state: "DDTEN"},
	// A mark tells nothing: who has one and the address knows no more than the address.
	"address_mark":    {call: `select 1 / (count(*) = 1)::int from (select deed.address_mark($1::text::uuid, 'email', '` + mark + `@example.com')) m`},
	"set_consents":    {call: `select n from deed.set_consents('{` + someID + `}', '{email}', '{x}', '{granted}', '{x}', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"confirm_consent": {call: `select deed.confirm_consent('` + someID + `', 'email', 'x', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	"add_identity":    {call: `select deed.add_identity('` + someID + `', 'email', 'x@y.z', p_tenant => $1::text::uuid)`, state: "DDTEN"},
	// Its own, as many as it sees: what it knows of b's ids contact's own test gives it.
	"known_as":    {call: `select 1 / (count(*) = 0)::int from deed.known_as($1::text::uuid, 'email', '` + mark + `@example.com')`},
	"contact_of":  {call: `select 1 / (count(deed.contact_of($1::text::uuid, c.id)) = 0)::int from deed.contacts c where c.tenant_id = $1::text::uuid`},
	"names_of":    {call: `select 1 / (count(*) = 0)::int from deed.contacts c, deed.names_of(c.id) where c.tenant_id = $1::text::uuid`},
	"count_job":   {call: `select 1 / (count(*) = 0)::int from deed.job_queue j, deed.count_job(j.run_id, j.id) where j.tenant_id = $1::text::uuid`},
	"run_waits":   {call: `select 1 / (count(*) = 0)::int from deed.campaign_runs r, deed.run_waits(r.id) where r.tenant_id = $1::text::uuid`},
	"consents_of": {call: `select 1 / (count(*) = 0)::int from deed.contacts c, deed.consents_of(array[c.id]) where c.tenant_id = $1::text::uuid`},
}

// Ids that no contact has.
const someID, otherID = "00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"

func init() {
	for _, name := range []string{
		"add_tenant", "attempt", "end_queued", "expire_deliveries", "expire_suppressions", "suppressed", "give_up_deliveries", "oldest_calls", "redrive_deliveries", "report_calls", "report_pauses", "oldest_pauses", "unattended", "bind_login", "backfill", "check_transition", "claim", "claim_deliveries", "claim_doubts", "may_repeat", "due_lanes", "due_runs", "due_tenants", "mark_lanes", "extend", "extend_deliveries", "note_asking", "note_attempts", "resume_provider", "take_probe", "pause_allows", "pause", "name_probes", "fail", "finish",
		"keep_partitions", "next_claimable", "next_due", "open_window", "prove_delivery", "record_events", "try_events", "apply_events", "hold_bounces", "match_events", "match_late_events", "tell_feedback", "without_addresses", "purge_deliveries", "run_to_seal", "seal_run", "purge_run", "purge_contents", "purge_erased_contents", "drop_contents", "delivery_contents", "lock_contents", "payload_contents", "purge_keys", "redrive", "refold_suppressions", "refuse_change",
		"refuse_rewrite", "register_provider", "note_idle", "relane_deliveries", "lane_of", "forget_lanes", "batch_stands", "break_batches", "retry_deliveries", "ripen", "set_subscription", "settle", "settle_delivery", "suppress_bad", "status", "subscribe", "take_due", "tenant_of_call",
		"unfinished", "verify", "watch",
		"attend", "blocked_keys", "check_topic", "declare_topic", "end_stream", "finish_page", "lag", "leave_relays", "make_lanes", "mark_due", "page", "pause_lane",
		"key_hash", "keys_aside", "lock_keys", "passed_by_stream", "release_keys", "release_lane", "set_topic", "stream_states", "take_lanes", "try_lock_keys", "was_read", "window_late",
		"begin_moving", "newest_read", "drop_partition", "keepers", "purge_history", "purge_kept", "retention", "retention_step", "undeclared_between", "unseen",
		"adopt_cluster", "heal_keys", "held", "start_here", "verify_deliveries", "verify_references", "verify_queues", "verify_streams",
		"check_lists", "claim_number", "key_hash", "passed_by_stream", "timeline", "end_empty", "join_list", "late_xids", "level_list",
		"adopt", "ask_purge", "cancel_redrive", "claim_doors", "dead_letters", "discard", "finish_doors", "purge", "reschedule", "set_door",
		"summarise_log", "tally", "topics_of", "count_pending", "count_unread", "look_at_topics", "look_at_providers", "look_at_rates", "look_by_topic", "look_at_dead", "look_at_audit", "audit_point", "audit_passed", "audit_unsealed", "put_audit_seal", "forget_salts", "look_at_deliveries", "look_at_contents", "look_at_blocked",
		"is_zone", "plan_mode", "has_revoked", "revoked", "revoked_by_another", "is_being_erased", "identity_written", "known_addresses", "members_at", "apply_consents", "accept_messages", "check_message", "claim_messages", "erase_messages", "extend_messages", "finish_messages", "pass_turns", "purge_messages", "retry_messages", "take_turn", "verify_messages", "erase_deliveries", "is_copy_being_erased", "payload_copies", "unsubscribe", "suppressed_copy", "erase_step", "open_deliveries", "export_erasures", "lock_contacts", "mark_audit", "mark_suppressions", "take_back_messages", "jobs_beside", "are_merged_twice",
		"remove_tenant", "count_tenant", "remove_tenant_step", "take_tenant", "take_tenant_pending", "take_tenant_log", "take_receipts", "take_tenant_rows", "is_removed", "check_tenants", "check_tenant_removal",
		"append_events", "try_append_events", "refuse_engines_steps", "write_events", "write_event", "event_message", "verify_runs", "verify_plans", "plan_graph", "plan_duration", "verify_steps", "start_runs", "start_and_claim", "claim_steps", "record_steps", "begin_step", "announce_steps", "extend_steps", "finish_steps", "wake_steps", "approve_run", "stop_run", "retry_step", "run_was_read", "store_snapshots", "runs_behind", "replace_snapshots", "retain_runs", "redact_run", "keep_run_partitions", "refuse_run_change",
		"register_functions", "serve_queues", "serve_external", "unserved_queues", "versions_of_requests", "request_key", "key_part", "create_runs", "begin_requests", "write_beginnings", "write_ends", "first_bits",
		"claim_external", "extend_external", "end_external", "finish_external", "fail_external",
		"new_id", "sender_domain", "note_campaigns", "check_campaign", "refuse_campaign_change", "refuse_members", "fail_job", "end_runs", "claim_queued_jobs", "add_jobs", "expand_job", "give_up_job", "put_back_job", "roll_up", "run_ends", "run_ends_since", "pause_failing", "pause_problem", "verify_campaigns", "decide_winners", "write_winner", "count_variants", "said_by", "content_problems", "provider_problem", "provider_lacks", "variants_problem", "hold_run", "sweep_runs", "due_unheld",
		"after_quiet", "time_in", "quiet_time", "held_up", "counted_time", "run_times", "pace_of", "window_problem", "put_off",
		"check_removal", "count_removal", "end_lanes", "remove_step", "remove_subscription", "remove_topic",
	} {
		functionCases[name] = refusedToApp
	}
}

// twoTenants has a and b own the same things; b's carry the mark.
func twoTenants(t *testing.T, db *pgtest.DB) (a, b tenant.ID) {
	t.Helper()
	ctx := context.Background()
	a, b = tenant.ID{0xa}, tenant.ID{0xb}
	for id, name := range map[tenant.ID]string{a: "a", b: mark} {
		if err := tenant.Add(ctx, db.Pool(pgtest.Admin), id, name); err != nil {
			t.Fatal(err)
		}
	}
	db.Providers(t, "fake", "p")
	subscribe(t, db, "orders", "s")
	defer func() { // what nobody declared is delivered, through the door
		db.Exec(t, pgtest.Owner, `select from deed.claim_doors($1, 10, null)`, tokenA)
		db.Exec(t, pgtest.Worker, `
			select deed.finish(0, claim, ids) from (select claim, array_agg(id) as ids from deed.pending where subscription = 0 group by claim) c`)
		// What is declared is as if its partition had gone.
		db.Exec(t, pgtest.Owner, `with moved as (delete from deed.log where topic = 'orders' returning *) insert into deed.kept select * from moved`)
	}()
	for id, text := range map[tenant.ID]string{a: "a-own", b: mark} {
		err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if err := tenant.Set(ctx, tx, id); err != nil {
				return err
			}
			m := deed.Message{Topic: "orders", Key: text, Type: text, IdempotencyKey: "same", Payload: fmt.Appendf(nil, `{"x":%q}`, text), Headers: map[string]string{"correlation-id": text}}
			undeclared := m
			undeclared.Topic = "undeclared"
			if _, err := deed.Publish(ctx, tx, m, undeclared); err != nil {
				return err
			}
			if _, err := delivery.Suppress(ctx, tx, nil, delivery.Coverage{Channel: delivery.Email}, []string{text + "@example.com"}, audit.Act{By: text, Reason: text}); err != nil {
				return err
			}
			if err := knowPeople(ctx, tx, text); err != nil {
				return err
			}
			_, err := delivery.Reserve(ctx, tx, delivery.Delivery{
				Channel: delivery.Email, Provider: "p", Recipient: text + "@example.org", RecipientID: text, CorrelationID: text,
				Payload: json.RawMessage(fmt.Sprintf(`{"x":%q}`, text)), Key: delivery.NewKey("same"),
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for id, text := range map[tenant.ID]string{a: "a-own", b: mark} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages('support', array[$1], array['telegram'], array[$1], array[$1], array[$1], array['{}'], $1, 'link', $2::text::uuid, 'w')`, text, id.String())
	}
	for id, text := range map[tenant.ID]string{a: "a-own", b: mark} {
		db.Providers(t, "fake", "p")
		c := pgtest.One[string](t, db.Pool(pgtest.Worker), `select campaign_id::text from deed.put_campaign($1, jsonb_build_object('text', $1::text), p_tenant => $2::text::uuid)`, text, id.String())
		l := pgtest.One[string](t, db.Pool(pgtest.Worker), `select audience_id::text from deed.put_audience($1, 'chat', p_tenant => $2::text::uuid)`, text, id.String())
		db.Exec(t, pgtest.Worker, `select deed.add_audience_members($1::text::uuid, 0, array[$2], array[jsonb_build_object('x', $2::text)], p_tenant => $3::text::uuid)`, l, text, id.String())
		db.Exec(t, pgtest.Worker, `select deed.finish_audience($1::text::uuid, 1, p_tenant => $2::text::uuid)`, l, id.String())
		db.Exec(t, pgtest.Worker, `select deed.deploy_campaign($1::text::uuid, $2::text::uuid, $3, 'chat', p_options => jsonb_build_object('provider', 'p', 'transactional', true), p_tenant => $4::text::uuid)`, c, l, text, id.String())
		db.Exec(t, pgtest.Admin, `select deed.pause_run(r.id, p_tenant => r.tenant_id) from deed.campaign_runs r where r.tenant_id = $1::text::uuid`, id.String())
	}
	for id, text := range map[tenant.ID]string{a: "a-own", b: mark} {
		db.Exec(t, pgtest.Worker, `select deed.put_plan(convert_to(format('{"plan": %s, "version": "1", "steps": {%1$s: {"kind": "sleep"}}}', to_json($1::text)), 'UTF8'), p_tenant => $2::text::uuid)`, text, id.String())
		r := pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.create_run($1, '1', $1, jsonb_build_object('x', $1::text), p_tenant => $2::text::uuid)`, text, id.String())
		db.Exec(t, pgtest.Owner, `
			select deed.write_events(array[$1, $1, $1]::text[]::uuid[], '{RunApproved,RunStarted,StepStarted}', array[null, null, $2], '{1,1,1}', p_data => array['{}', '{}', jsonb_build_object('x', $2::text)])`, r, text)
		pgtest.One[string](t, db.Pool(pgtest.Worker), `select run_id::text from deed.start_run($1, '1', 'begun', p_tenant => $2::text::uuid)`, text, id.String())
		db.Exec(t, pgtest.Owner, `insert into deed.run_snapshots (run_id, tenant_id, last_event_seq, projected_at, snapshot) select $1::text::uuid, $2::text::uuid, 1, now(), jsonb_build_object('x', $3::text)`, r, id.String(), text)
		db.Exec(t, pgtest.Owner, `insert into deed.run_stale (run_id, tenant_id, since, expected_seq, got_seq) select $1::text::uuid, $2::text::uuid, now(), 2, 3`, r, id.String())
	}
	db.Exec(t, pgtest.Owner, `
		insert into deed.delivery_attempts (delivery_id, tenant_id, claim, number, outcome, at, worker, error)
		select c.id, c.tenant_id, 1, 1, 'refused', now(), 'w', c.recipient from deed.channel_outbox c`)
	db.Exec(t, pgtest.Owner, `insert into deed.delivery_feedback (delivery_id, tenant_id, bounced_at, reason) select c.id, c.tenant_id, now(), c.recipient from deed.channel_outbox c`)
	for id, text := range map[tenant.ID]string{a: "a-own", b: mark} {
		db.Exec(t, pgtest.Worker, `select deed.put_content(convert_to($1, 'UTF8'), 'text/plain', $2::text::uuid)`, text, id.String())
	}
	db.Exec(t, pgtest.Owner, `insert into deed.soft_bounces (delivery_id, tenant_id, channel, address, at) select c.id, c.tenant_id, c.channel, c.recipient, now() from deed.channel_outbox c`)
	return a, b
}

// knowPeople makes contacts of every kind: two that are at odds, one that is merged
// into another, one that is erased, and what they consent to.
func knowPeople(ctx context.Context, tx pgx.Tx, text string) error {
	person := func(types ...string) (p contact.Person) {
		for _, typ := range types {
			p.Identities = append(p.Identities, contact.Identity{Type: typ, Value: text + map[string]string{"email": "@example.com"}[typ]})
		}
		p.Data = fmt.Appendf(nil, `{"x":%q}`, text)
		return p
	}
	list, err := contact.Upsert(ctx, tx, text, person("email"), person("slack"), person("telegram"), person("email", "slack"), person("external_id"))
	if err != nil {
		return err
	}
	if _, err := contact.Merge(ctx, tx, nil, list[2].ID, list[1].ID, audit.Act{By: text, Reason: text}); err != nil {
		return err
	}
	if _, err := contact.Erase(ctx, tx, nil, list[4].ID, audit.Act{By: text, Reason: text}, contact.EraseOptions{}); err != nil {
		return err
	}
	_, err = contact.SetConsents(ctx, tx, text,
		contact.Word{Contact: list[0].ID, Channel: "email", Purpose: "news", State: contact.Revoked, Source: text, Evidence: fmt.Appendf(nil, `{"x":%q}`, text)})
	return err
}

// asTenant runs fn in a transaction of the application's that acts for id, and
// takes back what it did.
func asTenant(t *testing.T, db *pgtest.DB, id *tenant.ID, fn func(pgx.Tx)) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if id != nil {
		if err := tenant.Set(ctx, tx, *id); err != nil {
			t.Fatal(err)
		}
	}
	fn(tx)
}

// saysNothing checks that an error names nothing of b's.
func saysNothing(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	text := err.Error()
	if pg := (&pgconn.PgError{}); asPg(err, &pg) {
		text += pg.Detail + pg.Hint + pg.Where
	}
	if strings.Contains(text, mark) {
		t.Errorf("%s: the error names what is another tenant's: %s", what, text)
	}
}

func asPg(err error, pg **pgconn.PgError) bool {
	for e := err; e != nil; {
		if found, ok := e.(*pgconn.PgError); ok {
			*pg = found
			return true
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		e = u.Unwrap()
	}
	return false
}

func names(t *testing.T, db *pgtest.DB, sql string) []string {
	t.Helper()
	rows, err := db.Pool(pgtest.Owner).Query(context.Background(), sql)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Two tenants, the application's login, every table with every verb: it sees
// and counts no row of the other, changes none, and no error names one. A table
// without a case here fails the test.
func TestContract_D7_EveryTableEachVerb(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	tables := names(t, db, `select relname from pg_class where relnamespace = 'deed'::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S', 'f') and not relispartition order by 1`)
	for name := range tableCases {
		if !slices.Contains(tables, name) {
			t.Errorf("there is a case for %s, which does not exist", name)
		}
	}
	for _, name := range tables {
		want, ok := tableCases[name]
		if !ok {
			t.Errorf("relation %s has no case: say in tableCases what the application may do with it", name)
			continue
		}
		for who, id := range map[string]*tenant.ID{"a": &a, "nobody": nil} {
			asTenant(t, db, id, func(tx pgx.Tx) {
				var text string
				err := tx.QueryRow(ctx, `select coalesce(string_agg(r::text, ' '), '') from (select * from deed.`+name+`) r`).Scan(&text)
				saysNothing(t, name, err)
				switch {
				case want == nobodies && sqlState(err) != "42501":
					t.Errorf("%s: %s may read it: %v", name, who, err)
				case want != nobodies && err != nil:
					t.Errorf("%s: %s may not read it: %v", name, who, err)
				case strings.Contains(text, mark) || strings.Contains(text, b.String()):
					t.Errorf("%s: %s sees what is b's: %s", name, who, text)
				case want == ownRows && who == "a" && text == "":
					t.Errorf("%s: a does not see its own rows: the test shows nothing", name)
				case want == ownRows && who == "nobody" && text != "":
					t.Errorf("%s: without a tenant set there is %s", name, text)
				}
			})
			for _, verb := range []string{
				`insert into deed.` + name + ` default values`, `update deed.` + name + ` set ` + firstColumn(t, db, name) + ` = ` + firstColumn(t, db, name),
				`delete from deed.` + name, `truncate deed.` + name, `select * from deed.` + name + ` for update`, `copy deed.` + name + ` from stdin`,
			} {
				asTenant(t, db, id, func(tx pgx.Tx) {
					_, err := tx.Exec(ctx, verb)
					saysNothing(t, verb, err)
					if state := sqlState(err); state != "42501" && (state != "42809" || !strings.HasSuffix(name, "_seq")) && (state != "55000" && state != "42809" || name != "finished" && name != "run_events" && name != "campaign_audit_log") && (state != "428C9" || name != "campaign_audit_log") && (state != "0A000" || name != "run_events") {
						t.Errorf("%s may run %q: %v", who, verb, err)
					}
				})
			}
		}
	}
	// Partitions have no grant of their own.
	for _, name := range names(t, db, `select relname from pg_class where relnamespace = 'deed'::regnamespace and relispartition and relkind = 'r'`) {
		asTenant(t, db, &a, func(tx pgx.Tx) {
			if _, err := tx.Exec(ctx, `select from deed.`+name); sqlState(err) != "42501" {
				t.Errorf("the partition %s may be read: %v", name, err)
			}
		})
	}
}

func firstColumn(t *testing.T, db *pgtest.DB, table string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select quote_ident(attname) from pg_attribute where attrelid = ('deed.' || $1)::regclass and attnum > 0 and attidentity = '' and attgenerated = '' order by attnum limit 1`, table)
}

// Every function, called by one tenant about what is another's, or in its name:
// refused, or without any effect and any word about it. A function without a
// case here fails the test.
func TestContract_D7_EveryFunction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	functions := names(t, db, `select proname from pg_proc where pronamespace = 'deed'::regnamespace order by 1`)
	for name := range functionCases {
		if !slices.Contains(functions, name) {
			t.Errorf("there is a case for %s, which does not exist", name)
		}
	}
	for _, name := range functions {
		c, ok := functionCases[name]
		if !ok {
			t.Errorf("function %s has no case: say in functionCases what the application gets of it", name)
			continue
		}
		may := pgtest.One[bool](t, db.Pool(pgtest.Owner), `select has_function_privilege('deed_app', p.oid, 'execute') from pg_proc p where p.pronamespace = 'deed'::regnamespace and p.proname = $1`, name)
		if may == c.refused {
			t.Errorf("%s: the application may call it: %t", name, may)
		}
		if c.call == "" {
			continue
		}
		for who, id := range map[string]*tenant.ID{"a": &a, "nobody": nil} {
			asTenant(t, db, id, func(tx pgx.Tx) {
				_, err := tx.Exec(ctx, c.call, b.String())
				saysNothing(t, name, err)
				if sqlState(err) != c.state {
					t.Errorf("%s called %s: %v, want %s", who, name, err, c.state)
				}
			})
		}
	}

	// A pure function is one that reads nothing, whoever calls it.
	for name, c := range functionCases {
		if c.pure && pgtest.One[bool](t, db.Pool(pgtest.Owner), `select provolatile <> 'i' or prosecdef from pg_proc where pronamespace = 'deed'::regnamespace and proname = $1`, name) {
			t.Errorf("%s is said to be pure and is not immutable, or a definer's", name)
		}
	}
	// What b has used a does not meet: the same keys and addresses are free.
	asTenant(t, db, &a, func(tx pgx.Tx) {
		n, err := delivery.Unsuppress(ctx, tx, nil, delivery.Coverage{Channel: delivery.Email}, []string{mark + "@example.com"}, audit.Act{By: "x", Reason: "x"})
		if n != 0 || err != nil {
			t.Errorf("a lifted %d of b's suppressions: %v", n, err)
		}
		made, err := delivery.Reserve(ctx, tx, delivery.Delivery{Channel: delivery.Email, Provider: "p", Recipient: mark + "@example.com", Payload: json.RawMessage(`{}`), Key: delivery.NewKey("another")})
		if err != nil || made[0].Duplicate || made[0].Status != delivery.Queued {
			t.Errorf("b's suppression holds for a: %+v, %v", made, err)
		}
	})
}

// A login that crosses tenants names the one it means, and nothing but a
// registered one.
func TestContract_D7_DeliveriesCarryACheckedTenant(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	a, b := twoTenants(t, db)
	d := delivery.Delivery{Channel: delivery.Email, Provider: "p", Recipient: "x@example.com", Payload: json.RawMessage(`{}`), Key: delivery.NewKey("worker")}
	worker := db.Pool(pgtest.Worker)
	if _, err := delivery.ReserveFor(ctx, worker, tenant.ID{0xc}, d); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("for an unregistered tenant: %v", err)
	}
	if _, err := delivery.Reserve(ctx, worker, d); deed.CodeOf(err) != deed.Forbidden {
		t.Errorf("for no tenant, where there are several: %v", err)
	}
	for _, id := range []tenant.ID{a, b} {
		if made, err := delivery.ReserveFor(ctx, worker, id, d); err != nil || made[0].Duplicate {
			t.Errorf("for %s: %+v, %v", id, made, err)
		}
	}
	err := pgx.BeginFunc(ctx, worker, func(tx pgx.Tx) error {
		if err := tenant.Set(ctx, tx, a); err != nil {
			return err
		}
		_, err := delivery.ReserveFor(ctx, tx, b, d)
		return err
	})
	if deed.CodeOf(err) != deed.Forbidden {
		t.Errorf("for b in a transaction of a's: %v", err)
	}
}
