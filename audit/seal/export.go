package seal

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// format is what the first line of an export says that it is.
const format = "deed audit 1"

// head is the first line of an export.
type head struct {
	Format       string    `json:"format"`
	Installation string    `json:"installation"`
	At           time.Time `json:"at"`
}

// tail is the last one: a file that ends before it was cut off.
type tail struct {
	Seals int64 `json:"seals,string"`
	Rows  int64 `json:"rows,string"`
}

// line is one of an export, of one kind.
type line struct {
	Head *head `json:"head,omitempty"`
	Seal *Seal `json:"of,omitempty"`
	Row  *Row  `json:"row,omitempty"`
	Tail *tail `json:"end,omitempty"`
}

// Exported is what an export has.
type Exported struct {
	Seals    int64 `json:"seals"`
	Rows     int64 `json:"rows"`
	Unsealed int64 `json:"unsealed"` // rows that no seal is for, yet
	// Last is [Seal.Name] of the newest one; "": there is none.
	Last string `json:"last"`
}

const exportPage = 1000

// Export writes the audit log with its seals to w, a line of JSON each: a head, each seal
// before its rows, what is not sealed yet, and an end. It is read in pages, and no snapshot
// of the database is held meanwhile.
func Export(ctx context.Context, db deed.DB, w io.Writer) (e Exported, err error) {
	const op = "export audit log"
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	var h head
	rows, err := db.Query(ctx, query.Installation)
	if err == nil {
		h, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (h head, err error) {
			h.Format = format
			return h, row.Scan(&h.Installation, &h.At)
		})
	}
	if err != nil {
		return e, deed.WrapError(op, err)
	}
	h.At = h.At.UTC()
	if err := out.Encode(line{Head: &h}); err != nil {
		return e, err
	}
	from := int64(0)
	for {
		s, err := sealAfter(ctx, db, e.Seals)
		if errors.Is(err, pgx.ErrNoRows) {
			break
		}
		if err != nil {
			return e, deed.WrapError(op, err)
		}
		s.At = s.At.UTC()
		if err := out.Encode(line{Seal: &s}); err != nil {
			return e, err
		}
		n, err := exportRows(ctx, db, out, from, s.Upto)
		if err != nil {
			return e, deed.WrapError(op, err)
		}
		from = s.Upto
		e.Seals, e.Last, e.Rows = s.K, s.Name(), e.Rows+n
	}
	e.Unsealed, err = exportRows(ctx, db, out, from, 1<<62)
	if err != nil {
		return e, deed.WrapError(op, err)
	}
	e.Rows += e.Unsealed
	return e, out.Encode(line{Tail: &tail{e.Seals, e.Rows}})
}

// sealAfter is the seal behind the k-th.
func sealAfter(ctx context.Context, db deed.DB, k int64) (Seal, error) {
	rows, err := db.Query(ctx, query.Seals, k)
	if err != nil {
		return Seal{}, err
	}
	return pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (s Seal, err error) {
		return s, row.Scan(&s.K, &s.From, &s.Upto, &s.Rows, &s.At, &s.Leaves, &s.Previous, &s.Hash, &s.Key, &s.Signature)
	})
}

// exportRows writes the rows behind a number, up to another one, and counts them.
func exportRows(ctx context.Context, db deed.DB, out *json.Encoder, after, upto int64) (n int64, err error) {
	for {
		rows, err := db.Query(ctx, query.Rows, after, upto, exportPage)
		if err != nil {
			return n, err
		}
		list, err := pgx.CollectRows(rows, scanBlinded)
		if err != nil {
			return n, err
		}
		for i := range list {
			if err := out.Encode(line{Row: &list[i]}); err != nil {
				return n, err
			}
			after = list[i].N
			n++
		}
		if len(list) < exportPage {
			return n, nil
		}
	}
}

func scanBlinded(row pgx.CollectableRow) (r Row, err error) {
	var details *string
	var parts []string
	var salts, hashes [][]byte
	err = row.Scan(&r.N, &r.At, &r.Tenant, &r.Run, &r.Actor, &r.Login, &r.Action, &r.SubjectType, &r.SubjectID, &r.From, &r.To, &r.Reason, &r.Affected, &details,
		&parts, &salts, &hashes)
	r.At = r.At.UTC()
	if details != nil {
		r.Details = []byte(*details)
	}
	for i, part := range parts {
		if r.Blinds == nil {
			r.Blinds = map[string]Blind{}
		}
		b := Blind{Hash: hashes[i]}
		if len(salts[i]) > 0 {
			b.Salt = salts[i]
		}
		r.Blinds[part] = b
	}
	return r, err
}
