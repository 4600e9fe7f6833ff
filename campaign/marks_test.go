package campaign_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

const nobody = "00000000-0000-0000-0000-000000000000"

// claimer claims for the provider fake as a dispatcher does: it remembers the places that claims tell it of. Its leases
// outlast any test.
type claimer struct {
	conn   *pgx.Conn
	places map[string]any
	wait   *float64 // of the last claim
}

func newClaimer(t testing.TB, db *pgtest.DB) *claimer {
	return &claimer{conn: db.Conn(t, pgtest.Worker), places: map[string]any{}}
}

func (c *claimer) text() string {
	text, _ := json.Marshal(c.places)
	return string(text)
}

func (c *claimer) claim(t testing.TB, n int) (ids []string, claim int64) {
	t.Helper()
	var found string
	err := c.conn.QueryRow(context.Background(), `
		select coalesce(array_agg(id::text) filter (where id is not null), '{}'), coalesce(max(claim), 0), coalesce(max(walk::text), '{}')
		from deed.claim_deliveries('fake', 'w', $1, '1 hour', p_places => $2::text::jsonb, p_runs => true)`, n, c.text()).Scan(&ids, &claim, &found)
	if err != nil {
		t.Fatal(err)
	}
	var walk struct {
		After  string
		Wait   *float64
		Places map[string]*string
	}
	if err := json.Unmarshal([]byte(found), &walk); err != nil {
		t.Fatal(err)
	}
	c.wait = walk.Wait
	for key, at := range walk.Places {
		if at == nil {
			delete(c.places, key)
		} else {
			c.places[key] = *at
		}
	}
	if walk.After != "" {
		c.places["after"] = walk.After
	}
	return ids, claim
}

// mark looks through all that is due, and has claims go by that for seconds.
func (c *claimer) mark(t testing.TB, db *pgtest.DB, seconds int) {
	t.Helper()
	c.markLanes(t, db, seconds, 200)
}

// markLanes looks through so many lanes at the most.
func (c *claimer) markLanes(t testing.TB, db *pgtest.DB, seconds, most int) {
	t.Helper()
	c.places[nobody+" marks"] = pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select (deed.mark_lanes('fake', '`+nobody+`', array(select run_id from deed.delivery_holds), $2) || jsonb_build_object('cost', $1::float8 / 20))::text`, seconds, most)
}

// attempt has what was claimed be called.
func (c *claimer) attempt(t testing.TB, ids []string, claim int64) {
	t.Helper()
	if _, err := c.conn.Exec(context.Background(), `
		select deed.attempt($1::text[]::uuid[], array_fill($2::bigint, array[cardinality($1)]), array_fill('x'::bytea, array[cardinality($1)]), null, '1 hour', 'w', 'fake')`, ids, claim); err != nil {
		t.Fatal(err)
	}
}

// settle says what became of it; an outage and what is released go back to where they stood.
func (c *claimer) settle(t testing.TB, ids []string, claim int64, kind string) {
	t.Helper()
	if _, err := c.conn.Exec(context.Background(), `
		select deed.settle($1::text[]::uuid[], array_fill($2::bigint, array[n]), array_fill($3::text, array[n]), $1, array_fill(null::text, array[n]), array_fill(null::float8, array[n]), 'w')
		from cardinality($1::text[]) n`, ids, claim, kind); err != nil {
		t.Fatal(err)
	}
}

// send claims, calls and settles n.
func (c *claimer) send(t testing.TB, n int) {
	t.Helper()
	for n > 0 {
		ids, claim := c.claim(t, min(n, 250))
		if len(ids) == 0 {
			t.Fatal("nothing is claimed")
		}
		c.attempt(t, ids, claim)
		c.settle(t, ids, claim, "accepted")
		n -= len(ids)
	}
}

// unclaimed is how many are due and in nobody's hand.
func unclaimed(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'queued' and due and (lease_until is null or lease_until <= clock_timestamp())`)
}

