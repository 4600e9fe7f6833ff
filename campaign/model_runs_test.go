package campaign_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// control pauses, resumes or cancels the run, which is refused once it has ended or is cancelled.
func (m *model) control(rt *rapid.T, what string) {
	r, app := m.run(), m.db.Pool(pgtest.App)
	var err error
	sending := int64(-1)
	switch what {
	case "pause":
		sending, err = campaign.Pause(m.t.Context(), app, campaign.Scope{}, r.id, audit.Act{By: "ann"})
	case "resume":
		err = campaign.Resume(m.t.Context(), app, campaign.Scope{}, r.id, audit.Act{By: "ann"})
	case "cancel":
		sending, err = campaign.Cancel(m.t.Context(), app, campaign.Scope{}, r.id, audit.Act{By: "ann"})
	}
	if refused := r.ended() || r.cancelled && what != "cancel"; refused != (deed.CodeOf(err) == deed.Conflict) || !refused && err != nil {
		rt.Fatalf("%s: %v, of\n%s", what, err, r)
	} else if refused {
		return
	}
	r.paused, r.cancelled = what == "pause", r.cancelled || what == "cancel"
	calling := int64(0)
	for _, i := range r.items() {
		if i.status == "sending" {
			calling++
		}
	}
	if sending >= 0 && sending != calling {
		rt.Fatalf("%s: %d are sending, want %d", what, sending, calling)
	}
}

// sweep skips what is queued of a run that is late.
func (m *model) sweep() {
	for pgtest.One[int](m.t, m.db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`) > 0 {
	}
	r := m.run()
	for _, i := range r.items() {
		if why := r.late(i.begun()); why != "" && i.id != "" && i.status == "queued" && i.free() {
			i.end("skipped", why)
		}
	}
}

func (m *model) rollUp(limit int) {
	m.due()
	m.exec(pgtest.Worker, `select deed.roll_up($1, 'w')`, limit)
	r := m.run()
	var looked []*modelJob
	for _, j := range r.jobs {
		if j.status == "locked" && j.expanded && len(looked) < limit {
			looked = append(looked, j)
		}
	}
	if len(looked) > 0 {
		r.roll(looked...)
	}
}

// lose has the leases of some run out.
func (m *model) lose(chosen func() bool) {
	for _, j := range m.run().jobs {
		if j.status == "locked" && !j.expanded && chosen() {
			j.lapsed = true
			m.exec(pgtest.Owner, `update deed.job_queue set lease_until = clock_timestamp() where id = $1::text::uuid`, j.id)
		}
	}
	for _, i := range m.run().items() {
		if i.leased && i.lost < 8 && chosen() {
			i.lapsed = true
			m.exec(pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() where id = $1::text::uuid`, i.id)
		}
	}
}

// retry makes a run of whom the last one has failed.
func (m *model) retry(rt *rapid.T, missed bool) {
	r := m.run()
	got, err := campaign.Retry(m.t.Context(), m.db.Pool(pgtest.App), campaign.Scope{}, r.id, campaign.RetryOptions{Missed: missed}, audit.Act{By: "ann"})
	list := r.again(missed)
	switch {
	case !r.ended():
		if deed.CodeOf(err) != deed.Conflict {
			rt.Fatalf("retried while it goes on: %v", err)
		}
	case len(list) == 0:
		if deed.CodeOf(err) != deed.Invalid {
			rt.Fatalf("retried for nobody: %v, of\n%s", err, r)
		}
	case err != nil:
		rt.Fatal(err)
	default:
		persons := map[string]*modelPerson{}
		for _, p := range list {
			persons[p.contact] = p
		}
		m.learn(rt, got.Run, r, persons)
		if len(persons) != len(list) || len(m.run().items()) != len(list) {
			rt.Fatalf("%d are tried again, want %d", len(m.run().items()), len(list))
		}
	}
}

