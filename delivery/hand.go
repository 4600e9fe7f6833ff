package delivery

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const claimBytes = 32 << 20 // the most contents that one claim takes

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
// turn it takes more. A delivery is in it from the claim (take) until its outcome
// is recorded or its claim is lost (drop); meanwhile its bytes count in inHand and
// its lane knows of it.
type hand struct {
	inHand   *weights        // of all loops of the process
	lanes    *lanes          // of the provider
	places   *places         // where calls are made, of this loop
	stopping <-chan struct{} // closed when no call may begin any more

	mu     sync.Mutex
	items  map[*item]int64 // guarded by mu: the bytes of each
	owners map[string]int  // guarded by mu: items, by tenant
	made   map[string]int  // guarded by mu: those of them that are larger than they were claimed, by tenant
	unmade int             // guarded by mu: those of campaigns of which nothing is made yet
	growth int64           // guarded by mu: by how many bytes one of a campaign's is larger then, lately; 0: not known
	turns  turns           // guarded by mu
}

func newHand(inHand *weights, lanes *lanes, usual, spare int) *hand {
	return &hand{
		inHand: inHand, lanes: lanes, places: newPlaces(usual, spare),
		items: map[*item]int64{}, owners: map[string]int{}, made: map[string]int{}, turns: turns{places: map[string]string{}},
	}
}

// take counts what a claim has brought, and where it left off.
func (h *hand) take(c *claiming) {
	h.mu.Lock()
	defer h.mu.Unlock()
	unmade := h.unmade
	for _, it := range c.items {
		if it.run != "" {
			h.unmade++
		}
		n := int64(len(it.payload) + len(it.request))
		h.items[it] = n
		h.owners[it.tenant]++
		h.inHand.add(it.tenant, n)
		h.lanes.claimed(it.lane)
		h.turns.quick = 0
	}
	if len(c.items) > 0 && h.unmade == unmade {
		h.growth -= h.growth / 8 // there is no campaign, or it is over
	}
	h.turns.took(c.walk)
}

// weigh counts what a delivery in hand has beside what its claim brought: the files that were
// read for it, or what a campaign's says, and the request that is made of them.
func (h *hand) weigh(it *item, bytes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n, ok := h.items[it]; ok {
		h.items[it] = n + 2*int64(bytes)
		h.inHand.add(it.tenant, 2*int64(bytes))
		if !it.weighed {
			it.weighed = true
			h.made[it.tenant]++
			if it.run != "" {
				h.unmade--
				h.growth += (2*int64(bytes) - h.growth) / 8
			}
		}
	}
}

// most is how many deliveries more a claim may take: of a campaign's rows of a few bytes no more than
// can be made, since what goes back has been paid for. One always may, unless another waits to be made:
// it may be anybody's, and small, however much some have in hand.
func (h *hand) most(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.growth == 0 {
		return n
	}
	room := int(h.inHand.free()/(2*h.growth)) - h.unmade
	if h.unmade == 0 {
		room = max(room, 1)
	}
	return max(0, min(n, room))
}

// mayMake reports whether what a delivery in hand says may be made now, which is larger than
// the row that it is made of: one of a tenant always may.
func (h *hand) mayMake(it *item) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.made[it.tenant] == 0 || it.weighed || !h.inHand.laden(it.tenant)
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
			if it.run != "" && !it.weighed {
				h.unmade--
			}
			if it.weighed {
				if h.made[it.tenant]--; h.made[it.tenant] == 0 {
					delete(h.made, it.tenant)
				}
			}
			h.inHand.add(it.tenant, -n)
			h.lanes.settled(it.lane)
		}
	}
}

// laden reports whether the process has as much in hand as it may, and this
// loop has something of it to finish.
func (h *hand) laden() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.items) > 0 && h.inHand.free() == 0
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
	return names, rooms, min(claimBytes, h.inHand.free()), h.turns.next(owners, h.inHand.rooms())
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
	// What is scheduled for the year 9999 is so for more seconds than a Duration holds.
	wait := time.Duration(min(*c.walk.Wait, 3600) * float64(time.Second))
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

// inTurn makes do for items, which are of one tenant and one call, when there is a
// place for it and the tenant and these lanes of theirs may have another call. Those
// whose lane may not go back.
func (h *hand) inTurn(ctx context.Context, items []*item, lanes []string, do func(context.Context, []*item)) {
	for _, it := range items {
		it.kind = "release"
	}
	place := h.places.take(ctx, h.stopping, items[0].tenant)
	if place == nil {
		return
	}
	defer place.leave()
	if !h.places.begins(items[0].tenant) {
		return
	}
	var refused []string
	for _, name := range lanes {
		if !h.lanes.admit(name) {
			refused = append(refused, name)
			continue
		}
		defer h.lanes.left(name)
	}
	items = slices.DeleteFunc(slices.Clone(items), func(it *item) bool { return slices.Contains(refused, it.lane) })
	for _, it := range items {
		it.place = place
	}
	if len(items) > 0 {
		do(ctx, items)
	}
}

// lanesOf are the lanes of items, each once.
func lanesOf(items []*item) []string {
	names := make([]string, 0, len(items))
	for _, it := range items {
		names = append(names, it.lane)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
