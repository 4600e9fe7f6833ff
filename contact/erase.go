package contact

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// EraseOptions are how somebody is erased; the zero value is as it is meant.
type EraseOptions struct {
	// Suppress says that nothing at all is sent to their addresses any more, whoever
	// brings them back. Default: only what was suppressed stays so.
	Suppress bool
	// Recorded says that it comes from a record of erasures and is not to be recorded
	// again (docs/gdpr.md). It may be one of many: what is queued for their addresses and
	// does not name them is skipped by a relay, in one walk for all, and nobody is called for
	// it before that.
	Recorded bool
}

// Erase forgets a contact, and all that were merged into it, and returns the number of
// the erasure; of one that was erased before the first one's. What is queued for them is
// skipped, what is in doubt has failed, and what had been sent loses its recipient and
// contents within seconds while a client runs ([Erasure.FinishedAt]); what is
// being sent once it has been (D12). Their suppressions hold on, under marks that do not
// tell the address. There is no way back.
//
// owner nil: the tenant that db has set. act must say why; that is kept, and should
// name nobody. Errors: [ErrInvalid], [ErrNotFound], [ErrForbidden], [ErrConflict] for a
// tenant that was removed, with which its contacts go.
func Erase(ctx context.Context, db DB, owner *tenant.ID, of string, act audit.Act, opts EraseOptions) (n int64, err error) {
	const op = "erase contact"
	if err := checkIDs(op, of); err != nil {
		return 0, err
	}
	return one[int64](ctx, db, op, query.Erase, of, act.Reason, act.By, id(owner), opts.Suppress, opts.Recorded)
}

// Erasure is that somebody was erased.
type Erasure struct {
	N          int64      `json:"n,string"`
	Tenant     string     `json:"tenant"`
	Contact    string     `json:"contact"`
	Names      []string   `json:"names"` // its id, and those of all that were merged into it
	Reason     string     `json:"reason"`
	Actor      string     `json:"actor"`
	At         time.Time  `json:"at"`
	Deliveries int64      `json:"deliveries"`            // that were erased by now
	FinishedAt *time.Time `json:"finished_at,omitempty"` // nil: some are still to be
	Suppressed bool       `json:"suppressed,omitempty"`  // with [EraseOptions.Suppress]
}

// ErasureFilter chooses erasures; zero fields choose all.
type ErasureFilter struct {
	Tenant  *tenant.ID
	Contact string // an id: only this one's
	Cursor  string // [page.Of.Next] of the page before
	Limit   int    // default 100
}

// Erasures returns the erasures that db may see, newest first. Errors: [ErrInvalid].
func Erasures(ctx context.Context, db DB, f ErasureFilter) (list page.Of[Erasure], err error) {
	const op = "erasures"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > math.MaxInt32 {
		return list, invalidf(op, "limit %d is not from 1 to %d", f.Limit, math.MaxInt32)
	}
	before, err := numberBelow(f.Cursor)
	if err != nil {
		return list, invalidf(op, "the cursor is none of this list's")
	}
	var of any
	if f.Contact != "" {
		if err := checkIDs(op, f.Contact); err != nil {
			return list, err
		}
		of = f.Contact
	}
	rows, err := db.Query(ctx, query.Erasures, id(f.Tenant), of, before, f.Limit)
	if err != nil {
		return list, wrap(op, err)
	}
	if list.Items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Erasure]); err != nil {
		return page.Of[Erasure]{}, wrap(op, err)
	}
	if len(list.Items) == f.Limit {
		list.Next = strconv.FormatInt(list.Items[f.Limit-1].N, 10)
	}
	return list, nil
}

// Export returns the oldest erasures that have not been recorded outside the database,
// at most limit; they count as recorded if tx commits. Somebody who erased with
// [EraseOptions.Recorded] has a record. Without removed not those of tenants that are
// being removed, for whom nothing can be published. Any number may call it, on a worker's
// login.
func Export(ctx context.Context, tx DB, limit int, removed bool) ([]Erasure, error) {
	rows, err := tx.Query(ctx, query.ExportErasures, limit, removed)
	if err != nil {
		return nil, wrap("export erasures", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Erasure])
	return list, wrap("export erasures", err)
}
