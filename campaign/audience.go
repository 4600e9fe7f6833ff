package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Audience is to whom: the list of intended items, one a contact and one an address. It is
// loaded in batches, and once it is ready it never changes, but that an erasure empties a
// member (D12).
type Audience struct {
	ID string
	// Ready is set once it has all of its members.
	Ready bool
	// Members is how many it has; who was interrupted goes on behind them.
	Members int64
	// Read is how many rows of its source have been read, and LeftOut how many of these are
	// not in it, as [Audience.AddRead] was told.
	Read, LeftOut int64

	scope Scope
}

// Member is one of an audience.
type Member struct {
	// Address is as the channel has it. Without one the member is skipped.
	Address string
	// Contact is the id of the contact that it is. Default: who is known by the address;
	// a new one, if nobody is.
	Contact string
	// Zone is where it is, such as Europe/Berlin. Default: unknown.
	Zone string
	// Data is a JSON object: what templates have as contact. Default: {}.
	Data json.RawMessage
}

// OpenAudience finds the audience of a name, or makes it. Errors: [deed.Invalid];
// [deed.Conflict] where there is one of the name for another channel; [deed.Forbidden].
func OpenAudience(ctx context.Context, db deed.DB, scope Scope, name string, channel Channel) (*Audience, error) {
	const op = "open audience"
	rows, err := db.Query(ctx, query.Audience, name, string(channel), scope.Workspace.String(), scope.tenant(), scope.by())
	if err != nil {
		return nil, wrap(op, err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (a Audience, err error) {
		return a, row.Scan(&a.ID, &a.Ready, &a.Members, &a.Read, &a.LeftOut)
	})
	if err != nil {
		return nil, wrap(op, err)
	}
	a.scope = scope
	return &a, nil
}

// Add puts up to 10,000 members behind those that it has, all or none, in db's transaction.
// The same call again, when its answer was lost, changes nothing if the [Audience] is as it
// was. Two addresses of a contact, or one address twice, are refused, as is what is no
// address: the error is a [*MembersError] then, as it is of contacts that the tenant does not
// have, or who were erased. Errors: [deed.Invalid]; [deed.Conflict] where it is ready, or
// others have added to it; [deed.NotFound].
func (a *Audience) Add(ctx context.Context, db deed.DB, ms ...Member) error {
	if len(ms) == 0 {
		return nil
	}
	return a.add(ctx, db, nil, nil, ms)
}

// AddRead is [Audience.Add], and notes for who goes on after an interruption how many rows of
// the source have been read now, and how many of these were left out. ms may be none.
func (a *Audience) AddRead(ctx context.Context, db deed.DB, read, leftOut int64, ms ...Member) error {
	if err := a.add(ctx, db, &read, &leftOut, ms); err != nil {
		return err
	}
	a.Read, a.LeftOut = read, leftOut
	return nil
}

// MembersError says which members of a batch were refused, and why: all of those that the database could not
// read, or else all that are no members by themselves, or whose contact is none, or else all that are there twice. Its
// code is [deed.Invalid], and of contacts [deed.NotFound], or [deed.Conflict] for one who was erased.
type MembersError struct {
	Members []BadMember
	err     error
}

// BadMember is one that was refused.
type BadMember struct {
	// N counts from 1 in the audience, as if the batch had been put into it.
	N       int64  `json:"n"`
	Problem string `json:"problem"`
}

func (e *MembersError) Error() string { return e.err.Error() }

// Unwrap returns a [deed.Error].
func (e *MembersError) Unwrap() error { return e.err }

// membersError is err with what the database says of members beside it, if it does.
func membersError(op string, err error) error {
	wrapped := wrap(op, err)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return wrapped
	}
	e := &MembersError{err: wrapped}
	if json.Unmarshal([]byte(pg.Detail), &e.Members) != nil || len(e.Members) == 0 {
		return wrapped
	}
	return e
}

func (a *Audience) add(ctx context.Context, db deed.DB, read, leftOut *int64, ms []Member) error {
	const op = "add audience members"
	addresses := make([]string, len(ms))
	data, zones, contacts := make([]*string, len(ms)), make([]*string, len(ms)), make([]*string, len(ms))
	var bad []BadMember // what would have the statement fail without saying for whom
	for i, m := range ms {
		if problem := m.problem(); problem != "" {
			bad = append(bad, BadMember{a.Members + int64(i) + 1, problem})
		}
		if len(m.Data) > 0 {
			text := string(m.Data)
			data[i] = &text
		}
		addresses[i] = m.Address
		zones[i], contacts[i] = orNil(m.Zone), orNil(m.Contact)
	}
	if bad != nil {
		return &MembersError{bad, invalidf(op, "member %d: %s", bad[0].N, bad[0].Problem)}
	}
	rows, err := db.Query(ctx, query.Add, a.ID, a.Members, addresses, data, zones, contacts, a.scope.tenant(), read, leftOut, a.scope.by())
	if err == nil {
		var now int64
		if now, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64]); err == nil && now < a.Members+int64(len(ms)) {
			err = fmt.Errorf("the audience has %d members", now)
		}
	}
	if err != nil {
		return membersError(op, err)
	}
	a.Members += int64(len(ms))
	return nil
}

// mostDigits is how many bytes the numbers of a member's data may have, as PostgreSQL writes them.
const mostDigits = 65536

// problem is what is wrong with m that can be told without the database, most of which that would say of no member.
func (m *Member) problem() string {
	switch {
	case !sqlvalue.IsText(m.Address):
		return "its address is none: it has a character that nobody sees"
	case m.Contact != "" && checkID("", m.Contact) != nil:
		return "a contact's id must be a UUID" // what was given may be an address
	case !sqlvalue.IsText(m.Zone):
		return "its zone is not the name of a time zone, such as Europe/Berlin"
	case len(m.Data) == 0:
		return ""
	case !json.Valid(m.Data) || !utf8.Valid(m.Data):
		return "its data are no JSON in UTF-8"
	}
	if problem := sqlvalue.JSONBProblem(m.Data, mostDigits); problem != "" {
		return "its data have " + problem
	}
	return ""
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Finish says that it has all of its members. Again is harmless. Errors: [deed.Conflict]
// where it has others than a knows of; [deed.NotFound].
func (a *Audience) Finish(ctx context.Context, db deed.DB) error {
	rows, err := db.Query(ctx, query.Finish, a.ID, a.Members, a.scope.tenant(), a.scope.by())
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return wrap("finish audience", err)
	}
	a.Ready = true
	return nil
}