// A claim beside a snapshot that is held, which has the index keep all that was sent since, costs little more
// after five thousand were sent than before: it goes by marks, which claims have made.
func TestPlan_ClaimsBesideAHeldSnapshot(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true}).DB(t)
	db.Exec(t, pgtest.Owner, `alter table deed.channel_outbox set (autovacuum_enabled = off)`)
	held := db.Conn(t, pgtest.Owner)
	if _, err := held.Exec(t.Context(), `begin isolation level repeatable read; select count(*) from deed.runs`); err != nil {
		t.Fatal(err)
	}
	deploy(t, db, request(t, db, 6000))
	expandAll(t, db)
	c := newClaimer(t, db)
	cost := func(c *claimer) int {
		t.Helper()
		tx, err := c.conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		return pgtest.Measure(t, c.conn, pgtest.Least, `select * from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_places => '`+c.text()+`', p_runs => true)`).Buffers
	}
	cost(c) // the session's first call reads the catalogue
	before := cost(c)
	c.send(t, 5000)
	c.mark(t, db, 3600)
	after := cost(c)
	delete(c.places, nobody+" marks")
	from := cost(c)
	t.Logf("%d buffers before, %d after 5,000 were sent, %d by marks", before, from, after)
	if after > before+before/2 || from < 5000 {
		t.Errorf("a claim by marks touches %d buffers after 5,000 were sent, and %d before (without marks %d)", after, before, from)
	}
}

// A mark leaves out nothing for long: what was claimed when it was made and is given back is found at once, and so
// is what is of no run, of a run that is new, and of one that has just been resumed; what comes to stand before a mark later, as soon
// as its time is over, and the claim before that says when.
func TestClaim_FindsWhatStandsBeforeAMark(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 40)
	first := deploy(t, db, req)
	expandAll(t, db)
	c := newClaimer(t, db)
	sending, sendingClaim := c.claim(t, 14)
	c.attempt(t, sending, sendingClaim)
	given, givenClaim := c.claim(t, 14)
	c.mark(t, db, 3600)
	c.settle(t, given, givenClaim, "release")
	again, againClaim := c.claim(t, 40)
	want(t, "given back, and what was queued", len(again), 26)
	c.attempt(t, again, againClaim)
	c.settle(t, again, againClaim, "accepted")

	c.settle(t, sending, sendingClaim, "outage")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`) // as where it stood
	want(t, "back before the marks", unclaimed(t, db), 14)
	ids, _ := c.claim(t, 40)
	want(t, "before the marks, while these are new", len(ids), 0)
	if c.wait == nil || *c.wait > 3600 || *c.wait < 3000 {
		t.Errorf("the claim says %v: when to look again", c.wait)
	}

	db.Exec(t, pgtest.App, `select deed.reserve('{email}', '{fake}', '{reset@d.example}', '{"{}"}', array[sha256('x')])`)
	ids, _ = c.claim(t, 40)
	want(t, "what is of no run", len(ids), 1)
	req.ID, req.Audience = "2", people(t, db, "others", "email", 3).ID
	deploy(t, db, req)
	expandAll(t, db)
	ids, _ = c.claim(t, 40)
	want(t, "what is of a new run", len(ids), 3)

	c.places[nobody+" marks"] = `{"at": 1, "cost": 0.1}`
	ids, _ = c.claim(t, 40)
	want(t, "before the marks, once their time is over", len(ids), 14)

	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set claim = null, claimed_at = null, claimed_by = null, lease_until = null where run_id = $1::text::uuid and status = 'queued'`, first)
	db.Exec(t, pgtest.App, `select deed.pause_run($1::text::uuid, 'x', null, 'somebody')`, first)
	c.mark(t, db, 3600)
	ids, _ = c.claim(t, 40)
	want(t, "of a run that is held", len(ids), 0)
	db.Exec(t, pgtest.App, `select deed.resume_run($1::text::uuid, 'x', null, 'somebody')`, first)
	ids, _ = c.claim(t, 40)
	want(t, "of one that was held when its marks were made", len(ids), 14)
}

// A claim divides what it may take among runs, and of a run among lanes: what is over such a share it leaves, though it takes
// less than it may, and the next one takes that. Marks change nothing about it.
func TestClaim_LeavesWhatIsOverAShare(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 140) // twenty in each of seven lanes
	deploy(t, db, req)
	req.ID, req.Audience = "2", people(t, db, "one", "email", 1).ID
	deploy(t, db, req)
	expandAll(t, db)
	for _, marks := range []bool{false, true} {
		c := newClaimer(t, db)
		if marks {
			c.mark(t, db, 3600)
		}
		first, firstClaim := c.claim(t, 250)
		want(t, fmt.Sprintf("of the first claim, marks %t: 125 are the one run's share, 18 a lane's", marks), len(first), 126)
		next, nextClaim := c.claim(t, 250)
		want(t, "of the next", len(next), 15)
		c.settle(t, first, firstClaim, "release")
		c.settle(t, next, nextClaim, "release")
	}
}

