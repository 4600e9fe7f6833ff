package campaign_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// A request makes one run, whoever asks how often at once; one with anything else in it is
// refused, and changes nothing.
func TestContract_C1_SameRequestSameRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 2500)
	results := make(chan campaign.Deployed, 8)
	for range cap(results) {
		go func() {
			d, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
			if err != nil {
				t.Error(err)
			}
			results <- d
		}()
	}
	made, run := 0, ""
	for range cap(results) {
		d := <-results
		if d.New {
			made++
		}
		if run != "" && d.Run != run {
			t.Errorf("runs %s and %s", run, d.Run)
		}
		run = d.Run
	}
	want(t, "runs that were made", made, 1)
	want(t, "the run", states(t, db, run), "queued: queued, queued, queued")
	want(t, "members of its jobs", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(from_n || '-' || upto_n, ' ' order by from_n) from deed.job_queue`), "1-1000 1001-2000 2001-2500")
	want(t, "deliveries", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`), 0)

	for what, change := range map[string]func(*campaign.Request){
		"another time":     func(r *campaign.Request) { r.ScheduledFor = time.Now().Add(time.Hour) },
		"another purpose":  func(r *campaign.Request) { r.Purpose = "offers" },
		"another audience": func(r *campaign.Request) { r.Audience = people(t, db, "others", campaign.Email, 1).ID },
		"another campaign": func(r *campaign.Request) { r.Campaign = put(t, db, "autumn", spring).ID },
	} {
		other := req
		change(&other)
		if _, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, other); deed.CodeOf(err) != deed.Conflict {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs`), 1)
}

// What would make a run fail is named, all of it at once, and nothing is made.
func TestContract_C8_PreconditionsByName(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := request(t, db, 1)
	nobody := people(t, db, "nobody", campaign.Email, 0)
	bare := put(t, db, "bare", campaign.Content{Subject: "x", Text: "no way out"})
	empty := put(t, db, "empty", campaign.Content{Subject: "x"})
	for names, change := range map[string]func(*campaign.Request){
		"no_provider":                       func(r *campaign.Request) { r.Provider = "elsewhere" },
		"no_purpose":                        func(r *campaign.Request) { r.Purpose = "" },
		"no_sender":                         func(r *campaign.Request) { r.From = "" },
		"no_unsubscribe_url":                func(r *campaign.Request) { r.Campaign = bare.ID },
		"no_content":                        func(r *campaign.Request) { r.Campaign, r.Purpose, r.Transactional = empty.ID, "", true },
		"empty_audience":                    func(r *campaign.Request) { r.Audience = nobody.ID },
		"expired":                           func(r *campaign.Request) { r.ScheduledFor = time.Now().Add(-25 * time.Hour) },
		"no_provider no_sender no_purpose ": func(r *campaign.Request) { r.Provider, r.From, r.Purpose = "", "", "" },
	} {
		req := good
		change(&req)
		_, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
		if deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v, want it to be invalid", names, err)
			continue
		}
		for name := range strings.FieldsSeq(names) {
			if !strings.Contains(err.Error(), name+":") {
				t.Errorf("%s is not named: %v", name, err)
			}
		}
	}
	// Of the other channels, what each needs.
	for channel, content := range map[campaign.Channel]campaign.Content{
		campaign.Voice: {Script: "hello"}, campaign.Social: {Text: "hello"}, campaign.SMS: {Subject: "hello"}, campaign.Chat: {},
	} {
		req := good
		req.Channel, req.Campaign, req.Audience = channel, put(t, db, "for "+string(channel), content).ID, people(t, db, string(channel), channel, 1).ID
		if _, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req); err == nil || !strings.Contains(err.Error(), "no_content:") {
			t.Errorf("%s: %v", channel, err)
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs`), 0)
	deploy(t, db, good)
}

