package delivery

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A tenant has its share of the places for calls that hang and leaves as many as
// it has; who has none hanging may always begin.
func TestPlaces_ATenantsShare(t *testing.T) {
	t.Parallel()
	p := newPlaces(2, 4)
	none := make(chan struct{})
	hang := func(tenant string) (n int) {
		for p.begins(tenant) && n < 100 {
			p.take(t.Context(), none, tenant).move()
			n++
		}
		return n
	}
	for _, c := range []struct {
		tenant string
		want   int
	}{{"a", 4}, {"b", 2}, {"c", 1}, {"a", 0}, {"d", 1}} {
		if n := hang(c.tenant); n != c.want {
			t.Errorf("%s begins %d calls that hang, want %d", c.tenant, n, c.want)
		}
	}
	if rooms := p.rooms(); len(rooms) != 4 || rooms["a"] != 0 {
		t.Errorf("rooms: %v", rooms)
	}
}

// A call leaves the usual places although all are as slow: those who taught the
// process so may be one tenant's.
func TestPlaces_SlowCallsLeaveTheUsualOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{lanes: newLanes(1, 0, true)}
		for range 100 {
			s.lanes.ended("slow.example", true, false, 14*time.Second)
		}
		p := newPlaces(1, 1)
		it := &item{row: row{lane: "slow.example", tenant: "a"}, place: p.take(t.Context(), nil, "a")}
		ended := s.timed(it)
		time.Sleep(longestUsual + time.Millisecond)
		synctest.Wait()
		if len(p.usual) != 0 || len(p.spare) != 1 || p.all != 1 {
			t.Errorf("%d usual places and %d spare ones are taken by %d calls that hang", len(p.usual), len(p.spare), p.all)
		}
		time.Sleep(11 * time.Second)
		ended(Accepted("m"))
		it.place.leave()
		if len(p.spare) != 0 || p.all != 0 || !s.lanes.lane["slow.example"].answers {
			t.Errorf("after the answer %d spare places are taken; %+v", len(p.spare), s.lanes.lane["slow.example"])
		}
	})
}

// No call begins once the loop is to stop or its context has ended, although there is
// a place; and the place stays free.
func TestPlaces_NoneAfterAStop(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	close(closed)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		stopping chan struct{}
	}{"a stop": {t.Context(), closed}, "an end": {ended, make(chan struct{})}} {
		p := newPlaces(1, 1)
		for range 50 { // a select would take either
			if p.take(c.ctx, c.stopping, "a") != nil {
				t.Fatalf("a call begins after %s", name)
			}
		}
		if len(p.usual) != 0 {
			t.Errorf("a place is taken after %s", name)
		}
	}
}

// A place counts once among the calls that hang, although there was no spare one and another call was made in it.
func TestPlaces_APlaceCountsOnce(t *testing.T) {
	t.Parallel()
	p := newPlaces(1, 1)
	for range cap(p.spare) {
		p.spare <- struct{}{}
	}
	at := p.take(t.Context(), nil, "a")
	at.move()
	at.move()
	if p.all != 1 || p.hanging["a"] != 1 {
		t.Errorf("%d calls hang, %v", p.all, p.hanging)
	}
	at.leave()
	if p.all != 0 || len(p.hanging) != 0 || len(p.usual) != 0 {
		t.Errorf("%d calls hang when all have ended, %v", p.all, p.hanging)
	}
}

// A claim learns at once how many fit into one call, and slowly that there is room for more.
func TestFit_LearnsSlowlyThatThereIsRoom(t *testing.T) {
	t.Parallel()
	s := &source{batch: 100}
	s.fit(100, 100, false)
	if n := s.mostTogether(); n != 100 {
		t.Errorf("%d together when all fit", n)
	}
	s.fit(100, 40, true)
	for range probed - 1 {
		s.fit(40, 40, false)
		s.fit(3, 3, false) // not all that a claim may give it
	}
	if n := s.mostTogether(); n != 40 {
		t.Errorf("%d together after a few calls, want 40", n)
	}
	s.fit(40, 40, false)
	if n := s.mostTogether(); n <= 40 || n > 44 {
		t.Errorf("%d together after %d calls", n, probed)
	}
	s.fit(2, 1, true)
	for range probed {
		s.fit(1, 1, false)
	}
	if n := s.mostTogether(); n != 2 {
		t.Errorf("%d together where one fitted, after %d calls", n, probed)
	}
}

// What was claimed one by one, as after a call that had room for one, is called one by one: others may be of another tenant.
func TestGroups_WhatWasClaimedAloneIsCalledAlone(t *testing.T) {
	t.Parallel()
	items := []*item{{row: row{tenant: "a"}}, {row: row{tenant: "b"}}, {row: row{tenant: "a", call: 1}}, {row: row{tenant: "b"}}, {row: row{tenant: "a", call: 1}}, {row: row{tenant: "b", call: 2}}}
	var sizes []int
	for _, g := range (&source{}).Groups(items) {
		sizes = append(sizes, len(g))
	}
	if want := []int{1, 1, 2, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("calls of %v, want %v", sizes, want)
	}
}

// Of rows that become large no more is claimed than can be made, and one always.
func TestHand_ClaimsWhatCanBeMade(t *testing.T) {
	t.Parallel()
	h := newHand(&weights{}, newLanes(1, 0, true), 1, 0)
	if n := h.most(500); n != 500 {
		t.Errorf("%d of rows of which nothing is known", n)
	}
	c := &claiming{}
	for range 40 {
		c.items = append(c.items, &item{row: row{tenant: "a", run: "r", payload: []byte("x")}})
	}
	h.take(c)
	for n, it := range c.items {
		if !h.mayMake(it) {
			if n < 15 || n > 17 {
				t.Errorf("%d of 2 MiB are made for a tenant, want half of 64 MiB", n)
			}
			h.drop(c.items[n:]...)
			c.items = c.items[:n]
			break
		}
		h.weigh(it, 1<<20)
	}
	if n := h.most(500); n < 4 || n > 20 {
		t.Errorf("%d more may be claimed beside %d of 2 MiB", n, len(c.items))
	}
	h.inHand.add("b", 31<<20)
	if n := h.most(500); n != 1 {
		t.Errorf("%d may be claimed beside what others have in hand, want 1, which may be anybody's", n)
	}
	h.inHand.add("b", -31<<20)
	h.drop(c.items...)
	if n := h.most(500); n < 8 || n > 40 {
		t.Errorf("%d may be claimed when nothing is in hand", n)
	}
	h.growth = 1 << 40
	if n := h.most(500); n != 1 {
		t.Errorf("%d of what is larger than all that may be in hand, want 1", n)
	}
	// What is no campaign's says nothing of it, and a campaign that is over holds up nobody.
	for range 400 {
		plain := &claiming{items: []*item{{row: row{tenant: "a"}}}}
		h.take(plain)
		h.weigh(plain.items[0], 7<<20)
		h.drop(plain.items...)
	}
	if n := h.most(500); n != 500 || h.unmade != 0 || len(h.made) != 0 {
		t.Errorf("%d may be claimed when there is no campaign; %d unmade, made %v", n, h.unmade, h.made)
	}
}
