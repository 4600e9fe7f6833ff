package delivery_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// batchModel is a batch, the service that it is sent to, and a worker that is cut
// off wherever it may be.
type batchModel struct {
	t      *testing.T
	db     *pgtest.DB
	ids    []string // in the order of the call
	claims []int64
	batch  string
	atMost map[string]bool
	barred map[string]bool // suppressed, erased, settled or proved since the first call
	may    bool            // the first caller is about to call
	sent   bool            // the service has the batch: a repeat sends nothing
	took   map[string]int
}

func (m *batchModel) accept() {
	if !m.sent {
		for _, id := range m.ids {
			m.took[id]++
		}
	}
	m.sent = true
}

// doubts has a worker look at what is in doubt, repeat what it is given, and settle
// it unless the answer is lost.
func (m *batchModel) doubts(rt *rapid.T, answered bool) {
	// Whatever waits for its turn has it.
	m.db.Exec(m.t, pgtest.Owner, `update deed.channel_outbox set process_after = null where id = any ($1::text[]::uuid[]) and status = 'sending' and batch_place = 1 and held_at is null`, m.ids)
	type claimed struct {
		id, action, batch string
		claim             int64
		place, size       int
	}
	var list []claimed
	rows, err := m.db.Pool(pgtest.Worker).Query(m.t.Context(), `
		select id::text, coalesce(action, ''), coalesce(batch_id::text, ''), coalesce(claim, 0), coalesce(batch_place, 0), coalesce(batch_size, 0)
		from deed.claim_doubts('fake', 'other', 8, '1 minute', true, false, p_kind => 'fake', p_batches => true)`)
	if err != nil {
		rt.Fatal(err)
	}
	for rows.Next() {
		var c claimed
		if err := rows.Scan(&c.id, &c.action, &c.batch, &c.claim, &c.place, &c.size); err != nil {
			rt.Fatal(err)
		}
		list = append(list, c)
	}
	if rows.Err() != nil {
		rt.Fatal(rows.Err())
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b claimed) int { return a.place - b.place })
	var ids []string
	claims := make([]int64, len(list))
	for i, c := range list {
		if c.action != "repeat" || c.batch != m.batch || c.size != len(m.ids) || c.place != i+1 {
			rt.Fatalf("claimed %+v", list)
		}
		ids, claims[i] = append(ids, c.id), c.claim
	}
	if !slices.Equal(ids, m.ids) {
		rt.Fatalf("%q are repeated, and it was called for %q", ids, m.ids)
	}
	if len(m.barred) > 0 {
		rt.Fatalf("repeated although %v", m.barred)
	}
	if !pgtest.One[bool](m.t, m.db.Pool(pgtest.Worker), `select deed.may_repeat($1::text::uuid, $2, 'fake', '', false)`, ids[0], claims[0]) {
		rt.Fatal("it was claimed and may not be repeated")
	}
	m.accept()
	if answered {
		m.settle(ids, claims, "accepted")
	}
}

func (m *batchModel) settle(ids []string, claims []int64, kind string) {
	m.db.Exec(m.t, pgtest.Worker, `
		select from deed.settle($1::text[]::uuid[], $2, array_fill($3::text, array[$4::int]), array_fill('m'::text, array[$4::int]), array_fill('cut'::text, array[$4::int]), array_fill(null::float8, array[$4::int]), 'w')`,
		ids, claims, kind, len(ids))
}