// check holds the tables against the model.
func (m *model) check(rt *rapid.T) {
	for _, r := range m.runs {
		got := pgtest.One[string](m.t, m.db.Pool(pgtest.Owner), `
			select string_agg(line, e'\n' order by kind, n)
			from (
				select 1 as kind, 0 as n, format('run %s paused %s cancelled %s', status, case when paused_at is null then 'false' else 'true' end, case when cancelled_at is null then 'false' else 'true' end) as line
				from deed.campaign_runs where id = $1::text::uuid
				union all
				select 2, from_n, format('job %s %s attempts %s expanded %s', from_n, status, attempts, case when expanded_at is null then 'false' else 'true' end) from deed.job_queue where run_id = $1::text::uuid
				union all
				select 3, m.n, format('member %s %s %s attempts %s leased %s doubt %s held %s proved %s', m.n, c.status,
					(regexp_match(coalesce(c.skip_reason, ''), '^[^;:,]*'))[1] || case when c.skip_reason like '%; an earlier call may have been accepted' then '!' else '' end,
					c.attempts, s.leased, s.doubt, s.held, s.proved)
				from deed.channel_outbox c
				join deed.campaign_runs r on r.id = c.run_id
				left join deed.audience_members m on m.audience_id = r.audience_id and m.contact_id = c.contact_id
				cross join lateral (select to_jsonb(c.lease_until is not null)::text as leased, to_jsonb(c.doubt_since is not null)::text as doubt,
					to_jsonb(c.held_at is not null)::text as held, to_jsonb(c.proved_at is not null)::text as proved) s
				where c.run_id = $1::text::uuid
			) lines`, r.id)
		if want := r.String(); got != want {
			rt.Fatalf("the tables have\n%s\nwant\n%s", got, want)
		}
		for _, i := range r.items() {
			if i.id == "" {
				continue
			}
			if i.status != i.was && !m.became[[2]string{i.was, i.status}] {
				rt.Fatalf("%q became %q", i.was, i.status)
			}
			i.was = i.status
			if i.person.took > i.person.allowed {
				rt.Fatalf("the provider has got %d for member %d, and a person has said so %d times: %+v", i.person.took, i.n, i.person.allowed-1, i)
			}
		}
	}
}

// finish has all that is left go well.
func (m *model) finish(rt *rapid.T) {
	all := func() bool { return true }
	for turn := 0; !m.run().ended(); turn++ {
		if turn > 60 {
			rt.Fatalf("it does not end:\n%s", m.run())
		}
		if m.run().paused {
			m.control(rt, "resume")
		}
		m.lose(all)
		m.hands = nil
		m.claimJobs(rt, 10)
		for len(m.jobs) > 0 {
			m.expand(rt, "expand")
		}
		m.check(rt)
		m.claim(rt, 20)
		m.attempt(rt, all)
		m.check(rt)
		m.doubts(rt, 20)
		for _, h := range m.hands {
			m.answer(rt, h, "accepted", true)
		}
		m.hands = nil
		for _, i := range m.run().items() {
			if i.held {
				m.decide(rt, i, map[bool]string{true: "sent", false: "failed"}[i.took])
			}
		}
		m.sweep()
		m.rollUp(10)
		m.check(rt)
	}
}

// verify asks what deed campaign verify says, and looks whether runs and jobs went from one status to the next.
func (m *model) verify(rt *rapid.T) {
	for _, r := range m.runs {
		want := map[string]int64{}
		for _, i := range r.items() {
			if i.id == "" {
				want["missing"]++
			} else if i.open() {
				rt.Fatalf("%+v is open", i)
			}
			for claim, message := range i.late {
				// Of messages of one name there were two if more than one call was accepted; under a key they are one.
				if another := message != i.message || !m.key && (i.byCall || len(i.late) > 1); i.done() && claim != i.claim && another {
					want["accepted twice"]++
				}
			}
		}
		p, err := campaign.Verify(m.t.Context(), m.db.Pool(pgtest.App), r.id, 10)
		if err != nil || fmt.Sprint(p.Found) != fmt.Sprint(want) || p.Launched() != (len(want) == 0) {
			rt.Fatalf("verify: %v, %+v, %v; want %v of\n%s", p.Found, p.Findings, err, want, r)
		}
		at := map[string]string{}
		for _, a := range rowsOf[struct {
			Subject, ID, From, To string
			Listed                bool
		}](m, `
			select a.subject_type, a.subject_id, a.from_status, a.to_status, exists (select from deed.campaign_transitions t where t.kind = a.subject_type and t.from_status = a.from_status and t.to_status = a.to_status)
			from deed.campaign_audit_log a where a.run_id = $1::text::uuid and a.subject_type in ('run', 'job') and a.from_status is not null order by a.n`, r.id) {
			if was, ok := at[a.ID]; !a.Listed || ok && was != a.From || !ok && a.From != "queued" {
				rt.Fatalf("%s %s went from %s to %s, and was %s", a.Subject, a.ID, a.From, a.To, was)
			}
			at[a.ID] = a.To
		}
		for _, j := range r.jobs {
			if at[j.id] != j.status {
				rt.Fatalf("by the audit log job %d is %s, and it is %s", j.from, at[j.id], j.status)
			}
		}
		if at[r.id] != r.status {
			rt.Fatalf("by the audit log the run is %s, and it is %s", at[r.id], r.status)
		}
	}
}

