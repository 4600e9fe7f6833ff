package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/page"
)

// ErrNotFound says that a tenant is not registered, and never was.
var ErrNotFound = errors.New("the tenant is not registered")

// ErrCannotRemove says that a tenant cannot be removed: it is the default one, the
// reason is missing, or the session is held to another tenant.
var ErrCannotRemove = errors.New("the tenant cannot be removed")

// ErrBusy says that another transaction, which has not ended, is changing tenants,
// logins or subscriptions: try again.
var ErrBusy = errors.New("another transaction is in the way")

// Count is how many rows a tenant has in a table.
type Count struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
	Stays bool   `json:"stays,omitempty"` // without what people and providers wrote in them
}

// Remove removes a tenant with all of its rows, for ever. From its commit on nothing is
// stored for the tenant any more, nothing of it is claimed, read or begun to be called,
// and logins that were bound to it see nothing of it; relays then take its rows away, in
// short steps. What a worker had been given before may still be on its way. The id is
// never used again. act must say why. It reports whether this is the first time that it
// is asked for. Errors: [ErrNotFound], [ErrCannotRemove], [ErrBusy]. Needs
// deed_admin.
func Remove(ctx context.Context, db Querier, id ID, act audit.Act) (bool, error) {
	var by *string
	if act.By != "" {
		by = &act.By
	}
	rows, err := db.Query(ctx, `select deed.remove_tenant($1::text::uuid, $2, $3)`, id.String(), act.Reason, by)
	var first bool
	if err == nil {
		first, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
	if err != nil {
		return false, fmt.Errorf("remove tenant %s: %w", id, refusal(err))
	}
	return first, nil
}

// CountRows counts what Remove would take away, and what stays; of a tenant that is
// being removed, what is left. Its cost grows with the log and the audit log. Errors:
// [ErrNotFound], [ErrCannotRemove]. Needs deed_admin.
func CountRows(ctx context.Context, db Querier, id ID) ([]Count, error) {
	rows, err := db.Query(ctx, `select what, amount, stays from deed.count_tenant($1::text::uuid)`, id.String())
	var list []Count
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Count])
	}
	if err != nil {
		return nil, fmt.Errorf("count tenant %s: %w", id, refusal(err))
	}
	return list, nil
}

// refusal names what the database refused.
func refusal(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	text := pg.Message
	if _, rest, ok := strings.Cut(text, ": "); ok {
		text = rest
	}
	switch pg.Code {
	case "DDNFD":
		return fmt.Errorf("%w. %s", ErrNotFound, pg.Hint)
	case "DDARG", "DDTEN":
		return fmt.Errorf("%w: %s", ErrCannotRemove, text)
	case "55P03":
		return fmt.Errorf("%w: %s. %s", ErrBusy, text, pg.Hint)
	}
	return err
}

// Removal is how far a tenant's removal is.
type Removal struct {
	Tenant     ID               `json:"tenant"`
	Name       string           `json:"name"`
	State      string           `json:"state"` // going; waits, for transactions that were open when it was asked for; or done
	Taken      map[string]int64 `json:"taken"` // rows by table; of audit_log those that were emptied
	AskedAt    time.Time        `json:"asked_at"`
	FinishedAt *time.Time       `json:"finished_at,omitempty"`
	By         string           `json:"by"`
	Reason     string           `json:"reason"`
}

// Rows is how many rows went.
func (r Removal) Rows() (n int64) {
	for table, taken := range r.Taken {
		if table != "audit_log" {
			n += taken
		}
	}
	return n
}

// removals selects removals, as scanRemoval reads them.
const removals = `
	select r.tenant_id::text, r.name, case when r.finished_at is not null then 'done' when r.waits then 'waits' else 'going' end, r.taken,
		r.asked_at, r.finished_at, r.actor, r.reason
	from deed.tenant_removals r`

func scanRemoval(row pgx.CollectableRow) (r Removal, err error) {
	var id string
	var taken []byte
	if err := row.Scan(&id, &r.Name, &r.State, &taken, &r.AskedAt, &r.FinishedAt, &r.By, &r.Reason); err != nil {
		return r, err
	}
	if r.Tenant, err = Parse(id); err != nil {
		return r, err
	}
	return r, json.Unmarshal(taken, &r.Taken)
}

// Removals lists the tenants that were removed, newest first, at most limit, from
// cursor on: [page.Of.Next] of the page before, or "". Needs deed_worker or deed_admin.
func Removals(ctx context.Context, db Querier, cursor string, limit int) (list page.Of[Removal], err error) {
	if limit < 1 {
		return list, fmt.Errorf("list removals: limit %d is below 1", limit)
	}
	var before *string
	if cursor != "" {
		id, err := Parse(cursor)
		if err != nil {
			return list, fmt.Errorf("list removals: the cursor is none of this list's: %w", err)
		}
		before = new(id.String())
	}
	rows, err := db.Query(ctx, removals+`
		where $1::text is null or (r.asked_at, r.tenant_id) < (select o.asked_at, o.tenant_id from deed.tenant_removals o where o.tenant_id = $1::text::uuid)
		order by r.asked_at desc, r.tenant_id desc
		limit $2::bigint`, before, limit)
	if err == nil {
		list.Items, err = pgx.CollectRows(rows, scanRemoval)
	}
	if err != nil {
		return list, fmt.Errorf("list removals: %w", err)
	}
	if len(list.Items) == limit {
		list.Next = list.Items[limit-1].Tenant.String()
	}
	return list, nil
}

// FindRemoval returns how far a tenant's removal is, and whether it was asked for. Needs
// deed_worker or deed_admin.
func FindRemoval(ctx context.Context, db Querier, id ID) (r Removal, ok bool, err error) {
	rows, err := db.Query(ctx, removals+` where r.tenant_id = $1::text::uuid`, id.String())
	if err == nil {
		r, err = pgx.CollectExactlyOneRow(rows, scanRemoval)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Removal{}, false, nil
	case err != nil:
		return Removal{}, false, fmt.Errorf("find removal of %s: %w", id, err)
	}
	return r, true, nil
}
