package contact

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/tenant"
)

// DB is a pgx.Tx, or a pool or connection, with which a call is a transaction of its
// own.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Identity is one thing by which somebody is known.
type Identity struct {
	// Type is what it is: email, phone, external_id, telegram, whatsapp, whatsapp_user,
	// slack, or any other name of a to z, 0 to 9 and _.
	Type string `json:"type"`
	// Value is that, however it is written; as it is compared where it was read.
	Value string `json:"value"`
	// Verified says that it is known to be theirs.
	Verified bool `json:"verified,omitempty"`
}

// Person is what is known of somebody.
type Person struct {
	// Identities are what they are known by; one at the least.
	Identities []Identity
	// Data is a JSON object of up to 64 KiB; its keys take the place of those that the
	// contact has. Default: they stay.
	Data json.RawMessage
	// Zone is the name of their time zone, such as Europe/Berlin. Default: as it is.
	Zone string
	// Locale is their language, such as pt-BR. Default: as it is.
	Locale string
}

// Outcome is what became of a person.
type Outcome string

// The outcomes.
const (
	Created   Outcome = "created"
	Updated   Outcome = "updated"
	Unchanged Outcome = "unchanged"
	// Conflicting says that the identities are of several contacts. Nothing of this
	// person was changed; it is kept for somebody to decide.
	Conflicting Outcome = "conflict"
	// Full says that the contact would have over 100 identities. Nothing of this person
	// was changed.
	Full Outcome = "full"
)

// Upserted is what became of a person, and who that is.
type Upserted struct {
	ID      string   `json:"id,omitempty"` // of the contact, a UUID; "" if Conflicting
	Outcome Outcome  `json:"outcome"`
	Others  []string `json:"others,omitempty"` // whose the identities are, if Conflicting
}

// Upsert makes or changes contacts of the tenant that db has set, in one statement,
// and returns one result a person, in their order. Who is known by one of the
// identities is changed, and gets the rest of them; who is known by none is made;
// where they are of several contacts, or would be too many for one, only that person is
// left out, as [Conflicting] or [Full]. Persons of one call may be the same one. by is who does it; default:
// the login. Errors: [ErrInvalid], [ErrForbidden].
func Upsert(ctx context.Context, db DB, by string, persons ...Person) ([]Upserted, error) {
	return upsert(ctx, db, nil, by, persons)
}

// UpsertFor is [Upsert] for a tenant that db has not set, for logins that cross
// tenants.
func UpsertFor(ctx context.Context, db DB, owner tenant.ID, by string, persons ...Person) ([]Upserted, error) {
	return upsert(ctx, db, owner.String(), by, persons)
}

func upsert(ctx context.Context, db DB, owner any, by string, persons []Person) ([]Upserted, error) {
	const op = "upsert contacts"
	if len(persons) == 0 {
		return nil, nil
	}
	var a columns
	for i := range persons {
		if text := persons[i].problem(); text != "" {
			return nil, invalidf(op, "contact %d: %s", i+1, text)
		}
		a.add(&persons[i], i+1, len(persons))
	}
	rows, err := db.Query(ctx, query.Upsert, a.of, a.types, a.values, a.data, a.zones, a.locales, a.verified, owner, by)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u Upserted, err error) {
		var id *string
		err = row.Scan(&id, &u.Outcome, &u.Others)
		if id != nil {
			u.ID = *id
		}
		return u, err
	})
	return list, wrap(op, err)
}

// columns are the arrays of deed.upsert_contacts. Those of what nobody gave stay nil.
type columns struct {
	of             []int32 // of which person an identity is
	types, values  []string
	verified       []bool
	data           []*string
	zones, locales []*string
}

// add adds the n-th of so many persons, counting from 1.
func (a *columns) add(p *Person, n, of int) {
	for _, i := range p.Identities {
		a.of, a.types, a.values = append(a.of, int32(n)), append(a.types, i.Type), append(a.values, i.Value)
		a.verified = append(a.verified, i.Verified)
	}
	a.data = append(a.data, nil)
	if len(p.Data) > 0 {
		data := string(p.Data)
		a.data[n-1] = &data
	}
	put(&a.zones, of, n-1, p.Zone)
	put(&a.locales, of, n-1, p.Locale)
}

// put sets an array's i-th of n entries, and makes the array for the first that is
// not empty.
func put(list *[]*string, n, i int, v string) {
	if v == "" {
		return
	}
	if *list == nil {
		*list = make([]*string, n)
	}
	(*list)[i] = &v
}
