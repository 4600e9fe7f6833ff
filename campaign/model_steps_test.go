package campaign_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// hand is a delivery in a worker's hand, who may be frozen while others take it over.
type hand struct {
	item   *modelItem
	claim  int64
	does   string // claimed, call, repeat or look_up
	number int    // of the call
}

// model is a run with its retries, workers, a provider, and a person who decides.
type model struct {
	t        *testing.T
	db       *pgtest.DB
	provider string
	channel  campaign.Channel
	key      bool // the provider takes what has one key once
	named    bool // all messages of a delivery have one name
	lookUp   bool
	runs     []*modelRun // each but the first one retries the one before it
	jobs     []struct {
		job   *modelJob
		claim int64
	}
	hands  []hand
	became map[[2]string]bool // what deliveries have become of what
}

func (m *model) run() *modelRun { return m.runs[len(m.runs)-1] }

// exec runs a statement as a role, and rows returns what a query of a worker's answers with.
func (m *model) exec(role pgtest.Role, sql string, args ...any) { m.db.Exec(m.t, role, sql, args...) }

// past changes a table past its triggers.
func (m *model) past(table, sql string) {
	m.exec(pgtest.Owner, fmt.Sprintf(`alter table deed.%[1]s disable trigger user; %[2]s; alter table deed.%[1]s enable trigger user`, table, sql))
}

func rowsOf[T any](m *model, sql string, args ...any) []T {
	m.t.Helper()
	rows, err := m.db.Pool(pgtest.Worker).Query(m.t.Context(), sql, args...)
	var list []T
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return list
}

// learn reads a run's jobs and who is in them.
func (m *model) learn(rt *rapid.T, id string, before *modelRun, persons map[string]*modelPerson) {
	r := &modelRun{id: id, status: "queued", before: before}
	// Some have failed before.
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(rt, "jobs that have failed") {
		m.exec(pgtest.Owner, `update deed.job_queue set attempts = least(4, attempts + 2) where id = (select id from deed.job_queue where run_id = $1::text::uuid order by attempts, id limit 1)`, id)
	}
	for _, j := range rowsOf[struct {
		ID       string
		From     int
		Attempts int
	}](m, `select id::text, from_n::int, attempts from deed.job_queue where run_id = $1::text::uuid order by from_n`, id) {
		job := &modelJob{id: j.ID, from: j.From, status: "queued", attempts: j.Attempts}
		for _, o := range rowsOf[struct {
			N       int
			Contact string
		}](m, `
			select m.n::int, m.contact_id::text
			from deed.job_queue j join deed.campaign_runs r on r.id = j.run_id join deed.audience_members m on m.audience_id = r.audience_id and m.n between j.from_n and j.upto_n
			where j.id = $1::text::uuid order by m.n`, j.ID) {
			if persons[o.Contact] == nil {
				persons[o.Contact] = &modelPerson{contact: o.Contact, allowed: 1}
			}
			job.items = append(job.items, &modelItem{person: persons[o.Contact], n: o.N, late: map[int64]string{}})
		}
		r.jobs = append(r.jobs, job)
	}
	m.runs = append(m.runs, r)
}

// due has everything that waits come due.
func (m *model) due() {
	m.exec(pgtest.Owner, `update deed.job_queue set process_after = clock_timestamp() - interval '1 minute' + from_n * interval '1 ms' where run_id = $1::text::uuid and finished_at is null`, m.run().id)
	m.exec(pgtest.Owner, `update deed.channel_outbox set process_after = null where run_id = $1::text::uuid and finished_at is null and process_after is not null`, m.run().id)
}

// claimJobs has a worker lock jobs: what others have lost goes back first.
func (m *model) claimJobs(rt *rapid.T, limit int) {
	m.due()
	r, queued := m.run(), 0
	for _, j := range r.jobs {
		if j.status == "locked" && !j.expanded && j.lapsed {
			r.fail(j) // taken back, with an attempt more
		}
		if j.status == "queued" {
			queued++
		}
	}
	got := rowsOf[struct {
		ID    string
		Claim int64
	}](m, `select id::text, claim from deed.claim_queued_jobs('w', $1)`, limit)
	if len(got) != min(limit, queued) {
		rt.Fatalf("%d jobs were locked of %d, at most %d", len(got), queued, limit)
	}
	for _, c := range got {
		for _, j := range r.jobs {
			if j.id != c.ID {
				continue
			}
			if j.status != "queued" {
				rt.Fatalf("job %d was locked, and is %s", j.from, j.status)
			}
			j.status, j.claim = "locked", c.Claim
			m.jobs = append(m.jobs, struct {
				job   *modelJob
				claim int64
			}{j, c.Claim})
		}
	}
	if len(got) > 0 && r.status == "queued" {
		r.status = "running"
	}
}

