package plan

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Listed is a plan without its content.
type Listed struct {
	Tenant    tenant.ID `json:"tenant_id"`
	ID        string    `json:"plan_id"`
	Version   string    `json:"plan_version"`
	SHA256    string    `json:"sha256"` // in hex
	Steps     int       `json:"steps"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

// Filter chooses plans; zero fields choose all.
type Filter struct {
	Tenant *tenant.ID
	ID     string
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // default 100
}

// List returns the plans that db may see, by name and version. Errors: [deed.Invalid].
func List(ctx context.Context, db deed.DB, f Filter) (list page.Of[Listed], err error) {
	const op = "list plans"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	var after [3]string
	if f.Cursor != "" && json.Unmarshal([]byte(f.Cursor), &after) != nil {
		return list, invalidf(op, "cursor %q is none of this list", f.Cursor)
	}
	owner := any(nil)
	if after[2] != "" {
		owner = after[2]
	}
	rows, err := db.Query(ctx, query.List, idOf(f.Tenant), sqlvalue.NullIfZero(f.ID), sqlvalue.NullIfZero(after[0]), after[1], owner, f.Limit+1)
	if err == nil {
		list.Items, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Listed])
	}
	if err != nil {
		return list, deed.WrapError(op, err)
	}
	if len(list.Items) > f.Limit {
		list.Items = list.Items[:f.Limit]
		last := list.Items[f.Limit-1]
		next, _ := json.Marshal([3]string{last.ID, last.Version, last.Tenant.String()})
		list.Next = string(next)
	}
	return list, nil
}
