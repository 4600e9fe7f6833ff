package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrTaken says that a tenant's id or name belongs to another one.
var ErrTaken = errors.New("the id or the name belongs to another tenant")

// Execer is what Set needs: a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Set makes tx act for id until it ends: row-level security then shows it
// that tenant's rows only, and what it publishes is that tenant's (D7).
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
// single-tenant: a login that sets no tenant sees nothing. The same id and name
// again changes nothing. Errors: [ErrTaken]. Needs deed_admin.
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

// List returns the tenants, by name.
func List(ctx context.Context, db Querier) ([]Tenant, error) {
	rows, err := db.Query(ctx, `select tenant_id::text, name, created_at from deed.tenants order by name`)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Tenant, error) {
		var t Tenant
		var id string
		if err := row.Scan(&id, &t.Name, &t.CreatedAt); err != nil {
			return t, err
		}
		var err error
		t.ID, err = Parse(id)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return list, nil
}
