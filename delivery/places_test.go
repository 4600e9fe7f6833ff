package delivery

import (
	"context"
	"fmt"
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
			p.take(t.Context(), none, tenant).move(fmt.Sprint(n))
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
