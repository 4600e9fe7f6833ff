package importer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

type csvFile struct {
	lines  *lines
	header []string
	names  [][]byte // the header as JSON strings
}

// newCSV reads the header, in which opts' fields must be.
func newCSV(l *lines, opts Options) (*csvFile, error) {
	c := &csvFile{lines: l}
	if err := c.readHeader(); err != nil {
		return nil, err
	}
	var errs []error
	for i, name := range c.header {
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("header: field %d has no name", i+1))
		case slices.Index(c.header, name) < i:
			errs = append(errs, fmt.Errorf("header: field %d is called %q, as field %d is", i+1, name, slices.Index(c.header, name)+1))
		}
		c.names = append(c.names, appendJSON(nil, name))
	}
	errs = append(errs, c.lacks(slices.DeleteFunc([]string{opts.KeyField, opts.IDField}, func(name string) bool { return name == "" }))...)
	return c, errors.Join(errs...)
}

func (c *csvFile) readHeader() error {
	header, line, err := c.row()
	if err == io.EOF {
		return errors.New("the file is empty; its first row must name the fields")
	}
	if bad, ok := errors.AsType[*LineError](err); ok {
		return fmt.Errorf("header: %w", bad)
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", line, err)
	}
	c.header = header
	return nil
}

func (c *csvFile) next(want []string) ([]byte, []string, int, error) {
	row, line, err := c.row()
	if err != nil {
		return nil, nil, line, err
	}
	if len(row) != len(c.header) {
		return nil, nil, line, &LineError{line, fmt.Errorf("%d fields, but the header has %d", len(row), len(c.header))}
	}
	payload := []byte{'{'}
	for i, value := range row {
		if i > 0 {
			payload = append(payload, ',')
		}
		payload = append(append(payload, c.names[i]...), ':')
		payload = appendJSON(payload, value)
	}
	values := make([]string, len(want))
	for i, name := range want {
		values[i] = row[slices.Index(c.header, name)]
	}
	return append(payload, '}'), values, line, nil
}

// row returns the next row that is not blank, and the line on which it begins.
func (c *csvFile) row() ([]string, int, error) {
	for {
		line := c.lines.line
		text, over, err := c.read()
		if err != nil {
			return nil, line, err
		}
		if over {
			return nil, line, &LineError{line, fmt.Errorf("%w; it ends in line %d", c.lines.overError("the row"), max(line, c.lines.line-1))}
		}
		row, err := parseRow(text)
		if err == io.EOF {
			continue
		}
		if err != nil {
			// A quote that was opened by mistake took further lines with it.
			if end := bytes.IndexByte(text, '\n') + 1; end > 0 {
				c.lines.unread(text[end:])
			}
			return nil, line, &LineError{line, err}
		}
		if !utf8.Valid(text) {
			return nil, line, &LineError{line, errors.New("not UTF-8")}
		}
		return row, line, nil
	}
}

// read returns the lines of one row: a line ends it unless a quote is open.
func (c *csvFile) read() (text []byte, over bool, err error) {
	var q quoting
	for begun := false; ; begun = true {
		b, ends, err := c.lines.chunk()
		if err == io.EOF && begun {
			return text, over, nil // with a quote open, for parseRow to say
		}
		if err != nil {
			return nil, false, err
		}
		text, over = c.lines.keep(text, b, over)
		q.scan(b)
		if ends && q != quoted {
			return text, over, nil
		}
	}
}

func parseRow(text []byte) ([]string, error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	row, err := r.Read()
	if e, ok := errors.AsType[*csv.ParseError](err); ok {
		return nil, e.Err
	}
	return row, err
}

// quoting is where in a row of CSV a reader is.
type quoting int

const (
	fieldStart quoting = iota
	bare
	quoted
	closed // after a quote that closes, or that the next byte makes a literal one
)

// scan follows b. Of a malformed row it knows less than the csv package, which
// has the last word.
func (q *quoting) scan(b []byte) {
	for _, c := range b {
		switch {
		case *q == quoted:
			if c == '"' {
				*q = closed
			}
		case c == ',' || c == '\n':
			*q = fieldStart
		case c == '"' && *q != bare:
			*q = quoted
		default:
			*q = bare
		}
	}
}

func appendJSON(dst []byte, s string) []byte {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
