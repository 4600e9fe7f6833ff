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
		r, err := c.read()
		if err != nil {
			return nil, line, err
		}
		if r.astray && r.second > 0 {
			// A quote that was opened by mistake took further lines with it.
			c.lines.unread(r.text[r.first:], r.second)
		}
		if r.over {
			return nil, line, &LineError{line, c.overError(r, line)}
		}
		row, err := parseRow(r.text)
		if err == io.EOF {
			continue
		}
		if err != nil {
			return nil, line, &LineError{line, err}
		}
		if !utf8.Valid(r.text) {
			return nil, line, &LineError{line, errors.New("not UTF-8")}
		}
		return row, line, nil
	}
}

func (c *csvFile) overError(r csvRow, line int) error {
	err := c.lines.overError("the row")
	if r.astray && r.second > 0 {
		return fmt.Errorf("%w, or has a quote that nothing closes; what follows line %d is read as rows", err, line)
	}
	return fmt.Errorf("%w; it ends in line %d", err, max(line, c.lines.line-1))
}

// csvRow is the lines of one row.
type csvRow struct {
	text   []byte // without the first line where that alone is over the limit
	first  int    // how much of text is the first line
	second int    // the number of the line behind the first; 0: the row has no other
	over   bool   // the row is over the limit
	astray bool   // it is malformed, or its end is not found
}

// read returns the lines of one row: a line ends it unless a quote is open. What lies behind the first is kept, to be read again if that
// quote was a mistake; of more than the limit nobody can tell. A line that leaves a quote open has an odd number of them, so the next
// such one closes it or is malformed: nothing is read more than twice.
func (c *csvFile) read() (r csvRow, err error) {
	var q quoting
	for begun := false; ; begun = true {
		b, ends, err := c.lines.chunk()
		if err == io.EOF && begun {
			r.astray = q == quoted // for parseRow to say
			return r, nil
		}
		if err != nil {
			return csvRow{}, err
		}
		if r.second == 0 {
			r.text, r.over = c.lines.keep(r.text, b, r.over)
			r.first = len(r.text)
		} else {
			r.over = r.over || len(r.text)+len(trimEnd(b)) > c.lines.most
			r.text = append(r.text, b...)
		}
		q.scan(b)
		r.astray = q == malformed || len(r.text)-r.first > c.lines.most
		switch {
		case r.second > 0 && r.astray, ends && q != quoted:
			return r, nil
		case ends && r.second == 0:
			r.second = c.lines.line
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
	closed    // after a quote that closes, or that the next byte makes a literal one
	ending    // after that and a carriage return
	malformed // what follows cannot mend the row
)

// scan follows b, to the end of a row or to where it is malformed, as the csv package has it.
func (q *quoting) scan(b []byte) {
	for _, c := range b {
		switch *q {
		case fieldStart, bare:
			*q = outside(*q, c)
		case quoted:
			if c == '"' {
				*q = closed
			}
		case closed, ending:
			*q = behind(*q, c)
		case malformed:
			return
		}
	}
}

// outside is where a reader of c is then, who was not within quotes.
func outside(q quoting, c byte) quoting {
	switch {
	case c == ',' || c == '\n':
		return fieldStart
	case c != '"':
		return bare
	case q == fieldStart:
		return quoted
	}
	return malformed
}

// behind is where a reader of c is then, who was behind a quote within quotes.
func behind(q quoting, c byte) quoting {
	switch {
	case c == '\n' || c == ',' && q == closed:
		return fieldStart
	case c == '"' && q == closed:
		return quoted
	case c == '\r' && q == closed:
		return ending
	}
	return malformed
}

func appendJSON(dst []byte, s string) []byte {
	b := bytes.NewBuffer(dst)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
