package contact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Contact is a contact as the database has it.
type Contact struct {
	ID         string          `json:"id"`
	Tenant     string          `json:"tenant"`
	Identities []Identity      `json:"identities"`
	Data       json.RawMessage `json:"data"`
	Zone       string          `json:"zone,omitempty"`
	Locale     string          `json:"locale,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
	ErasedAt   *time.Time      `json:"erased_at,omitempty"`
	MergedInto string          `json:"merged_into,omitempty"` // the contact that it is another name of
}

// Filter chooses contacts; zero fields choose all.
type Filter struct {
	Tenant *tenant.ID
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // default 100
}

// List returns the contacts that db may see, newest first. Errors: [ErrInvalid].
func List(ctx context.Context, db DB, f Filter) (list page.Of[Contact], err error) {
	const op = "contacts"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > math.MaxInt32 {
		return list, invalidf(op, "limit %d is not from 1 to %d", f.Limit, math.MaxInt32)
	}
	var cursor any
	if f.Cursor != "" {
		if checkIDs(op, f.Cursor) != nil {
			return list, invalidf(op, "the cursor is none of this list's")
		}
		cursor = f.Cursor
	}
	list.Items, err = read(ctx, db, op, query.Contacts, id(f.Tenant), cursor, f.Limit)
	if err == nil && len(list.Items) == f.Limit {
		list.Next = list.Items[f.Limit-1].ID
	}
	return list, err
}

// Get returns a contact. Errors: [ErrNotFound], [ErrInvalid].
func Get(ctx context.Context, db DB, of string) (Contact, error) {
	const op = "contact"
	if err := checkIDs(op, of); err != nil {
		return Contact{}, err
	}
	list, err := read(ctx, db, op, query.Contact, of)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("deed: %s: %w: there is no contact %s", op, ErrNotFound, of)
	}
	if err != nil {
		return Contact{}, err
	}
	return list[0], nil
}

// Find returns the contact that ref names: by its id, or by TYPE:VALUE, such as
// email:ann@example.com, as [KnownAs] does. owner nil: by its id any that db may see,
// by an identity one of the tenant that db has set. Errors: [ErrNotFound],
// [ErrInvalid]; neither repeats the value.
func Find(ctx context.Context, db DB, owner *tenant.ID, ref string) (Contact, error) {
	const op = "contact"
	typ, value, named := strings.Cut(ref, ":")
	if named {
		known := Identity{Type: typ, Value: value}
		of, err := one[string](ctx, db, op, query.KnownAs, id(owner), known.Type, known.Value)
		if errors.Is(err, pgx.ErrNoRows) {
			return Contact{}, unknown(ctx, db, known)
		}
		if err != nil {
			return Contact{}, err
		}
		ref = of
	} else if _, err := uuid.Parse(ref); err != nil {
		return Contact{}, invalidf(op, "want a contact's id, a UUID, or what it is known as, TYPE:VALUE such as phone:+493012345") // what was given may be an address
	}
	c, err := Get(ctx, db, ref)
	if err == nil && owner != nil && c.Tenant != owner.String() {
		return Contact{}, fmt.Errorf("deed: %s: %w: the tenant has no contact %s", op, ErrNotFound, ref)
	}
	return c, err
}

// unknown says why nobody is known by an identity.
func unknown(ctx context.Context, db DB, i Identity) error {
	const op = "contact"
	problems, err := Check(ctx, db, Person{Identities: []Identity{i}})
	switch {
	case err != nil:
		return err
	case len(problems) > 0:
		return invalidf(op, "%s", problems[0].Text)
	}
	return fmt.Errorf("deed: %s: %w: nobody is known by this %s", op, ErrNotFound, i.Type)
}

// Aliases returns the contacts that have been merged into one, through any number of
// merges: with what each of them is known by, and keeps. Errors: [ErrInvalid].
func Aliases(ctx context.Context, db DB, of string) ([]Contact, error) {
	const op = "aliases"
	if err := checkIDs(op, of); err != nil {
		return nil, err
	}
	return read(ctx, db, op, query.Aliases, of)
}

// KnownAs returns the id of the contact that a tenant knows by an identity, however
// its value is written; of one that was merged, the one that it was merged into. ""
// if nobody is.
func KnownAs(ctx context.Context, db DB, owner tenant.ID, i Identity) (string, error) {
	of, err := one[string](ctx, db, "contact known as", query.KnownAs, owner.String(), i.Type, i.Value)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return of, err
}

// read reads contacts, and what they are known by.
func read(ctx context.Context, db DB, op, sql string, args ...any) ([]Contact, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Contact, err error) {
		err = row.Scan(&c.ID, &c.Tenant, (*[]byte)(&c.Data), &c.Zone, &c.Locale, &c.CreatedAt, &c.UpdatedAt, &c.ErasedAt, &c.MergedInto)
		return c, err
	})
	if err != nil || len(list) == 0 {
		return list, wrap(op, err)
	}
	at := map[string]*Contact{}
	ids := make([]string, len(list))
	for i := range list {
		at[list[i].ID], ids[i] = &list[i], list[i].ID
		list[i].Identities = []Identity{}
	}
	if rows, err = db.Query(ctx, query.Identities, ids); err != nil {
		return nil, wrap(op, err)
	}
	var of string
	var i Identity
	var verified *time.Time
	_, err = pgx.ForEachRow(rows, []any{&of, &i.Type, &i.Value, &verified}, func() error {
		i.Verified = verified != nil
		at[of].Identities = append(at[of].Identities, i)
		return nil
	})
	return list, wrap(op, err)
}

// numberBelow is where a list goes on that is in the order of numbers.
func numberBelow(cursor string) (int64, error) {
	if cursor == "" {
		return math.MaxInt64, nil
	}
	return strconv.ParseInt(cursor, 10, 64)
}

func checkIDs(op string, ids ...string) error {
	for _, i := range ids {
		if _, err := uuid.Parse(i); err != nil {
			return invalidf(op, "a contact's id must be a UUID") // what was given may be an address
		}
	}
	return nil
}