// Where it is known from which domains a provider may send, a campaign from another one is refused, however its
// sender is written; a domain below one of them is another one.
func TestContract_C8_AnUnverifiedDomain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	good := request(t, db, 1)
	register := func(domains string) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select deed.register_provider('fake', 'fake', 'domain', null, false, '{}', '{}', '{}', 'w', p_verified => `+domains+`)`)
	}
	try := func(from string) error {
		t.Helper()
		req := good
		req.From, req.ID = from, "from "+from
		return refused(t, db, req)
	}
	for _, unknown := range []string{"null", "'{}'"} {
		register(unknown)
		if err := try("shop@example.org"); err != nil {
			t.Errorf("verified %s: %v, and it is not known which are", unknown, err)
		}
	}
	register(`'{Example.com, "bücher.example"}'`)
	for _, from := range []string{
		"shop@example.com", "Shop <shop@EXAMPLE.com>", `"Ann @ Shop" <shop@example.com>`, "shop@example.com (Shop)", "Bücher <a@bücher.example>", "a@xn--bcher-kva.example", `"a@b.example"@example.com`,
	} {
		if err := try(from); err != nil {
			t.Errorf("%s: %v", from, err)
		}
	}
	for from, domain := range map[string]string{
		"shop@example.org": "example.org", "Shop <shop@mail.example.com>": "mail.example.com", `"x@example.com" <shop@example.org>`: "example.org", "shop@example.org (x@example.com)": "example.org",
		"shop@example.com.evil.example": "example.com.evil.example", "<shop@example.com> <x@example.org>": "example.org",
	} {
		want := "unverified_domain: 'fake' has not verified " + domain + ", from which it is; see its verified_domains in deed.yaml"
		if err := try(from); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "bcher") {
			t.Errorf("%s: %v, want %s, and no other domain", from, err, want)
		}
	}
	// Who has no sender lacks that, and what is no e-mail has none.
	if err := try(""); err == nil || strings.Contains(err.Error(), "unverified_domain") || !strings.Contains(err.Error(), "no_sender") {
		t.Errorf("no sender: %v", err)
	}
	call := good
	call.Channel, call.Campaign, call.Audience, call.From = campaign.Voice, put(t, db, "call", campaign.Content{Script: "hello", ScriptVersion: "1"}).ID, people(t, db, "called", campaign.Voice, 1).ID, ""
	deploy(t, db, call)
	// The first one's repeat is the run that there is, whatever is known by now.
	register("'{example.com}'")
	run := deploy(t, db, good)
	register("'{example.net}'")
	want(t, "the same request", deploy(t, db, good), run)
	for _, bad := range []string{"'{example..com}'", "'{@example.com}'", "'{\"\"}'", "array[null]", "array(select n || '.example' from generate_series(1, 1001) n)"} {
		if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.register_provider('fake', 'fake', 'domain', null, false, '{}', '{}', '{}', 'w', p_verified => `+bad+`)`); deed.CodeOf(deed.WrapError("x", err)) != deed.Invalid {
			t.Errorf("verified %s: %v", bad, err)
		}
	}
}

