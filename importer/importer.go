// Package importer reads messages from NDJSON and CSV files, and publishes them; and
// contacts, and stores them ([Contacts], [Upsert]); and rows as such ([Rows]).
//
// A line of NDJSON is one message: its bytes, without the line end and the
// white space around it, are the payload. It must be one JSON object; blank
// lines are skipped.
//
// The first row of a CSV file (RFC 4180: comma, double quotes) names the
// fields, and each further row is one message: a JSON object of strings, in
// the header's order. Blank lines are skipped, and a line break inside quotes
// is one line feed, whatever it is in the file.
//
// A quote that nothing closes, or that stands where none can, costs the line
// in which it is: those behind it are read as rows. So are those behind the
// first line of a row that goes on for more than [Options].MaxLine behind it,
// since nobody can tell then whether it ends.
//
// Both may begin with a byte order mark and may end their lines with CRLF.
//
// A line that cannot be a message is reported with its number and left out;
// the lines after it are read all the same. What is read passes the checks of
// [deed.Publish] that need no database, so that one line does not have a whole
// batch refused.
package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/tenant"
)

const defaultMaxLine = 2 << 20

// Options says what becomes of a line.
type Options struct {
	// Topic and Type are the messages'. Topic is required.
	Topic string
	Type  string

	// Tenant is the messages' tenant. Default: the default tenant.
	Tenant *tenant.ID

	// KeyField names the field whose value is a message's key, and IDField the
	// one whose value is its idempotency key. A value is text, or a number or
	// boolean as it is written. A line without the field is bad. Default: none.
	KeyField string
	IDField  string

	// Format is "ndjson" or "csv". Default: by the suffix of the file's name,
	// .ndjson, .jsonl, .json or .csv.
	Format string

	// MaxLine bounds a line, or a CSV row, in bytes without its line end.
	// Default 2 MiB.
	MaxLine int
}

// LineError says why a line is no message. Reading goes on after it.
type LineError struct {
	Line int // where the line, or the CSV row, begins; from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *LineError) Unwrap() error { return e.Err }

// Reader reads one file. It is for one goroutine.
type Reader struct {
	name   string
	opts   Options
	format format
	ended  error // what Next returns for ever
}

// format reads the next line that is not blank as a payload, with its fields'
// values as far as want asks for them. The line's number comes with a
// [LineError] too.
type format interface {
	next(want []string) (payload []byte, values []string, line int, err error)
}

// New checks opts, all problems at once, and for CSV reads the header. Name is
// the file's, for its suffix and for errors.
func New(r io.Reader, name string, opts Options) (*Reader, error) {
	kind, errs := kindOf(name, opts.Format, opts.MaxLine)
	if err := check(deed.Message{Topic: opts.Topic, Type: opts.Type, Payload: []byte("{}")}); err != nil {
		errs = slices.Insert(errs, 0, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "import " + name, Code: deed.Invalid, Err: err}
	}
	l := newLines(r, cmp.Or(opts.MaxLine, defaultMaxLine))
	out := &Reader{name: name, opts: opts, format: &ndjson{lines: l}}
	if kind == "csv" {
		c, err := newCSV(l, opts)
		if err != nil {
			return nil, &deed.Error{Op: "import " + name, Code: deed.Invalid, Err: err}
		}
		out.format = c
	}
	return out, nil
}

// kindOf is a file's format, and what is wrong with the options that all readers have.
func kindOf(name, format string, maxLine int) (kind string, errs []error) {
	if maxLine < 0 {
		errs = append(errs, fmt.Errorf("MaxLine %d is negative", maxLine))
	}
	kind = cmp.Or(format, formatOf(name))
	if kind != "ndjson" && kind != "csv" {
		if format != "" {
			errs = append(errs, fmt.Errorf(`format %q is neither "ndjson" nor "csv"`, format))
		} else {
			errs = append(errs, errors.New(`the name does not end in .ndjson, .jsonl, .json or .csv; give the format (--format), "ndjson" or "csv"`))
		}
	}
	return kind, errs
}

func formatOf(name string) string {
	lower := strings.ToLower(name)
	switch {
	case strings.HasSuffix(lower, ".csv"):
		return "csv"
	case strings.HasSuffix(lower, ".ndjson"), strings.HasSuffix(lower, ".jsonl"), strings.HasSuffix(lower, ".json"):
		return "ndjson"
	}
	return ""
}

// Next returns the next message and the number of the line on which it begins.
// After a [LineError] reading goes on; any other error ends it, and is
// [io.EOF] at the end of the file.
func (r *Reader) Next() (deed.Message, int, error) {
	if r.ended != nil {
		return deed.Message{}, 0, r.ended
	}
	m, line, err := r.message()
	if _, bad := errors.AsType[*LineError](err); err != nil && !bad {
		if err != io.EOF {
			err = fmt.Errorf("import %s: line %d: %w", r.name, line, err)
		}
		r.ended = err
	}
	return m, line, err
}

func (r *Reader) message() (deed.Message, int, error) {
	var want []string
	for _, field := range []string{r.opts.KeyField, r.opts.IDField} {
		if field != "" {
			want = append(want, field)
		}
	}
	payload, values, line, err := r.format.next(want)
	if err != nil {
		return deed.Message{}, line, err
	}
	m := deed.Message{Topic: r.opts.Topic, Type: r.opts.Type, Payload: payload}
	if r.opts.Tenant != nil {
		m.Tenant = *r.opts.Tenant
	}
	if r.opts.KeyField != "" {
		m.Key, values = values[0], values[1:]
	}
	if r.opts.IDField != "" {
		m.IdempotencyKey = values[0]
		if m.IdempotencyKey == "" {
			// Without one the message would be published again by every run.
			return deed.Message{}, line, &LineError{line, fmt.Errorf("field %q is empty", r.opts.IDField)}
		}
	}
	if err := check(m); err != nil {
		return deed.Message{}, line, &LineError{line, err}
	}
	return m, line, nil
}

// check applies publishing's own rules to one message. Of the error only the
// innermost part is kept: "message 1 of 1" says nothing here.
func check(m deed.Message) error {
	_, err := deed.NewStatement(context.Background(), m)
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err
}
