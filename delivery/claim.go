package delivery

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	claimBytes  = 32 << 20 // the most contents that one claim takes
	inHandBytes = 64 << 20 // the most that a process has in hand; one delivery is always taken
	smallBytes  = 1 << 20  // of a tenant in hand, of which a claim is not told
)

// turns is where a loop's claims left off: behind which tenant, and of the
// tenants with more runs and lanes than a claim looks at, behind which of those.
type turns struct {
	after   string
	ripened string            // behind which tenant scheduled ones come due next; "": the first
	places  map[string]string // by tenant the run; by tenant and run the lane
	quick   int               // claims in a row that found nothing and were followed at once
}

const (
	mostPlaces = 10_000 // that are remembered; others begin at their first lane
	sentPlaces = 300    // that a claim is told of: it meets a hundred tenants
	mostQuick  = 50     // looks at what else there is, a thousand lanes each, before one waits as if there were nothing
)

// walk is what a claim says of itself.
type walk struct {
	After   string             `json:"after"`
	Ripened string             `json:"ripened"`
	Wait    *float64           `json:"wait"` // seconds; nil: nobody can tell
	Places  map[string]*string `json:"places"`
	Ended   []ended            `json:"ended"`
}

// next is what a claim is told: the places that it may come by, and how many more
// deliveries and bytes it may take of tenants that may not have any number.
func (t *turns) next(rooms map[string]int, bytes map[string]int64) string {
	keys := make([]string, 0, len(t.places))
	for key := range t.places {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	from, _ := slices.BinarySearch(keys, t.after+"~") // behind the tenant and its runs
	told := map[string]any{"rooms": rooms, "bytes": bytes}
	for i := range min(len(keys), sentPlaces) {
		key := keys[(from+i)%len(keys)]
		told[key] = t.places[key]
	}
	if t.after != "" {
		told["after"] = t.after
	}
	if t.ripened != "" {
		told["ripened"] = t.ripened
	}
	text, _ := json.Marshal(told) // of strings and numbers, it cannot fail
	return string(text)
}

func (t *turns) took(w walk) {
	if w.After != "" {
		t.after = w.After
	}
	t.ripened = w.Ripened
	for key, at := range w.Places {
		if at == nil {
			delete(t.places, key)
		} else {
			t.places[key] = *at
		}
	}
	for key := range t.places {
		if len(t.places) <= mostPlaces {
			break
		}
		delete(t.places, key)
	}
}

// hand is what one loop over a provider's deliveries has in hand, and in whose
// turn it takes more.
type hand struct {
	ledger   *Ledger
	lanes    *lanes
	places   *places
	stopping <-chan struct{} // closed when no call may begin any more

	mu     sync.Mutex
	items  map[*item]int64 // guarded by mu: the bytes of each
	owners map[string]int  // guarded by mu: items, by tenant
	turns  turns           // guarded by mu
}

func newHand(l *Ledger, lanes *lanes, usual, spare int) *hand {
	return &hand{
		ledger: l, lanes: lanes, places: newPlaces(usual, spare),
		items: map[*item]int64{}, owners: map[string]int{}, turns: turns{places: map[string]string{}},
	}
}

// take counts what a claim has brought, and where it left off.
func (h *hand) take(c *claiming) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range c.items {
		n := int64(len(it.payload) + len(it.request))
		h.items[it] = n
		h.owners[it.tenant]++
		h.ledger.inHand.add(it.tenant, n)
		h.lanes.claimed(it.lane)
		h.turns.quick = 0
	}
	h.turns.took(c.walk)
}

// drop counts deliveries out, each once.
func (h *hand) drop(items ...*item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, it := range items {
		if n, ok := h.items[it]; ok {
			delete(h.items, it)
			if h.owners[it.tenant]--; h.owners[it.tenant] == 0 {
				delete(h.owners, it.tenant)
			}
			h.ledger.inHand.add(it.tenant, -n)
			h.lanes.settled(it.lane)
		}
	}
}

// laden reports whether the process has as much in hand as it may, and this
// loop has something of it to finish.
func (h *hand) laden() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.items) > 0 && h.ledger.inHand.free() == 0
}

// ask is what every claim is told: the lanes and how many each may take, the
// bytes, and the places.
func (h *hand) ask() (names []string, rooms []*int, bytes int64, places string) {
	names, rooms = h.lanes.rooms()
	owners := h.places.rooms()
	h.mu.Lock()
	defer h.mu.Unlock()
	for tenant, most := range owners {
		owners[tenant] = max(0, most-h.owners[tenant])
	}
	return names, rooms, min(claimBytes, h.ledger.inHand.free()), h.turns.next(owners, h.ledger.inHand.rooms())
}

