package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/deedhq/deed"
)

// RowOptions says how rows are read.
type RowOptions struct {
	// Fields are the columns that a CSV file must have. Rows of NDJSON may lack them.
	Fields []string

	// Format and MaxLine are those of [Options].
	Format  string
	MaxLine int
}

// Rows reads the rows of one file, each as a JSON object. It is for one goroutine.
type Rows struct {
	name   string
	format format
	fields []string
	ended  error // what Next returns for ever
}

// NewRows checks opts and, for CSV, the header: all problems at once. Name is the file's, for
// its suffix and for errors.
func NewRows(r io.Reader, name string, opts RowOptions) (*Rows, error) {
	kind, errs := kindOf(name, opts.Format, opts.MaxLine)
	out := &Rows{name: name}
	if len(errs) == 0 {
		l := newLines(r, cmp.Or(opts.MaxLine, defaultMaxLine))
		out.format = &ndjson{lines: l}
		if kind == "csv" {
			c, err := newCSV(l, Options{})
			errs = append(errs, err)
			if c != nil {
				out.format, out.fields = c, c.header
				errs = append(errs, c.lacks(opts.Fields)...)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "read " + name, Code: deed.Invalid, Err: err}
	}
	return out, nil
}

// lacks says which of fields the header does not have.
func (c *csvFile) lacks(fields []string) (errs []error) {
	for i, name := range fields {
		if !slices.Contains(c.header, name) && slices.Index(fields, name) == i {
			errs = append(errs, fmt.Errorf("header: no field is called %q", name))
		}
	}
	return errs
}

// Fields are the columns of a CSV file, in its order; nil for NDJSON.
func (r *Rows) Fields() []string { return slices.Clone(r.fields) }

// Next returns the next row, valid as long as the caller wants it, and the number of the line
// on which it begins. After a [LineError] reading goes on; any other error ends it, and is
// [io.EOF] at the end of the file.
func (r *Rows) Next() (json.RawMessage, int, error) {
	if r.ended != nil {
		return nil, 0, r.ended
	}
	object, _, line, err := r.format.next(nil)
	if err == nil {
		return slices.Clone(object), line, nil
	}
	if _, bad := errors.AsType[*LineError](err); bad {
		return nil, line, err
	}
	r.ended = err
	if !errors.Is(err, io.EOF) {
		r.ended = fmt.Errorf("read %s: line %d: %w", r.name, line, err)
	}
	return nil, 0, r.ended
}
