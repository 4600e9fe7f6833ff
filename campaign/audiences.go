package campaign

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// AudienceInfo is an audience as [Audiences] lists it.
type AudienceInfo struct {
	ID        string    `json:"audience_id"`
	Tenant    tenant.ID `json:"tenant_id"`
	Workspace tenant.ID `json:"workspace_id"`
	Name      string    `json:"name"`
	Channel   Channel   `json:"channel"`
	// Status is loading, ready, or removing ([RemoveAudience]).
	Status  string `json:"status"`
	Members int64  `json:"members"`
	// Read is how many rows of its source have been read, and LeftOut how many of these are not in it.
	Read      int64      `json:"read"`
	LeftOut   int64      `json:"left_out"`
	CreatedAt time.Time  `json:"created_at"`
	ReadyAt   *time.Time `json:"ready_at,omitempty"`
}

// AudienceFilter chooses audiences; zero fields choose all.
type AudienceFilter struct {
	Tenant *tenant.ID
	Status string // loading, ready, removing
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // default 100
}

// Audiences returns the audiences that db may see, newest first: those in loading are of who is at it, or was
// interrupted and goes on by loading the same again. Errors: [deed.Invalid].
func Audiences(ctx context.Context, db deed.DB, f AudienceFilter) (list page.Of[AudienceInfo], err error) {
	const op = "list audiences"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%w", err)
	}
	if f.Cursor != "" && checkID("", f.Cursor) != nil {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	if f.Status != "" && !slices.Contains([]string{"loading", "ready", "removing"}, f.Status) {
		return list, invalidf(op, "status %q is none of an audience's: loading, ready, removing", errortext.Clip(f.Status))
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	if list.Items, err = audiences(ctx, db, sqlvalue.NullIfZero(f.Cursor), owner, sqlvalue.NullIfZero(f.Status), nil, f.Limit); err != nil {
		return page.Of[AudienceInfo]{}, wrap(op, err)
	}
	if len(list.Items) == f.Limit {
		list.Next = list.Items[f.Limit-1].ID
	}
	return list, nil
}

func audiences(ctx context.Context, db deed.DB, args ...any) ([]AudienceInfo, error) {
	rows, err := db.Query(ctx, query.Audiences, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a AudienceInfo, err error) {
		var owner, space string
		err = row.Scan(&a.ID, &owner, &space, &a.Name, &a.Channel, &a.Status, &a.Members, &a.Read, &a.LeftOut, &a.CreatedAt, &a.ReadyAt)
		if err == nil {
			a.Tenant, err = tenant.Parse(owner)
		}
		if err == nil {
			a.Workspace, err = tenant.Parse(space)
		}
		return a, err
	})
}

// AudienceByID returns an audience. Errors: [deed.NotFound], also for another tenant's; [deed.Invalid].
func AudienceByID(ctx context.Context, db deed.DB, id string) (AudienceInfo, error) {
	const op = "find audience"
	if err := checkID("audience", id); err != nil {
		return AudienceInfo{}, invalidf(op, "%w", err)
	}
	list, err := audiences(ctx, db, nil, nil, nil, id, 1)
	if err != nil {
		return AudienceInfo{}, wrap(op, err)
	}
	if len(list) == 0 {
		return AudienceInfo{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no audience %s", id)}
	}
	return list[0], nil
}

// removedAtOnce is how many members one statement removes.
const removedAtOnce = 10000

// RemoveAudience removes an audience that was never finished, in small steps, each of its own transaction where db is no
// transaction itself; interrupted, the same again goes on. From the first on nobody goes on loading it. Contacts that were made for it
// stay. It returns how many members it has removed. Errors: [deed.NotFound], [deed.Conflict] for one that is ready, [deed.Forbidden].
func RemoveAudience(ctx context.Context, db deed.DB, scope Scope, id string, act audit.Act) (members int64, err error) {
	const op = "remove audience"
	if err := checkID("audience", id); err != nil {
		return 0, invalidf(op, "%w", err)
	}
	for gone := false; !gone; {
		rows, err := db.Query(ctx, query.RemoveAudience, id, removedAtOnce, sqlvalue.NullIfZero(act.Reason), scope.tenant(), scope.by(act.By))
		if err != nil {
			return members, wrap(op, err)
		}
		var removed int64
		if _, err := pgx.ForEachRow(rows, []any{&removed, &gone}, func() error { return nil }); err != nil {
			return members, wrap(op, err)
		}
		members += removed
	}
	return members, nil
}