// claiming is a claim on its way.
type claiming struct {
	items []*item
	walk  walk
}

// add takes a row of a claim: a delivery, or the last one, about the claim.
func (c *claiming) add(it *item, id, found *string) error {
	if id == nil {
		return json.Unmarshal([]byte(*found), &c.walk)
	}
	it.id = *id
	c.items = append(c.items, it)
	return nil
}

// look is when to claim again after a claim that found nothing. What may not be
// called now, such as thousands of hosts that are paused, is gone through quickly
// and then looked at as seldom as nothing at all.
func (h *hand) look(c *claiming, poll time.Duration) time.Duration {
	poll = poll/2 + rand.N(poll)
	if c.walk.Wait == nil {
		return poll
	}
	wait := time.Duration(*c.walk.Wait * float64(time.Second))
	if wait < 20*time.Millisecond {
		h.mu.Lock()
		h.turns.quick++
		tired := h.turns.quick > mostQuick
		h.mu.Unlock()
		if tired {
			return poll
		}
		// There is more, or a token comes soon.
		wait = 20*time.Millisecond + rand.N(20*time.Millisecond)
	}
	return min(wait+time.Millisecond, poll)
}

// queueClaim adds a claim to a batch.
func (s *source) queueClaim(batch *pgx.Batch, n int) *claiming {
	names, rooms, bytes, places := s.hand.ask()
	c := &claiming{}
	batch.Queue(query.Claim, s.name, s.ledger.opts.Worker, n, s.ledger.opts.Lease.Seconds(), names, rooms, bytes, places,
		s.ledger.opts.MaxAttempts).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			it := &item{}
			w := &it.row
			var id, found *string
			if err := rows.Scan(&id, &w.claim, &w.tenant, &w.workspace, &w.key, &w.channel, &w.lane, &w.recipient, &w.recipientID,
				(*[]byte)(&w.payload), &w.request, &w.guarantee, &w.attempts, &w.correlationID, &w.channelMsgID, &w.lost, &w.takenOver, &found); err != nil {
				return err
			}
			if err := c.add(it, id, found); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return c
}

// Extend renews the leases of held.
func (s *source) Extend(ctx context.Context, held []*item) ([]*item, error) {
	return s.extend(ctx, s.hand, held)
}

func (s *source) extend(ctx context.Context, h *hand, held []*item) ([]*item, error) {
	ids, claims := make([]string, len(held)), make([]int64, len(held))
	for i, it := range held {
		ids[i], claims[i] = it.id, it.claim
	}
	var kept []string
	if err := s.ledger.pool.QueryRow(ctx, query.Extend, ids, claims, s.ledger.opts.Lease.Seconds()).Scan(&kept); err != nil {
		return nil, err
	}
	still := make(map[string]bool, len(kept))
	for _, id := range kept {
		still[id] = true
	}
	var lost []*item
	for _, it := range held {
		if !still[it.id] {
			lost = append(lost, it)
		}
	}
	h.drop(lost...) // those that were never begun do not come back
	return lost, nil
}

// inTurn makes do when there is a place for it and its tenant and its lane may
// have another call; else the delivery goes back.
func (h *hand) inTurn(ctx context.Context, it *item, do func(context.Context, *item)) {
	it.kind = "release"
	place := h.places.take(ctx, h.stopping, it.tenant)
	if place == nil {
		return
	}
	defer place.leave()
	if !h.places.begins(it.tenant) || !h.lanes.admit(it.lane) {
		return
	}
	defer h.lanes.left(it.lane)
	it.place = place
	do(ctx, it)
}

// timed is told that the call to a delivery's provider begins; what it returns
// is told what came of it.
func (s *source) timed(it *item) (ended func(Outcome)) {
	if it.lane == "" || it.place == nil {
		return func(Outcome) {}
	}
	begun, patience := time.Now(), s.lanes.patience()
	hangs := time.AfterFunc(patience, func() { s.lanes.hangs(it.lane) })
	moves := time.AfterFunc(min(patience, longestUsual), it.place.move)
	return func(o Outcome) {
		moves.Stop()
		inTime := hangs.Stop()
		s.lanes.ended(it.lane, o.kind != kindUnknown, inTime, time.Since(begun))
	}
}
