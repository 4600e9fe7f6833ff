package work_test

import (
	"slices"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// The first of those that go together waits for as many as there were of late, and for nobody where each was alone.
func TestCompany(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes  []int
		enough int
		waited bool
	}{
		"the first": {nil, 0, false}, "alone": {[]int{1, 1, 1}, 0, false}, "among many": {[]int{1, 64}, 64, true}, "among many, one of them alone": {[]int{64, 1}, 56, true},
		"alone by now": {append([]int{64}, slices.Repeat([]int{1}, 40)...), 0, false},
	} {
		var company work.Company
		for _, n := range c.sizes {
			company.Learn(n, time.Second)
		}
		until, enough := company.Awaited()
		if waited := until != nil; enough != c.enough || waited != c.waited {
			t.Errorf("%s: %d are enough, waited for: %t; want %d, %t", name, enough, waited, c.enough, c.waited)
		}
	}
}
