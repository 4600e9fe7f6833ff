package deed

import (
	"errors"
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/tenant"
)

// What is of removed tenants is handed to nobody, and each outcome is that of its own
// message.
func TestRemovedTenants_PassBy(t *testing.T) {
	t.Parallel()
	a, b := tenant.ID{0xa}, tenant.ID{0xb}
	var rows []*claim.Message
	for i, id := range []tenant.ID{b, a, b, a, b} {
		rows = append(rows, &claim.Message{Seq: int64(i), Tenant: id})
	}
	var r removedTenants
	tried := func(results func(n int) []error) (seen []int64, outcomes []error) {
		outcomes = r.passBy(rows, func(list []*claim.Message) []error {
			for _, m := range list {
				seen = append(seen, m.Seq)
			}
			return results(len(list))
		})
		return seen, outcomes
	}
	none := func(int) []error { return nil }
	each := func(n int) (list []error) {
		for i := range n {
			list = append(list, errors.New(fmt.Sprint(i)))
		}
		return list
	}
	check := func(what string, results func(int) []error, want string) {
		t.Helper()
		seen, outcomes := tried(results)
		if got := fmt.Sprint(seen, outcomes); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("nobody is removed", each, "[0 1 2 3 4] [0 1 2 3 4]")
	r.set([]string{b.String()})
	check("b is", each, "[1 3] [<nil> 0 <nil> 1 <nil>]")
	check("b is, and all else is delivered", none, "[1 3] []")
	r.set([]string{a.String(), b.String()})
	check("both are", each, "[] []")
	r.set(nil)
	check("nobody is any more", none, "[0 1 2 3 4] []")
}