// expand has whoever locked a job first do with it what is said.
func (m *model) expand(rt *rapid.T, does string) {
	if len(m.jobs) == 0 {
		return
	}
	j, claim := m.jobs[0].job, m.jobs[0].claim
	m.jobs = m.jobs[1:]
	mine := j.status == "locked" && !j.expanded && j.claim == claim
	state := pgtest.One[string](m.t, m.db.Pool(pgtest.Worker), map[string]string{
		"expand":   `select coalesce(state, '') from deed.expand_job($1::text::uuid, $2, 'w')`,
		"give up":  `select coalesce(deed.give_up_job($1::text::uuid, $2, 'no', 'w'), '')`,
		"put back": `select coalesce(deed.put_back_job($1::text::uuid, $2, 'no', 'w'), '')`,
	}[does], j.id, claim)
	if mine {
		switch does {
		case "expand":
			m.run().expand(j)
			m.learnIDs(j)
		case "give up":
			m.run().fail(j)
		case "put back":
			j.status, j.claim, j.lapsed = "queued", 0, false
		}
	}
	if want := map[bool]string{true: j.status}[mine]; state != want {
		rt.Fatalf("%s: job %d is %q, want %q", does, j.from, state, want)
	}
}

// learnIDs learns the ids of a job's deliveries.
func (m *model) learnIDs(j *modelJob) {
	for _, c := range rowsOf[struct{ ID, Contact string }](m, `select id::text, contact_id::text from deed.channel_outbox where job_id = $1::text::uuid`, j.id) {
		for _, i := range j.items {
			if i.person.contact == c.Contact {
				i.id = c.ID
			}
		}
	}
}

// expandAgain is an expansion whose end was lost after its rows were written, as by a restore.
func (m *model) expandAgain(rt *rapid.T) {
	for _, j := range m.run().jobs {
		if j.status == "locked" && j.expanded {
			m.past("job_queue", fmt.Sprintf(`update deed.job_queue set expanded_at = null, claim = 1, claimed_by = 'w', lease_until = clock_timestamp() where id = '%s'`, j.id))
			made := -1
			if err := m.db.Pool(pgtest.Worker).QueryRow(m.t.Context(), `select made from deed.expand_job($1::text::uuid, 1, 'w')`, j.id).Scan(&made); err != nil || made != 0 {
				rt.Fatalf("expanded again: %d rows, %v", made, err)
			}
			return
		}
	}
}

// claim has a worker claim deliveries.
func (m *model) claim(rt *rapid.T, limit int) {
	m.due()
	for _, c := range rowsOf[struct {
		ID    string
		Claim int64
		Lost  int
	}](m, `select id::text, claim, lost_claims from deed.claim_deliveries($1, 'w', $2, '1 hour', p_runs => true)`, m.provider, limit) {
		i := m.item(c.ID)
		if r := m.run(); i == nil || r.paused || r.cancelled || i.status != "queued" || !i.free() {
			rt.Fatalf("claimed %+v of\n%s", i, m.run())
		}
		i.claim, i.leased, i.lapsed, i.lost = c.Claim, true, false, c.Lost
		m.hands = append(m.hands, hand{i, c.Claim, "claimed", 0})
	}
}

// item is that of the run that goes on; nil: it is of no member.
func (m *model) item(id string) *modelItem {
	for _, i := range m.run().items() {
		if i.id == id {
			return i
		}
	}
	return nil
}

// attempt has a worker begin the calls of what it has in its hands, of those that are chosen.
func (m *model) attempt(rt *rapid.T, chosen func() bool) {
	var ids []string
	var claims []int64
	window := map[bool]string{true: "1 hour"}[m.key]
	want := map[string]*modelItem{}
	for n, h := range m.hands {
		if h.does != "claimed" || !chosen() {
			continue
		}
		ids, claims = append(ids, h.item.id), append(claims, h.claim)
		m.hands[n].does = "nothing"
		if h.item.claim == h.claim && h.item.status == "queued" {
			m.run().attempt(h.item)
			want[h.item.id] = h.item
			if h.item.status == "sending" {
				m.hands[n].does, m.hands[n].number = "call", h.item.attempts
			}
		}
	}
	m.hands = slices.DeleteFunc(m.hands, func(h hand) bool { return h.does == "nothing" })
	if len(ids) == 0 {
		return
	}
	got := rowsOf[struct{ ID, Status string }](m, `
		select id::text, status from deed.attempt($1::text[]::uuid[], $2, array_fill('x'::bytea, array[cardinality($2::bigint[])]), nullif($3, '')::interval, '1 hour', 'w')`, ids, claims, window)
	if len(got) != len(want) {
		rt.Fatalf("%d were attempted, want %d", len(got), len(want))
	}
	for _, a := range got {
		if want[a.ID] == nil || a.Status != want[a.ID].status {
			rt.Fatalf("attempted as %s, want %+v", a.Status, want[a.ID])
		}
	}
}

// pick takes some of what is in workers' hands out of them.
func (m *model) pick(chosen func() bool) (list []hand) {
	var rest []hand
	for _, h := range m.hands {
		if chosen() {
			list = append(list, h)
		} else {
			rest = append(rest, h)
		}
	}
	m.hands = rest
	return list
}

// outcomes are what comes of a call; killed is nothing, as the worker is gone.
var outcomes = []string{"accepted", "accepted", "refused", "bad_address", "opted_out", "later", "later", "deferred", "deferred", "outage", "unknown", "unknown", "unknown", "killed", "killed"}

