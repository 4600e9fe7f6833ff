package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/page"
)

// ErrTaken says that a tenant's id or name belongs to another one.
var ErrTaken = errors.New("the id or the name belongs to another tenant")

// ErrCannotBind says that a login cannot be held to a tenant: one of them does
// not exist, or the login crosses tenants in any case.
var ErrCannotBind = errors.New("the login cannot be bound")

// Execer is what Set needs: a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Set makes tx act for id until it ends: row-level security then shows it
// that tenant's rows only, and what it publishes is that tenant's.
func Set(ctx context.Context, tx Execer, id ID) error {
	if _, err := tx.Exec(ctx, `select set_config('app.current_tenant_id', $1, true)`, id.String()); err != nil {
		return fmt.Errorf("set tenant %s: %w", id, err)
	}
	return nil
}

// Tenant is a registered tenant.
type Tenant struct {
	ID        ID        `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

// Add registers a tenant. From the first one on the installation is no longer
// single-tenant: a login that sets no tenant sees nothing. [Default] is registered as
// "default" from the beginning, and is not the first. The same id and name
// again changes nothing; that of a tenant that was removed is never free again.
// Errors: [ErrTaken]. Needs deed_admin.
func Add(ctx context.Context, db Execer, id ID, name string) error {
	_, err := db.Exec(ctx, `select deed.add_tenant($1::text::uuid, $2)`, id.String(), name)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "DDCON" {
		return fmt.Errorf("add tenant %s %q: %w", id, name, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("add tenant %s: %w", id, err)
	}
	return nil
}

// Querier is what List needs: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// List returns tenants by name, at most limit, from cursor on: [page.Of.Next] of the
// page before, or "".
func List(ctx context.Context, db Querier, cursor string, limit int) (list page.Of[Tenant], err error) {
	if limit < 1 {
		return list, fmt.Errorf("list tenants: limit %d is below 1", limit)
	}
	rows, err := db.Query(ctx, `
		select tenant_id::text, name, created_at
		from deed.tenants
		where name > $1::text
		order by name
		limit $2::bigint`, cursor, limit)
	if err == nil {
		list.Items, err = pgx.CollectRows(rows, scan)
	}
	if err != nil {
		return list, fmt.Errorf("list tenants: %w", err)
	}
	if len(list.Items) == limit {
		list.Next = list.Items[limit-1].Name
	}
	return list, nil
}

// Find returns the tenant with an id, and whether there is one.
func Find(ctx context.Context, db Querier, id ID) (t Tenant, ok bool, err error) {
	rows, err := db.Query(ctx, `select tenant_id::text, name, created_at from deed.tenants where tenant_id = $1::text::uuid`, id.String())
	if err == nil {
		t, err = pgx.CollectExactlyOneRow(rows, scan)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Tenant{}, false, nil
	case err != nil:
		return Tenant{}, false, fmt.Errorf("find tenant %s: %w", id, err)
	}
	return t, true, nil
}

func scan(row pgx.CollectableRow) (t Tenant, err error) {
	var id string
	if err := row.Scan(&id, &t.Name, &t.CreatedAt); err != nil {
		return t, err
	}
	t.ID, err = Parse(id)
	return t, err
}

// Binding is a login and the tenants that it is held to.
type Binding struct {
	Login   string `json:"login"`
	Tenants []ID   `json:"tenants"`
}

// Bind holds a login to tenants: it sees and publishes theirs only, whatever it
// sets, from its next statement on. ids takes the place of what it was bound to;
// none lets it go, and then it is trusted to set its tenant. It reports whether
// anything changed. act must say who and why. Errors: [ErrCannotBind]. Needs deed_admin.
func Bind(ctx context.Context, db Querier, login string, ids []ID, act audit.Act) (bool, error) {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	rows, err := db.Query(ctx, `select deed.bind_login($1, $2::text[]::uuid[], $3, $4)`, login, texts, act.Reason, act.By)
	var changed bool
	if err == nil {
		changed, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "DDARG" || pg.Code == "DDNFD") {
		return false, fmt.Errorf("bind login %s: %w: %s", login, ErrCannotBind, pg.Message)
	}
	if err != nil {
		return false, fmt.Errorf("bind login %s: %w", login, err)
	}
	return changed, nil
}

// Bindings returns the logins that are bound, by name. One without a tenant sees
// nobody's rows: its last tenant was removed. Needs deed_worker or deed_admin.
func Bindings(ctx context.Context, db Querier) ([]Binding, error) {
	rows, err := db.Query(ctx, `
		select l.login, array_agg(l.tenant_id::text order by l.tenant_id)
		from deed.tenant_logins l
		group by l.login
		union all
		select s.login, '{}'
		from deed.shut_logins s
		order by login`)
	if err != nil {
		return nil, fmt.Errorf("list bound logins: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Binding, error) {
		var b Binding
		var texts []string
		if err := row.Scan(&b.Login, &texts); err != nil {
			return b, err
		}
		b.Tenants = make([]ID, len(texts))
		for i, text := range texts {
			if err := b.Tenants[i].UnmarshalText([]byte(text)); err != nil {
				return b, err
			}
		}
		return b, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list bound logins: %w", err)
	}
	return list, nil
}