// An audience is loaded in batches that may be repeated, has nobody twice, and never changes
// once it is ready.
func TestAudience(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	a := opened(t, db, "list", campaign.Email)
	before := *a
	batch := []campaign.Member{{Address: "Ann@Example.com"}, {Address: "bob@example.com", Zone: "Europe/Berlin"}}
	for range 2 { // the answer to the first was lost
		*a = before
		if err := a.Add(t.Context(), app, batch...); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "members", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(n || ' ' || address, ', ' order by n) from deed.audience_members`), "1 ann@example.com, 2 bob@example.com")
	want(t, "contacts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.contacts`), 2)

	ann := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.audience_members where n = 1`)
	for problem, ms := range map[string][]campaign.Member{
		"member 3 has the contact of member 1":              {{Address: "ann@other.example", Contact: ann}},
		"member 4 has the contact of member 3":              {{Address: "c@example.com"}, {Address: "C@EXAMPLE.com"}},
		"member 4: its address is none":                     {{Address: "c@example.com"}, {Address: "c at example.com"}},
		"member 3: its zone is not the name of a time zone": {{Address: "c@example.com", Zone: "Mars/Olympus"}},
		"member 3: it has neither an address nor a contact": {{}},
	} {
		if err := a.Add(t.Context(), app, ms...); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), problem) {
			t.Errorf("%v, want %s", err, problem)
		}
	}
	other := before
	if err := other.Add(t.Context(), app, campaign.Member{Address: "x@example.com"}, campaign.Member{Address: "y@example.com"}); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "member 1 is another one than was given before") {
		t.Errorf("another first batch: %v", err)
	}
	again, err := campaign.OpenAudience(t.Context(), app, campaign.Scope{}, "list", campaign.Email)
	if err != nil || again.Members != 2 || again.Ready {
		t.Fatalf("%+v %v", again, err)
	}
	if _, err := campaign.OpenAudience(t.Context(), app, campaign.Scope{}, "list", campaign.SMS); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "the audience 'list' is of the channel email") {
		t.Errorf("the list for another channel: %v", err)
	}
	if _, err := campaign.Deploy(t.Context(), app, campaign.Scope{}, campaign.Request{Campaign: put(t, db, "spring", spring).ID, Audience: a.ID, ID: "1", Channel: campaign.Email}); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "the audience "+a.ID+" is loading") {
		t.Errorf("an audience that is not ready was deployed: %v", err)
	}
	if err := again.Finish(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if err := again.Add(t.Context(), app, campaign.Member{Address: "c@example.com"}); deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), "the audience is ready, and cannot be changed") {
		t.Errorf("somebody was added to it when it was ready: %v", err)
	}
	for sql, problem := range map[string]string{
		`insert into deed.audience_members select audience_id, 3, tenant_id, gen_random_uuid(), 'x@y.z', null, '{}' from deed.audience_members where n = 1`: "audience " + a.ID + ": it is ready",
		`update deed.audience_members set address = 'x@y.z' where n = 1`:                                                                                    "audience_members: a row that is there cannot be changed",
		`delete from deed.audience_members where n = 1`:                                                                                                     "audience_members: a row that is there cannot be changed",
		`truncate deed.audience_members`:                                                                                                                    "deed.audience_members is append-only: truncate is refused",
		`update deed.audiences set status = 'loading', ready_at = null`:                                                                                     "audiences: a row that is there cannot be changed",
		`update deed.campaign_contents set text = 'x'`:                                                                                                      "campaign_contents: a row that is there cannot be changed",
		`delete from deed.campaign_contents`:                                                                                                                "campaign_contents: a row that is there cannot be changed",
	} {
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), sql); sqlState(err) != "DDCON" || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %s", sql, err, problem)
		}
	}
	db.Exec(t, pgtest.App, `select deed.erase_contact($1::text::uuid, 'they asked')`, ann)
	want(t, "an erased member", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', n, address, zone, data) from deed.audience_members where n = 1`), "1 {}")
}