// Whatever becomes of deliveries while two claimers go by marks of any age, nothing is in two hands, and all
// that is due is found once marks are made anew; also by one that has been told nonsense.
func TestClaim_MarksHideNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	req := request(t, db, 150)
	deploy(t, db, req)
	expandAll(t, db)
	cs := []*claimer{newClaimer(t, db), newClaimer(t, db)}
	type held struct {
		ids     []string
		claim   int64
		calling bool
	}
	var hands []held
	inHand := map[string]bool{}
	take := func(c *claimer, n int) int {
		ids, claim := c.claim(t, n)
		for _, id := range ids {
			if inHand[id] {
				t.Fatalf("%s is in two hands", id)
			}
			inHand[id] = true
		}
		if len(ids) > 0 {
			hands = append(hands, held{ids: ids, claim: claim})
		}
		return len(ids)
	}
	end := func(kind string) {
		if len(hands) == 0 {
			return
		}
		i := r.IntN(len(hands))
		h := hands[i]
		hands[i] = hands[len(hands)-1]
		hands = hands[:len(hands)-1]
		for _, id := range h.ids {
			delete(inHand, id)
		}
		if kind == "release" && h.calling {
			kind = "outage"
		} else if kind != "release" && !h.calling {
			cs[0].attempt(t, h.ids, h.claim)
		}
		cs[0].settle(t, h.ids, h.claim, kind)
	}
	for n := range 150 {
		c := cs[r.IntN(2)]
		switch r.IntN(9) {
		case 0, 1, 2:
			take(c, 1+r.IntN(12))
		case 3:
			end("accepted")
		case 4:
			end("release")
		case 5:
			end("outage")
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued' and lease_until is null and process_after is not null`)
		case 6:
			c.mark(t, db, []int{0, 1, 3600}[r.IntN(3)])
		case 7:
			if n%30 == 0 {
				req.ID, req.Audience = fmt.Sprint("more ", n), people(t, db, fmt.Sprint("more ", n), "email", 1+r.IntN(20)).ID
				deploy(t, db, req)
				expandAll(t, db)
			}
		case 8:
			if len(hands) > 0 && !hands[0].calling {
				cs[1].attempt(t, hands[0].ids, hands[0].claim)
				hands[0].calling = true
			}
		}
	}
	// Of when there was nothing: as of a server whose clock was ahead, and of long ago.
	req.ID, req.Audience = "last", people(t, db, "last", "email", 20).ID
	deploy(t, db, req)
	expandAll(t, db)
	for what, at := range map[string]string{"a clock that was ahead": "9999999999", "long ago": "1"} {
		cs[1].places[nobody+" marks"] = pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select jsonb_build_object('at', $1::text::float8, 'cost', 1, 'upto', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'runs', (select jsonb_object_agg(r.id, jsonb '{}') from deed.campaign_runs r))::text`, at)
		if take(cs[1], 1) == 0 {
			t.Errorf("who goes by marks of %s finds nothing", what)
		}
	}
	for _, most := range []int{3, 200} {
		for len(hands) > 0 {
			end("release")
		}
		cs[0].markLanes(t, db, 3600, most)
		for range 4 { // one leaves what is over the shares of runs and lanes
			take(cs[0], 250)
		}
		want(t, fmt.Sprintf("left by who goes by marks of %d lanes that were made just now", most), unclaimed(t, db), 0)
	}
	for c := range 40 {
		cs[0].mark(t, db, 0)
		take(cs[c%2], 50)
	}
	want(t, "due and in nobody's hand", unclaimed(t, db), 0)
}

// The marks of lanes are moved on as fast as these are sent, so that a claim steps over what the last one took, and over no more.
func TestClaim_MarksMoveAsLanesAreSent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	deploy(t, db, request(t, db, 1000))
	expandAll(t, db)
	c := newClaimer(t, db)
	c.mark(t, db, 3600)
	for range 8 {
		c.send(t, 100)
		behind := pgtest.One[int](t, db.Pool(pgtest.Owner), `
			select count(*)
			from jsonb_each($1::jsonb -> 'runs') r
			cross join jsonb_each(r.value) m
			join deed.channel_outbox c on c.run_id = r.key::uuid and c.lane = m.key
			where c.status = 'sent' and (c.ord, c.id) >= ((m.value ->> 0)::timestamptz, (m.value ->> 1)::uuid)`, c.places[nobody+" marks"])
		if behind > 105 {
			t.Fatalf("%d that were sent stand behind their marks after a claim of 100", behind)
		}
	}
}