// name is what the provider calls the message that it has taken last.
func (m *model) name(i *modelItem) string {
	if m.named {
		return "m-1"
	}
	return fmt.Sprint("m-", i.person.took)
}

// answer ends what a worker does with a delivery.
func (m *model) answer(rt *rapid.T, h hand, outcome string, reached bool) {
	i, message := h.item, "m-0"
	switch h.does {
	case "claimed":
		outcome = map[bool]string{true: "unusable", false: "release"}[outcome == "refused"]
	case "repeat":
		may := i.claim == h.claim && i.status == "sending" && i.doubt && !i.held && i.leased && !i.person.suppressed
		if got := pgtest.One[bool](m.t, m.db.Pool(pgtest.Worker), `select deed.may_repeat($1::text::uuid, $2, 'fake', '', false)`, i.id, h.claim); got != may {
			rt.Fatalf("may be repeated: %t, want %t: %+v", got, may, i)
		} else if !may {
			outcome, reached = "unrepeated", false
		}
	case "look_up":
		outcome, message = map[bool]string{true: "accepted", false: "undecided"}[i.took], i.message
	}
	if h.does == "call" || h.does == "repeat" {
		if outcome == "accepted" || reached && (outcome == "unknown" || outcome == "killed") {
			if !i.took || !m.key {
				i.person.took++
			}
			i.took = true
		}
		message = m.name(i)
	}
	if outcome == "killed" {
		return
	}
	note := func() {
		m.exec(pgtest.Worker, `select from deed.note_attempts(array[$1::text::uuid], array[$2::bigint], array[$5::int], array[replace(replace($3, '_', ' '), 'later', 'not now')], array[$4::text], '{null}', '{null}', array[$6::text], '{false}', '{0.1}', 'w')`,
			i.id, h.claim, outcome, message, h.number, map[bool]*string{true: &message}[m.key])
	}
	made := h.does == "call" || h.does == "repeat" && outcome != "unrepeated"
	if made && outcome != "accepted" {
		note()
		i.bad = i.bad || outcome == "bad_address" && (i.claim != h.claim || !i.done())
	}
	m.exec(pgtest.Worker, `select from deed.settle(array[$1::text::uuid], array[$2::bigint], array[$3], array[$4], array[$3], array[null::float8], 'w', '0', '{1,1}', $5, '0')`,
		i.id, h.claim, outcome, map[bool]*string{true: &message}[outcome == "accepted"], modelAttempts)
	i.byCall = i.byCall || made && outcome == "accepted" && i.claim == h.claim && i.open()
	i.settle(h.claim, outcome, message, doneOf[m.channel])
	if made && outcome == "accepted" {
		note()
		if i.claim != h.claim || !i.done() {
			i.late[h.claim] = message
			open := i.open()
			if i.prove(message, doneOf[m.channel]); open && i.done() {
				i.claim = 0 // who calls it meanwhile is late
			}
		}
	}
}

// doubts has a worker look at what is in doubt.
func (m *model) doubts(rt *rapid.T, limit int) {
	m.due()
	repeats := func(i *modelItem) bool { return m.key && !i.person.suppressed }
	for _, i := range m.run().items() {
		if i.status == "sending" && i.leased && i.lapsed {
			i.doubt, i.leased, i.lapsed = true, false, false
			i.lost++
		}
		if i.status == "sending" && i.doubt && !i.held && !i.leased && !repeats(i) && !m.lookUp {
			i.held = true
		}
	}
	for _, c := range rowsOf[struct {
		ID     string
		Claim  int64
		Action string
	}](m, `select id::text, claim, action from deed.claim_doubts($1, 'w', $2, '1 hour', $3, $4)`, m.provider, limit, m.key, m.lookUp) {
		i := m.item(c.ID)
		if i == nil || i.status != "sending" || !i.doubt || i.held || i.leased || (c.Action == "repeat") != repeats(i) {
			rt.Fatalf("to %s: %+v", c.Action, i)
		}
		i.claim, i.leased = c.Claim, true
		if c.Action == "repeat" {
			i.attempts++
			i.calls++
		}
		m.hands = append(m.hands, hand{i, c.Claim, c.Action, i.attempts})
	}
}

// decide has a person say what became of a delivery, which they may of what is in doubt.
func (m *model) decide(rt *rapid.T, i *modelItem, decision string) {
	_, err := m.db.Pool(pgtest.Admin).Exec(m.t.Context(), `select deed.settle_delivery($1::text::uuid, $2, 'I know', 'ann')`, i.id, decision)
	if may := i.status == "sending" && i.free(); may != (err == nil) || err != nil && sqlState(err) != "DDCON" {
		rt.Fatalf("decided %s: %v, of %+v", decision, err, i)
	} else if !may {
		return
	}
	switch decision {
	case "sent":
		i.end(doneOf[m.channel], "")
	case "failed":
		i.person.allowed++
		i.end("failed", "")
	case "send_again":
		i.person.allowed++
		i.unsettled = true
		i.back()
	}
}