// begin deploys a run of up to three jobs of up to four members each. A job is for members whose numbers
// begin in a thousand of their own, so that the audience has gaps.
func (m *model) begin(rt *rapid.T, name string) {
	sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(rt, "members of jobs")
	n := 0
	for _, size := range sizes {
		n += size
	}
	m.channel = rapid.SampledFrom([]campaign.Channel{campaign.Email, campaign.Voice, campaign.Social}).Draw(rt, "channel")
	m.key, m.lookUp = rapid.Bool().Draw(rt, "takes a key"), rapid.Bool().Draw(rt, "can be asked")
	m.named = !m.key && rapid.Bool().Draw(rt, "names messages by their delivery")
	m.provider = name
	m.db.Providers(m.t, "fake", name)
	// Who failed in a round before this one stays there.
	m.exec(pgtest.Owner, `update deed.job_queue set process_after = '2200-01-01', lease_until = case when lease_until is not null then '2200-01-01'::timestamptz end where finished_at is null`)
	a, err := campaign.OpenAudience(m.t.Context(), m.db.Pool(pgtest.App), campaign.Scope{}, name, m.channel)
	if err != nil {
		rt.Fatal(err)
	}
	var list []campaign.Member
	for i := range n {
		list = append(list, campaign.Member{Address: strings.Replace(modelAddress[m.channel], "N", fmt.Sprint(name[1:], i), 1)})
	}
	if err := a.Add(m.t.Context(), m.db.Pool(pgtest.App), list...); err != nil {
		rt.Fatal(err)
	}
	last := n
	for part := len(sizes) - 1; part >= 0; part-- { // from the last one on, so that no two have one number
		for k := sizes[part]; k > 0; k-- {
			m.past("audience_members", fmt.Sprintf(`update deed.audience_members set n = %d where audience_id = '%s' and n = %d`, part*1000+k, a.ID, last))
			last--
		}
	}
	if err := a.Finish(m.t.Context(), m.db.Pool(pgtest.App)); err != nil {
		rt.Fatal(err)
	}
	req := campaign.Request{
		Campaign: put(m.t, m.db, string(m.channel), modelContent[m.channel]).ID, Audience: a.ID, ID: name, Channel: m.channel, Provider: name, Purpose: "newsletter",
		From: map[bool]string{true: "shop@example.com"}[m.channel == campaign.Email],
	}
	run := deploy(m.t, m.db, req)
	m.past("job_queue", fmt.Sprintf(`update deed.job_queue set upto_n = %d where run_id = '%s'`, sizes[0], run))
	for part, size := range sizes[1:] {
		m.exec(pgtest.Owner, `
			insert into deed.job_queue (id, run_id, tenant_id, workspace_id, job_type, process_after, from_n, upto_n, created_at)
			select deed.new_id(), run_id, tenant_id, workspace_id, job_type, process_after, $2::int, $2::int + $3::int - 1, created_at from deed.job_queue where run_id = $1::text::uuid and from_n = 1`, run, (part+1)*1000+1, size)
	}
	m.learn(rt, run, nil, map[string]*modelPerson{})
}

var modelAddress = map[campaign.Channel]string{campaign.Email: "pN@example.com", campaign.Voice: "+49301N", campaign.Social: "@pN@localhost"}

var modelContent = map[campaign.Channel]campaign.Content{
	campaign.Email: spring, campaign.Voice: {Script: "hello", ScriptVersion: "1"}, campaign.Social: {Text: "hello", Post: "p1"},
}

