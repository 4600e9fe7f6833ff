package plan

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// ErrIntegrity is what [Load] returns for a plan whose bytes are not those that were
// stored, or not those that the run began with. Both hashes are in the audit log.
var ErrIntegrity = errors.New("PLAN_INTEGRITY_VALIDATION_FAILED")

// Put stores a plan in db's transaction; it is the tenant's that db has set, or owner's where
// owner is not nil. by is who stores it, for the audit log; "" is the login. The same plan
// again changes nothing, and created is false then. Errors: [deed.Conflict] for another plan under the same
// name and version; [deed.Forbidden] without a tenant.
func Put(ctx context.Context, db deed.DB, owner *tenant.ID, p *Plan, by string) (created bool, err error) {
	rows, err := db.Query(ctx, query.Put, p.body, sqlvalue.NullIfZero(by), idOf(owner))
	if err == nil {
		created, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
	return created, deed.WrapError("put plan", err)
}

// Stored is a plan as [Load] found it.
type Stored struct {
	*Plan
	CreatedAt time.Time
	CreatedBy string
}

// Load returns a plan of the tenant that db has set, or of owner; version "" is the one that was
// stored last. hash is what a run has noted when it began, or nil. Its bytes are checked: Errors:
// [deed.NotFound]; [deed.Forbidden] without a tenant; [deed.Conflict] and [ErrIntegrity] for other bytes, which is in the audit
// log when db's transaction commits.
func Load(ctx context.Context, db deed.DB, owner *tenant.ID, id, version string, hash []byte) (*Stored, error) {
	const op = "load plan"
	if version == "" {
		rows, err := db.Query(ctx, query.Newest, id, idOf(owner))
		if err == nil {
			version, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) { // where no tenant is set the next one says so
			return nil, deed.WrapError(op, err)
		}
	}
	rows, err := db.Query(ctx, query.Load, id, version, hash, idOf(owner))
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	type row struct {
		Body, Expected, Found []byte
		CreatedAt             time.Time
		CreatedBy             string
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	switch {
	case errors.Is(err, pgx.ErrNoRows) && version == "":
		return nil, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no plan %q", id)}
	case errors.Is(err, pgx.ErrNoRows):
		return nil, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no version %q of plan %q", version, id)}
	case err != nil:
		return nil, deed.WrapError(op, err)
	case r.Body == nil:
		return nil, &deed.Error{Op: op, Code: deed.Conflict, Err: fmt.Errorf("%w: plan %s@%s was %s, and is %s",
			ErrIntegrity, id, version, hex.EncodeToString(r.Expected), hex.EncodeToString(r.Found))}
	}
	p, err := parse(id+"@"+version, r.Body, true)
	if err == nil && !bytes.Equal(p.body, r.Body) {
		err = &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf("plan %s@%s is not stored in its canonical form", id, version)}
	}
	if err != nil {
		return nil, err
	}
	return &Stored{Plan: p, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy}, nil
}

func idOf(owner *tenant.ID) any {
	if owner == nil {
		return nil
	}
	return owner.String()
}
