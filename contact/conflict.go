package contact

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Conflict is what was to be one contact and is known as several. Somebody decides:
// [Merge] makes them one, and settles it.
type Conflict struct {
	N         int64      `json:"n,string"`
	Tenant    string     `json:"tenant"`
	Contacts  []string   `json:"contacts"` // whose the identities are
	Types     []string   `json:"types"`    // of which types those are
	Actor     string     `json:"actor"`    // who came with them last
	At        time.Time  `json:"at"`       // when that was
	Times     int        `json:"times"`    // how often somebody has
	SettledAt *time.Time `json:"settled_at,omitempty"`
}

// ConflictFilter chooses conflicts; zero fields choose all that are open.
type ConflictFilter struct {
	Tenant  *tenant.ID
	Contact string // an id: only those that concern it, or what was merged into it
	Settled bool   // also those that are settled
	Cursor  string // [page.Of.Next] of the page before
	Limit   int    // default 100
}

// Conflicts returns the conflicts that db may see, newest first. Errors:
// [ErrInvalid].
func Conflicts(ctx context.Context, db DB, f ConflictFilter) (list page.Of[Conflict], err error) {
	const op = "conflicts"
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
	rows, err := db.Query(ctx, query.Conflicts, id(f.Tenant), of, f.Settled, before, f.Limit)
	if err != nil {
		return list, wrap(op, err)
	}
	if list.Items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Conflict]); err != nil {
		return page.Of[Conflict]{}, wrap(op, err)
	}
	if len(list.Items) == f.Limit {
		list.Next = strconv.FormatInt(list.Items[f.Limit-1].N, 10)
	}
	return list, nil
}
