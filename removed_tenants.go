package deed

import (
	"slices"
	"sync/atomic"

	"github.com/deedhq/deed/internal/claim"
	"github.com/deedhq/deed/tenant"
)

// removedTenants are those that were removed lately, as this process knows: what it had
// read of theirs before is handed to nobody any more.
type removedTenants struct {
	ids atomic.Pointer[map[tenant.ID]bool] // nil: none
}

// set is told who they are, from time to time.
func (r *removedTenants) set(texts []string) {
	var ids *map[tenant.ID]bool
	if len(texts) > 0 {
		ids = &map[tenant.ID]bool{}
	}
	for _, text := range texts {
		if id, err := tenant.Parse(text); err == nil {
			(*ids)[id] = true
		}
	}
	r.ids.Store(ids)
}

// passBy has deliver attempt the messages, but for those of removed tenants, and returns
// an outcome each; nil means that all were delivered. Theirs count as delivered: a stream
// goes past them, and a queue's rows are gone or go.
func (r *removedTenants) passBy(rows []*claim.Message, deliver func([]*claim.Message) []error) []error {
	gone := r.ids.Load()
	isGone := func(m *claim.Message) bool { return (*gone)[m.Tenant] }
	if gone == nil || !slices.ContainsFunc(rows, isGone) {
		return deliver(rows)
	}
	rest := slices.DeleteFunc(slices.Clone(rows), isGone)
	if len(rest) == 0 {
		return nil
	}
	given := deliver(rest)
	if given == nil {
		return nil
	}
	results := make([]error, len(rows))
	for i, row := range rows {
		if !isGone(row) {
			results[i], given = given[0], given[1:]
		}
	}
	return results
}
