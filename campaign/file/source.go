package file

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/importer"
)

// Source is what an audience is made of: rows that were read once, and are kept in a file
// without a name until Close. It is for one goroutine.
type Source struct {
	// Name is where it comes from, for messages.
	Name string
	// Columns are what templates have of each row; nil: that is not known.
	Columns []string
	// Rows is how many it has, bad ones among them.
	Rows int64

	live bool // read again, its rows may be others, or in another order
	f    *os.File
	w    *bufio.Writer
	sum  hash.Hash
}

// row is one of a source.
type row struct {
	Line    int             `json:"line"`
	Bad     string          `json:"bad,omitempty"` // why it is none
	Address string          `json:"address,omitempty"`
	Contact string          `json:"contact,omitempty"`
	Zone    string          `json:"zone,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// newSource makes an empty one. Its file is gone when the process is, however that ends: it is
// full of addresses.
func newSource(name string, channel campaign.Channel) (*Source, error) {
	f, err := os.CreateTemp("", "deed-audience-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &Source{Name: name, f: f, w: bufio.NewWriterSize(f, 1<<20), sum: sha256.New()}
	fmt.Fprintln(s.sum, channel)
	return s, nil
}

// Close forgets the rows.
func (s *Source) Close() error { return s.f.Close() }

// audience is the name of the audience that is made of these rows: the same rows are the same audience.
func (s *Source) audience() string { return "rows sha256:" + hex.EncodeToString(s.sum.Sum(nil)) }

func (s *Source) put(r row) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	s.sum.Write(text)
	s.Rows++
	_, err = s.w.Write(text)
	return err
}

// each calls fn for the rows from one on, counted from 0, until it returns false.
func (s *Source) each(from int64, fn func(row) (bool, error)) error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	r := bufio.NewReaderSize(io.NewSectionReader(s.f, 0, 1<<62), 1<<20)
	for n := int64(0); ; n++ {
		text, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n < from {
			continue
		}
		var one row
		if err := json.Unmarshal(text, &one); err != nil {
			return err
		}
		if more, err := fn(one); err != nil || !more {
			return err
		}
	}
}

// Read reads the rows of a CSV or NDJSON file; format is "csv" or "ndjson", "" by the name. A row that
// cannot be read is a bad one. Errors: [deed.Invalid], for columns that it does not have, too.
func (f *File) Read(ctx context.Context, in io.Reader, name, format string) (*Source, error) {
	rows, err := importer.NewRows(in, name, importer.RowOptions{Fields: f.asked(), Format: format})
	if err != nil {
		return nil, err
	}
	return f.gather(ctx, name, rows.Fields(), rows.Next)
}

// asked are the columns that rows must have.
func (f *File) asked() []string {
	var want []string
	for _, c := range append([]string{f.Columns.Address, f.Columns.Contact, f.Columns.Zone}, f.Columns.Data...) {
		if c != "" && !slices.Contains(want, c) {
			want = append(want, c)
		}
	}
	if f.Columns.Contact != "" { // they are known by that; an address they may have
		want = slices.DeleteFunc(want, func(c string) bool { return c == f.Columns.Address })
	}
	return want
}

// ordered finds that a query says an order, if only of a part of it.
var ordered = regexp.MustCompile(`(?i)\border\s+by\b`)

// Query reads the rows of a query, on any PostgreSQL: conn need not be of deed's database. It
// runs in a transaction that may only read; rows are streamed, and where the query says no order by they are
// sorted by what they are, so that the same rows are the same audience. Errors: [deed.Invalid] for a
// query that fails, that lacks a column, or has one twice.
func (f *File) Query(ctx context.Context, conn *pgx.Conn, name, sql string) (s *Source, err error) {
	const op = "read audience"
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// Else it is read, and answers, by the letters of its database.
		if _, err := tx.Exec(ctx, `set local client_encoding to 'UTF8'`); err != nil {
			return err
		}
		sql := strings.TrimRight(sql, "; \t\r\n") + "\n" // which ends a comment
		columns, err := f.columns(ctx, tx, sql)
		if err != nil {
			return err
		}
		order := ""
		if !ordered.MatchString(sql) {
			order = " order by 1"
		}
		// Each row as JSON, whatever its types are.
		rows, err := tx.Query(ctx, `select row_to_json(q)::text collate "C" from (`+sql+") q"+order, pgx.QueryExecModeExec)
		if err != nil {
			return err
		}
		defer rows.Close()
		n := 0
		s, err = f.gather(ctx, name, columns, func() (json.RawMessage, int, error) {
			if !rows.Next() {
				if err := rows.Err(); err != nil {
					return nil, 0, err
				}
				return nil, 0, io.EOF
			}
			n++
			return slices.Clone(rows.RawValues()[0]), n, nil
		})
		if err == nil {
			s.live = true
		}
		return err
	})
	if err != nil {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
		return nil, &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf("%s: %w", name, err)}
	}
	return s, nil
}

// columns are those of a query. Those that are taken must be each once, as they are the fields of an object.
func (f *File) columns(ctx context.Context, tx pgx.Tx, sql string) ([]string, error) {
	rows, err := tx.Query(ctx, "select * from ("+sql+") q limit 0", pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, err
	}
	columns, errs := []string{}, []error(nil)
	for i, c := range rows.FieldDescriptions() {
		taken := f.Columns.Data == nil || f.own(c.Name) || slices.Contains(f.Columns.Data, c.Name)
		if first := slices.Index(columns, c.Name); first >= 0 && taken {
			errs = append(errs, fmt.Errorf("column %d is called %q, as column %d is", i+1, c.Name, first+1))
		}
		columns = append(columns, c.Name)
	}
	for _, c := range f.asked() {
		if !slices.Contains(columns, c) {
			errs = append(errs, fmt.Errorf("no column is called %q", c))
		}
	}
	return columns, errors.Join(errs...)
}

// gather reads rows until [io.EOF]. columns are all that there are, as far as that is known.
func (f *File) gather(ctx context.Context, name string, columns []string, next func() (json.RawMessage, int, error)) (s *Source, err error) {
	if s, err = newSource(name, f.Request.Channel); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err, s = errors.Join(err, s.Close()), nil
		}
	}()
	s.Columns = f.Columns.Data
	if s.Columns == nil && columns != nil {
		s.Columns = slices.DeleteFunc(slices.Clone(columns), f.own)
	}
	for {
		if err := ctx.Err(); err != nil {
			return s, context.Cause(ctx)
		}
		object, line, err := next()
		bad, isBad := errors.AsType[*importer.LineError](err)
		switch {
		case isBad:
			err = s.put(row{Line: bad.Line, Bad: bad.Err.Error()})
		case errors.Is(err, io.EOF):
			return s, nil
		case err == nil:
			err = s.put(f.row(object, line))
		}
		if err != nil {
			return s, err
		}
	}
}

// own reports whether a column is none of the data.
func (f *File) own(column string) bool {
	return column == f.Columns.Address || column == f.Columns.Contact || column == f.Columns.Zone
}

// row takes from an object what its columns say.
func (f *File) row(object json.RawMessage, line int) row {
	r := row{Line: line}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		r.Bad = "not a JSON object"
		return r
	}
	to := map[string]*string{f.Columns.Address: &r.Address, f.Columns.Contact: &r.Contact, f.Columns.Zone: &r.Zone}
	// In one order, as the audience is called by what is said of each row: of several columns that cannot be used the first is named.
	for _, column := range []string{f.Columns.Address, f.Columns.Contact, f.Columns.Zone} {
		if raw, ok := fields[column]; ok && column != "" {
			text, err := scalar(raw)
			if err != nil {
				return row{Line: line, Bad: fmt.Sprintf("%q %v", column, err)}
			}
			*to[column] = strings.TrimSpace(text)
		}
	}
	columns := f.Columns.Data
	if columns == nil {
		columns = slices.DeleteFunc(slices.Sorted(maps.Keys(fields)), f.own)
	}
	data := []byte{'{'}
	for _, c := range columns {
		if value, ok := fields[c]; ok {
			if len(data) > 1 {
				data = append(data, ',')
			}
			key, _ := json.Marshal(c) // a string always encodes
			data = append(append(append(data, key...), ':'), value...)
		}
	}
	r.Data = append(data, '}')
	return r
}

// scalar is a text, or a number as it is written; "" for null.
func scalar(raw json.RawMessage) (string, error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return "", nil
	case raw[0] == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9':
		return string(raw), nil
	}
	return "", errors.New("is neither text nor a number")
}

// Contacts reads the rows of the file's segment: the contacts that it chooses. With consent: required they are
// those who have agreed. Errors: [deed.Invalid], for a file without a segment, too.
func (f *File) Contacts(ctx context.Context, db deed.DB, scope campaign.Scope) (*Source, error) {
	if f.Segment == "" {
		return nil, &deed.Error{Op: "read segment", Code: deed.Invalid, Err: errors.New("the campaign has no segment")}
	}
	purpose := ""
	if f.Request.NeedsConsent {
		purpose = f.Request.Purpose
	}
	next, stop := iter.Pull2(campaign.Segment(ctx, db, scope, f.Request.Channel, f.Segment, purpose))
	defer stop()
	s, err := newSource("segment", f.Request.Channel)
	if err != nil {
		return nil, err
	}
	s.Columns, s.live = f.Columns.Data, true
	for line := 1; ; line++ {
		m, err, more := next()
		if !more {
			return s, nil
		}
		if err == nil {
			r := f.row(m.Data, line)
			r.Address, r.Contact, r.Zone = m.Address, m.Contact, m.Zone
			err = s.put(r)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
}

// Member returns the one of a row, counted from 1. Errors: [deed.NotFound]; [deed.Invalid] where that row
// is bad.
func (s *Source) Member(n int64) (m campaign.Member, err error) {
	found := false
	err = s.each(n-1, func(r row) (bool, error) {
		if found = true; r.Bad != "" {
			return false, &deed.Error{Op: "read audience", Code: deed.Invalid, Err: fmt.Errorf("%s:%d: %s", s.Name, r.Line, r.Bad)}
		}
		m = members([]row{r})[0]
		return false, nil
	})
	if err == nil && !found {
		err = &deed.Error{Op: "read audience", Code: deed.NotFound, Err: fmt.Errorf("%s has %d rows", s.Name, s.Rows)}
	}
	return m, err
}