// Data that are deep, or vast where they are written out, as each expansion and each claim does, are refused however they come.
func TestAudience_VastData(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	a := opened(t, db, "list", campaign.Email)
	for problem, data := range map[string]string{
		"its data have numbers with so many digits":  `{"n": [` + strings.Repeat("1e131071,", 3000) + `1]}`, // 48,000 bytes here
		"its data have over 1000 arrays and objects": `{"n": ` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	} {
		_, err := app.Exec(t.Context(), `select deed.add_audience_members($1::text::uuid, 0, '{ann@example.com,bob@example.com}', array['{}', $2::text::jsonb])`, a.ID, data)
		if sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "member 2: "+problem) {
			t.Errorf("by SQL: %v, want %s", err, problem)
		}
		err = a.Add(t.Context(), app, campaign.Member{Address: "ann@example.com"}, campaign.Member{Address: "bob@example.com", Data: json.RawMessage(data)})
		if of, ok := errors.AsType[*campaign.MembersError](err); !ok || len(of.Members) != 1 || of.Members[0].N != 2 || !strings.HasPrefix(of.Members[0].Problem, problem) || deed.CodeOf(err) != deed.Invalid {
			t.Errorf("in Go: %v, want %s", err, problem)
		}
	}
	for n, data := range []string{`{"n": ` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}`, `{"n": [` + strings.Repeat("1.7976931348623157e308,", 100) + `1]}`} {
		if err := a.Add(t.Context(), app, campaign.Member{Address: address(campaign.Email, n), Data: json.RawMessage(data)}); err != nil {
			t.Errorf("what is neither: %v", err)
		}
	}
}

func TestContract_C2_NewOnesAreQueued(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	deploy(t, db, request(t, db, 1))
	statuses := map[string][]string{"campaign_runs": {"queued", "running", "completed", "partial", "failed"}, "job_queue": {"queued", "locked", "completed", "failed", "dead"}}
	for table, list := range statuses {
		for _, status := range list {
			// Of another row what this one is.
			_, err := db.Pool(pgtest.Owner).Exec(t.Context(), fmt.Sprintf(`
				insert into deed.%[1]s select (jsonb_populate_record(r, jsonb_build_object('id', gen_random_uuid(), 'status', '%[2]s', 'request_id', '%[2]s', 'from_n', 2, 'upto_n', 2))).*
				from deed.%[1]s r limit 1`, table, status))
			if ok := err == nil; ok != (status == "queued") {
				t.Errorf("a new row of %s that is %s: %v", table, status, err)
			}
		}
	}
	db.Broken()
}

// The database refuses every change of status that is not listed, whoever asks.
func TestContract_C2_OnlyTheTransitions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	deploy(t, db, request(t, db, 1))
	allowed := map[string]bool{}
	for _, line := range []string{
		"run queued running", "run running completed", "run running partial", "run running failed",
		"job queued locked", "job locked queued", "job locked completed", "job locked failed", "job failed queued", "job failed dead",
	} {
		allowed[line] = true
	}
	for kind, list := range map[string][]string{"run": {"queued", "running", "completed", "partial", "failed"}, "job": {"queued", "locked", "completed", "failed", "dead"}} {
		table := map[string]string{"run": "campaign_runs", "job": "job_queue"}[kind]
		for _, from := range list {
			for _, to := range list {
				if from == to {
					continue
				}
				// The row is put there past the trigger; what else belongs to a status goes with it.
				columns := map[string]string{"run": `started_at = case when '%[1]s' = 'queued' then null else now() end, finished_at = case when '%[1]s' in ('queued', 'running') then null else now() end`, "job": `claim = case when '%[1]s' = 'locked' then 1 end, claimed_by = case when '%[1]s' = 'locked' then 'w' end, lease_until = case when '%[1]s' = 'locked' then now() end, finished_at = case when '%[1]s' in ('queued', 'locked') then null else now() end`}[kind]
				set := func(status string) string {
					return fmt.Sprintf(`update deed.%s set status = '%s', `, table, status) + fmt.Sprintf(columns, status)
				}
				db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter table deed.%[1]s disable trigger user; %[2]s; alter table deed.%[1]s enable trigger user`, table, set(from)))
				_, err := db.Pool(pgtest.Owner).Exec(t.Context(), set(to))
				if line := kind + " " + from + " " + to; (err == nil) != allowed[line] {
					t.Errorf("%s: %v", line, err)
				} else if err != nil && sqlState(err) != "DDCON" {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
	}
	db.Broken()
}

// Who deploys is in the audit log of all that is made for it; who decides about the run later is whom that act names.
func TestDeploy_SaysWho(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	app, scope := db.Pool(pgtest.App), campaign.Scope{By: "ann"}
	c, err := campaign.Put(t.Context(), app, scope, "spring", spring)
	if err != nil {
		t.Fatal(err)
	}
	a, err := campaign.OpenAudience(t.Context(), app, scope, "people", campaign.Email)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Add(t.Context(), app, campaign.Member{Address: "p@d.example"}), a.Finish(t.Context(), app)); err != nil {
		t.Fatal(err)
	}
	d, err := campaign.Deploy(t.Context(), app, scope, campaign.Request{
		Campaign: c.ID, Audience: a.ID, ID: "1", Channel: campaign.Email, Provider: "fake", Purpose: "newsletter", From: "shop@example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := campaign.Cancel(t.Context(), app, scope, d.Run, audit.Act{By: "bob"}); err != nil && !errors.Is(err, campaign.ErrUnconfirmed) {
		t.Fatal(err)
	}
	want(t, "who acts", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', actor, action, subject_type), ', ' order by n)
		from deed.audit_log where subject_type in ('campaign', 'audience', 'contact', 'run')`),
		"ann put campaign, ann put audience, ann upsert contact, ann finish audience, ann deploy run, bob cancel run")
}