// Whatever order jobs are locked, expanded, given up and rolled up in, deliveries claimed, called, settled,
// doubted and decided, leases lost, runs paused, resumed, cancelled, late and retried: the tables have what the reducer
// says, nobody has two deliveries of a run, the provider is called again only where it was certainly not done or a person has said so,
// nothing begins in a run that is held, and in the end deed campaign verify finds what is there to be found.
func TestContract_C3_ModelOfRuns(t *testing.T) {
	t.Parallel()
	if os.Getenv("DEED_TORTURE") == "" {
		if err := errors.Join(flag.Set("rapid.checks", "16"), flag.Set("rapid.steps", "80")); err != nil {
			t.Fatal(err)
		}
	}
	db := pgtest.New(t)
	var list []string
	if err := db.Pool(pgtest.Owner).QueryRow(t.Context(), `select array_agg(from_status || ' ' || to_status) from deed.delivery_transitions`).Scan(&list); err != nil {
		t.Fatal(err)
	}
	became := map[[2]string]bool{}
	for _, line := range list {
		from, to, _ := strings.Cut(line, " ")
		became[[2]string{from, to}] = true
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		m := &model{t: t, db: db, became: became}
		m.begin(rt, fmt.Sprint("r", 1000+round))
		if rapid.Bool().Draw(rt, "expanded") {
			m.claimJobs(rt, 10)
			for len(m.jobs) > 0 {
				m.expand(rt, "expand")
			}
		}
		some := func() bool { return rapid.Bool().Draw(rt, "this one") }
		seldom := func(rt *rapid.T) bool { return rapid.IntRange(0, 11).Draw(rt, "once in twelve times") == 7 }
		limit := func(rt *rapid.T) int { return rapid.SampledFrom([]int{1, 2, 3, 12}).Draw(rt, "at most") }
		one := func(rt *rapid.T, do func(*modelItem)) {
			var list []*modelItem
			for _, i := range m.run().items() {
				if i.id != "" {
					list = append(list, i)
				}
			}
			if len(list) > 0 {
				do(list[rapid.IntRange(0, len(list)-1).Draw(rt, "member")])
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"lock": func(rt *rapid.T) {
				for _, j := range m.run().jobs {
					if j.lapsed && j.status == "locked" {
						m.claimJobs(rt, 10)
						return
					}
				}
				m.claimJobs(rt, limit(rt))
			},
			"expand": func(rt *rapid.T) {
				m.expand(rt, rapid.SampledFrom([]string{"expand", "expand", "expand", "give up", "put back"}).Draw(rt, "as"))
			},
			"expand again": m.expandAgain,
			"claim":        func(rt *rapid.T) { m.claim(rt, limit(rt)) },
			"call": func(rt *rapid.T) {
				m.claim(rt, limit(rt))
				m.attempt(rt, func() bool { return true })
			},
			"attempt": func(rt *rapid.T) { m.attempt(rt, some) },
			"answer": func(rt *rapid.T) {
				for _, h := range m.pick(some) {
					m.answer(rt, h, rapid.SampledFrom(outcomes).Draw(rt, "outcome"), rapid.Bool().Draw(rt, "reached"))
				}
			},
			"doubt": func(rt *rapid.T) { m.doubts(rt, limit(rt)) },
			"decide": func(rt *rapid.T) {
				one(rt, func(i *modelItem) {
					for _, o := range m.run().items() {
						if o.held {
							i = o
						}
					}
					m.decide(rt, i, rapid.SampledFrom([]string{"sent", "failed", "send_again"}).Draw(rt, "decision"))
				})
			},
			"prove": func(rt *rapid.T) { // of an earlier run, too
				var list []*modelItem
				for _, r := range m.runs {
					for _, i := range r.items() {
						if i.took && !i.done() {
							list = append(list, i)
						}
					}
				}
				if len(list) > 0 {
					i := list[rapid.IntRange(0, len(list)-1).Draw(rt, "member")]
					message := m.name(i)
					m.exec(pgtest.Worker, `select from deed.prove_delivery($1::text::uuid, $2, 'events')`, i.id, message)
					open := i.open()
					if i.prove(message, doneOf[m.channel]); open && i.done() && i.unsettled {
						i.claim = 0 // as with a late answer: who calls it meanwhile is late
					}
				}
			},
			"suppress": func(rt *rapid.T) {
				one(rt, func(i *modelItem) {
					if seldom(rt) {
						m.exec(pgtest.App, `select deed.suppress(c.channel, array[c.recipient], 'asked to', 'ann', c.tenant_id) from deed.channel_outbox c where c.id = $1::text::uuid`, i.id)
						i.person.suppressed = true
					}
				})
			},
			"pause":  func(rt *rapid.T) { m.control(rt, "pause") },
			"resume": func(rt *rapid.T) { m.control(rt, "resume") },
			"cancel": func(rt *rapid.T) {
				if seldom(rt) {
					m.control(rt, "cancel")
				}
			},
			"expire": func(rt *rapid.T) {
				if seldom(rt) && !m.run().ended() {
					m.exec(pgtest.Owner, `update deed.campaign_runs set expires_at = clock_timestamp() - interval '1 hour' where id = $1::text::uuid`, m.run().id)
					m.run().expired = true
				}
			},
			"sweep":   func(*rapid.T) { m.sweep() },
			"roll up": func(rt *rapid.T) { m.rollUp(rapid.IntRange(1, 3).Draw(rt, "at most")) },
			"lose":    func(rt *rapid.T) { m.lose(some) },
			"retry": func(rt *rapid.T) {
				if len(m.runs) < 3 {
					m.retry(rt, rapid.Bool().Draw(rt, "what was missed, too"))
				}
			},
			"": m.check,
		})
		m.finish(rt)
		if m.retry(rt, true); !m.run().ended() {
			m.finish(rt)
		}
		m.verify(rt)
	})
}
