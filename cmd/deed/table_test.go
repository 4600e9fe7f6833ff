package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Every list fits into a hundred columns, and into the eighty of a small terminal, whatever is in
// it; ids that other commands take stand there as they are, and --wide has all.
func TestTable_EveryListFits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // a plan that has no steps
	longLives(t, db)
	run := func(columns int, args ...string) (string, string) {
		var out, errs strings.Builder
		args = append(slices.Clone(args), "--database-url", db.URL(pgtest.Owner))
		if code := executeOn(t.Context(), args, strings.NewReader(""), &escaper{to: &out, columns: columns}, &escaper{to: &errs}); code != exitOK {
			t.Errorf("%q: %s", args, &errs)
		}
		return out.String(), errs.String()
	}
	lists := map[string]bool{"status": true, "providers list": true, "retention": true, "tenant logins": true} // whether it has come
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.Flags().Lookup("cursor") != nil {
			lists[strings.TrimPrefix(cmd.CommandPath(), "deed ")] = true
		}
	}
	visit(newRoot())
	if len(lists) < 22 {
		t.Errorf("there are %d lists", len(lists))
	}
	ids := map[string]string{
		"deliveries list": `select id from deed.channel_outbox`, "deliveries doubt": `select id from deed.channel_outbox where doubt_since is not null`, "inbound list": `select id from deed.channel_messages`,
		"contacts list": `select id from deed.contacts where merged_into is null and erased_at is null`, "consents list": `select contact_id from deed.consents`, "contacts erasures": `select contact_id from deed.erasures`,
		"contacts conflicts": `select unnest(contact_ids) from deed.identity_conflicts`, "run list": `select run_id from deed.runs`, "campaign list": `select id from deed.campaign_runs`, "campaign trace": `select id from deed.channel_outbox where run_id is not null`, "tenant list": `select tenant_id from deed.tenants where name like 'xx%'`,
	}
	for list := range lists {
		args := strings.Fields(list)
		switch list {
		case "consents list":
			args = append(args, "external_id:known", "--tenant", "00000000-0000-0000-0000-000000000000")
		case "campaign trace":
			args = append(args, pgtest.One[string](t, db.Pool(pgtest.Owner), `select id::text from deed.campaign_runs`))
		case "messages":
			args = append(args, "--payload")
		case "tenant removals", "keys blocked": // nothing lasts there
			continue
		}
		wide, _ := run(0, append(args, "--wide")...)
		for _, columns := range []int{0, 80} {
			out, errs := run(columns, args...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if len(lines) < 2 {
				t.Errorf("%s is empty: %s%s", list, out, errs)
			}
			longest := 0
			for _, line := range lines {
				longest = max(longest, cells(line))
			}
			if longest > cmp.Or(columns, 100) {
				t.Errorf("%s has %d columns:\n%s", list, longest, out)
			}
			if len(wide) < len(out) || strings.Contains(wide, "…") || strings.Contains(out, "…") && !strings.Contains(errs, "--wide") && strings.Contains(list, " list") && list != "providers list" {
				t.Errorf("%s --wide:\n%s\nfrom\n%s%s", list, wide, out, errs)
			}
			if ids[list] == "" {
				continue
			}
			for _, id := range strings.Fields(pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(q.id::text, ' ') from (`+ids[list]+`) q(id)`)) {
				if !strings.Contains(out, id) {
					t.Errorf("%s lacks %s:\n%s", list, id, out)
				}
			}
		}
	}
	if out, _ := run(0, "deliveries", "list"); !strings.Contains(out, " 3d ") || strings.Contains(out, "Z ") {
		t.Errorf("times are no ages: %s", out)
	}
}

// longLives fills what lists show with values that are as long as they may be.
func longLives(t *testing.T, db *pgtest.DB) {
	t.Helper()
	text := func(n int) string { return strings.Repeat("xxxx yyyy ", n/10+1)[:n] }
	name := func(n int) string { return strings.Repeat("x", n) }
	topic, sub, provider := name(200), name(100), name(100)
	owner := db.Pool(pgtest.Owner)
	db.Providers(t, "smtp", provider)
	for _, s := range []string{sub, "removed" + name(80)} {
		db.Exec(t, pgtest.Worker, `select from deed.subscribe($1, $2)`, topic, s)
	}
	db.Exec(t, pgtest.Owner, `select deed.publish($1, jsonb_build_object('x', $2::text), p_key => $2, p_type => left($2, 200)) from generate_series(1, 3)`, topic, text(900))
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), last_error = $1, attempts = 12`, text(900))
	for _, args := range [][]string{
		{"dead", "redrive", "--topic", topic, "--request", name(60), "--reason", text(900)},
		{"subscription", "remove", topic + "/removed" + name(80), "--yes", "--reason", text(900)},
		{"tenant", "add", name(90)},
		{"tenant", "bind", "deed_test_app", "00000000-0000-0000-0000-000000000000", "--reason", "x"},
	} {
		var errs strings.Builder
		if code := execute(t.Context(), append(args, "--database-url", db.URL(pgtest.Owner)), strings.NewReader(""), io.Discard, &errs); code != exitOK {
			t.Fatalf("%q: %s", args, &errs)
		}
	}
	db.Exec(t, pgtest.Owner, `update deed.pending set dead_at = now(), last_error = $1, attempts = 12`, text(900))
	for _, sql := range []string{
		`select deed.put_content('x', 'application/' || left($1, 80))`,
		`select deed.put_campaign($1, '{"text": "x"}')`,
		`select deed.put_audience($1, 'sms')`,
		`select deed.add_audience_members(a.id, 0, '{+493012345}') from deed.audiences a where $1 <> ''`,
		`select deed.finish_audience(a.id, 1) from deed.audiences a where $1 <> ''`,
		`select deed.deploy_campaign(c.id, a.id, $1, 'sms', p_options => jsonb_build_object('provider', p.name, 'transactional', true)) from deed.campaigns c, deed.audiences a, deed.providers p`,
	} {
		db.Exec(t, pgtest.App, strings.ReplaceAll(sql, ", deed.providers p", ", (select $2::text as name) p"), append([]any{name(190)}, []any{provider}[:strings.Count(sql, "deed.providers")]...)...)
	}
	db.Exec(t, pgtest.Worker, `select deed.claim_queued_jobs('w', 1)`)
	db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, j.claim, 'w') from deed.job_queue j`)
	act := audit.Act{By: text(190), Reason: text(190)}
	err := pgx.BeginFunc(t.Context(), owner, func(tx pgx.Tx) error {
		if err := tenant.Set(t.Context(), tx, tenant.ID{}); err != nil {
			return err
		}
		for i := range 3 {
			d := delivery.Delivery{
				Channel: delivery.Email, Provider: provider, Recipient: fmt.Sprintf("a%d%s@%s.example.com", i, name(60), name(60)), Payload: json.RawMessage(`{}`), Key: delivery.NewKey(fmt.Sprint(i)),
			}
			if _, err := delivery.Reserve(t.Context(), tx, d); err != nil {
				return err
			}
		}
		if _, err := delivery.Suppress(t.Context(), tx, nil, delivery.Coverage{Channel: delivery.Email, Purpose: name(90), For: time.Hour}, []string{name(60) + "@" + name(60) + ".example.com"}, act); err != nil {
			return err
		}
		person := func(list ...contact.Identity) contact.Person {
			return contact.Person{Identities: list, Zone: "America/Argentina/Buenos_Aires", Locale: "de-Latn-DE-1996"}
		}
		mail := func(who string) contact.Identity {
			return contact.Identity{Type: "email", Value: who + name(60) + "@" + name(60) + ".example.com"}
		}
		known := contact.Identity{Type: "external_id", Value: "known"}
		list, err := contact.Upsert(t.Context(), tx, text(190), person(mail("a"), known), person(mail("b")), person(mail("a"), mail("b")), person(mail("c")), person(contact.Identity{Type: "external_id", Value: text(190)}))
		if err != nil {
			return err
		}
		if _, err := contact.Erase(t.Context(), tx, nil, list[3].ID, act, contact.EraseOptions{}); err != nil {
			return err
		}
		_, err = contact.SetConsents(t.Context(), tx, text(190), contact.Word{Contact: list[0].ID, Channel: "email", Purpose: name(90), State: contact.Revoked, Source: text(190)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.plans (tenant_id, sha256, created_at, schema_version, steps, plan_id, plan_version, created_by, body)
		values ('00000000-0000-0000-0000-000000000000', sha256('{}'), now(), 1, 1, left($1, 100), left($1, 100), $1, '{}')`, name(200))
	db.Exec(t, pgtest.Owner, `select from deed.create_run(left($1, 200), left($1, 200), left($1, 200), '{}', p_project => left($1, 200), p_environment => left($1, 200), p_tenant => '00000000-0000-0000-0000-000000000000')`, name(200))
	db.Exec(t, pgtest.Owner, `insert into deed.channel_messages (id, tenant_id, source, platform_message_id, kind, sender, status, lease_until, correlation_id, received_at, error)
		values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', $1, $2, 'telegram', $2, 'accepted', now(), '', now(), $3)`, name(100), name(200), text(900))
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why) values ($1, $2, now(), now() + interval '1 hour', $3)`, provider, name(200), text(900))
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set created_at = created_at - interval '73 hours', last_error = $1, provider_message_id = left($1, 400)`, text(900))
	var id string
	var claim int64
	if err := db.Pool(pgtest.Worker).QueryRow(t.Context(), `select id::text, claim from deed.claim_deliveries($1, 'w', 1, '1 minute') where id is not null`, provider).Scan(&id, &claim); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Worker, `select from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w', 'smtp', '', false)`, id, claim)
	db.Exec(t, pgtest.Worker, `select from deed.settle(array[$1::text::uuid], array[$2::bigint], array['unknown'], array['m'], array[$3::text], array[null]::float8[], 'w')`, id, claim, text(900))
}