// alone calls those that are queued again, each alone.
func (m *batchModel) alone(rt *rapid.T) {
	// Whatever waits to be called again has waited.
	m.db.Exec(m.t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() where id = any ($1::text[]::uuid[]) and status = 'queued' and process_after > clock_timestamp()`, m.ids)
	rows, err := m.db.Pool(pgtest.Worker).Query(m.t.Context(), `select id::text, claim from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_batch => 10)`)
	if err != nil {
		rt.Fatal(err)
	}
	var ids []string
	var claims []int64
	for rows.Next() {
		var id string
		var claim int64
		if err := rows.Scan(&id, &claim); err != nil {
			rt.Fatal(err)
		}
		ids, claims = append(ids, id), append(claims, claim)
	}
	for i, id := range ids {
		if m.atMost[id] {
			rt.Fatalf("%s is at_most_once, and queued after a doubt", id)
		}
		status := pgtest.One[string](m.t, m.db.Pool(pgtest.Worker), `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], '1 hour', '1 minute', 'w', 'fake')`, id, claims[i])
		if status == "sending" {
			m.took[id]++
			m.settle([]string{id}, []int64{claims[i]}, "accepted")
		}
	}
}

func (m *batchModel) check(rt *rapid.T) {
	for _, id := range m.ids {
		if m.atMost[id] && m.took[id] > 1 || m.took[id] > 2 {
			rt.Fatalf("%s was sent %d times", id, m.took[id])
		}
	}
}

// Whatever becomes of a batch's calls, answers, leases and members, in whatever
// order: it is repeated whole, under its key, only while every member may be called; no
// member that is at_most_once is sent twice; and all of them end, or wait for a person.
func TestContract_D5_ModelOfBatches(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		m := &batchModel{t: t, db: db, atMost: map[string]bool{}, barred: map[string]bool{}, took: map[string]int{}, may: true}
		n := rapid.IntRange(2, 4).Draw(rt, "members")
		v := newVan(10)
		made := v.reserve(t, db, several(n, func(i int, d *delivery.Delivery) {
			d.Recipient = fmt.Sprintf("r%d@d%d.example", round, i)
			d.Key = delivery.NewKey("model", fmt.Sprint(round), fmt.Sprint(i))
			if rapid.Bool().Draw(rt, "again") {
				d.Guarantee = delivery.AtLeastOnce
			}
		})...)
		m.batch = fmt.Sprintf("00000000-0000-7000-8000-%012d", round)
		err := worker.QueryRow(t.Context(), `select array_agg(id::text order by id), array_agg(claim) from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_batch => 10)`).Scan(&m.ids, &m.claims)
		if err != nil || len(m.ids) != n {
			rt.Fatal(m.ids, err)
		}
		for _, r := range made {
			m.atMost[r.ID] = pgtest.One[bool](t, worker, `select guarantee = 'at_most_once' from deed.channel_outbox where id = $1::text::uuid`, r.ID)
		}
		db.Exec(t, pgtest.Worker, `select from deed.attempt($1::text[]::uuid[], $2, array_fill('{}'::bytea, array[$3::int]), '1 hour', '1 minute', 'w', 'fake', '', false, array_fill($4::text::uuid, array[$3::int]))`, m.ids, m.claims, n, m.batch)
		one := func(rt *rapid.T) string { return rapid.SampledFrom(m.ids).Draw(rt, "member") }
		open := func(id string) bool {
			return pgtest.One[bool](t, worker, `select status = 'sending' and lease_until is null and doubt_since is not null from deed.channel_outbox where id = $1::text::uuid`, id)
		}
		lose := func() {
			m.may = false // who was calling is dead or knows that its lease is over
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() where id = any ($1::text[]::uuid[]) and lease_until is not null`, m.ids)
		}
		bar := func(rt *rapid.T, what string, do func(id string)) {
			if id := one(rt); open(id) {
				m.barred[id+" is "+what] = true
				do(id)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"called": func(rt *rapid.T) {
				if m.may {
					m.may = false
					m.accept()
					if rapid.Bool().Draw(rt, "answered") {
						m.settle(m.ids, m.claims, "accepted")
					}
				}
			},
			"cut": func(*rapid.T) {
				if m.may {
					m.may = false
					m.settle(m.ids, m.claims, "unknown")
				}
			},
			"lease":  func(*rapid.T) { lose() },
			"doubts": func(rt *rapid.T) { m.doubts(rt, rapid.Bool().Draw(rt, "answered")) },
			"alone":  func(rt *rapid.T) { m.alone(rt) },
			"suppress": func(rt *rapid.T) {
				bar(rt, "suppressed", func(id string) {
					db.Exec(t, pgtest.Owner, `select deed.suppress(c.channel, array[c.recipient], 'asked to', 'ann', c.tenant_id) from deed.channel_outbox c where c.id = $1::text::uuid`, id)
				})
			},
			"erase": func(rt *rapid.T) {
				bar(rt, "erased", func(id string) {
					db.Exec(t, pgtest.Owner, `select from deed.erase_deliveries(array[$1::text::uuid], 'ann')`, id)
				})
			},
			"person": func(rt *rapid.T) {
				bar(rt, "settled", func(id string) {
					db.Exec(t, pgtest.Admin, `select deed.settle_delivery($1::text::uuid, 'failed', 'cancelled', 'ann')`, id)
				})
			},
			"event": func(rt *rapid.T) {
				if m.sent {
					bar(rt, "proved", func(id string) {
						db.Exec(t, pgtest.Worker, `select from deed.prove_delivery($1::text::uuid, 'm', 'events')`, id)
					})
				}
			},
			"": func(rt *rapid.T) { m.check(rt) },
		})
		left := n
		for k := 0; k < 100 && left > 0; k++ { // who has lost a claim twice has a turn every other time
			lose()
			m.doubts(rt, true)
			m.alone(rt)
			left = pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where id = any ($1::text[]::uuid[]) and finished_at is null and held_at is null`, m.ids)
		}
		if m.check(rt); left != 0 {
			rt.Fatalf("%d neither end nor wait for a person", left)
		}
	})
	if list := rowsOf(t, worker, `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}
