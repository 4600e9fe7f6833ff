package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// FindAudience returns the audience of a name, and its channel. Errors: [deed.NotFound].
func FindAudience(ctx context.Context, db deed.DB, scope Scope, name string) (*Audience, Channel, error) {
	const op = "find audience"
	rows, err := db.Query(ctx, query.FindAudience, name, scope.Workspace.String(), scope.tenant())
	if err != nil {
		return nil, "", wrap(op, err)
	}
	a := &Audience{scope: scope}
	var channel Channel
	_, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (struct{}, error) {
		return struct{}{}, row.Scan(&a.ID, &a.Ready, &a.Members, &a.Read, &a.LeftOut, &channel)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "", &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no audience %q", errortext.Clip(name))}
	}
	if err != nil {
		return nil, "", wrap(op, err)
	}
	return a, channel, nil
}

// Sample returns up to limit members of an audience from the one of a number on, which count from 1.
// Errors: [deed.Invalid].
func Sample(ctx context.Context, db deed.DB, audience string, from int64, limit int) ([]Member, error) {
	const op = "look at audience"
	if err := checkID("audience", audience); err != nil {
		return nil, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Sample, audience, from, limit)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Member, err error) {
		var n int64
		var data string
		err = row.Scan(&n, &m.Address, &m.Contact, &m.Zone, &data)
		m.Data = json.RawMessage(data)
		return m, err
	})
	return list, wrap(op, err)
}

// Segment goes through the contacts of which a jsonpath predicate over their data is true, such as
// $.city == "Lyon", and who have an address of the channel; with a purpose only those who have agreed to it. Each is a
// member as [Audience.Add] takes it, with all of the contact's data. It ends at the first error. Errors:
// [deed.Invalid] for what is no jsonpath.
func Segment(ctx context.Context, db deed.DB, scope Scope, channel Channel, predicate, purpose string) iter.Seq2[Member, error] {
	const op = "read segment"
	kind := map[Channel]string{Email: "email", SMS: "phone", Voice: "phone", Social: "account", Chat: "chat"}[channel]
	return func(yield func(Member, error) bool) {
		rows, err := db.Query(ctx, query.Segment, scope.tenant(), predicate, kind, string(channel), sqlvalue.NullIfZero(purpose))
		if err == nil {
			defer rows.Close()
			for rows.Next() {
				var m Member
				var data string
				if err = rows.Scan(&m.Contact, &m.Address, &m.Zone, &data); err != nil {
					break
				}
				if m.Data = json.RawMessage(data); !yield(m, nil) {
					return
				}
			}
			err = errors.Join(err, rows.Err())
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42601" {
			err = invalidf(op, "the segment is no jsonpath: %s", pg.Message)
		}
		if err != nil {
			yield(Member{}, wrap(op, err))
		}
	}
}
