package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/tenant"
)

// ContactOptions says what becomes of a row.
type ContactOptions struct {
	// Tenant is the contacts' tenant. Default: the one that the login has.
	Tenant *tenant.ID

	// Verified says that all identities of the file are known to be theirs.
	Verified bool

	// FromLine passes over the rows that begin before this line, which may be the one
	// after the last. Default: none.
	FromLine int

	// Format and MaxLine are those of [Options].
	Format  string
	MaxLine int
}

// Contacts reads the contacts of one file, a row each. It is for one goroutine.
//
// The fields of a row, the columns of a CSV file, are email, phone and external_id;
// type:NAME for an identity of any type; zone and locale; and data, a JSON object, or
// instead data.KEY for each of its keys. What is empty or null is not given. In NDJSON
// an identity may also be an array of several.
type Contacts struct {
	name  string
	opts  ContactOptions
	lines *lines
	next  func() (contact.Person, int, error)
	ended error // what Next returns for ever
}

// NewContacts checks opts and, for CSV, the header: all problems at once. Name is the
// file's, for its suffix and for errors.
func NewContacts(r io.Reader, name string, opts ContactOptions) (*Contacts, error) {
	kind, errs := kindOf(name, opts.Format, opts.MaxLine)
	if opts.FromLine < 0 {
		errs = append(errs, fmt.Errorf("FromLine %d is negative", opts.FromLine))
	}
	c := &Contacts{name: name, opts: opts, lines: newLines(r, cmp.Or(max(opts.MaxLine, 0), defaultMaxLine))}
	if len(errs) == 0 {
		c.next = (&contactObjects{&ndjson{lines: c.lines}}).person
		if kind == "csv" {
			rows, err := newContactRows(c.lines)
			if err != nil {
				errs = append(errs, err)
			} else {
				c.next = rows.person
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "import " + name, Code: deed.Invalid, Err: err}
	}
	return c, nil
}

// Next returns the next contact and the number of the line on which its row begins.
// After a [LineError] reading goes on; any other error ends it, and is [io.EOF] at the
// end of the file. No error has a value of the file.
func (c *Contacts) Next() (contact.Person, int, error) {
	for c.ended == nil {
		p, line, err := c.next()
		_, bad := errors.AsType[*LineError](err)
		if line < c.opts.FromLine && (err == nil || bad) {
			continue
		}
		if err == nil && len(p.Identities) == 0 {
			err, bad = &LineError{line, errors.New("it has no identity: email, phone, external_id or type:NAME")}, true
		}
		for _, i := range p.Identities {
			if wrong := i.Check(); wrong != nil && err == nil {
				err, bad = &LineError{line, wrong}, true
			}
		}
		switch {
		case bad:
			return contact.Person{}, line, err
		case err == io.EOF && c.opts.FromLine > max(c.lines.line, 1):
			c.ended = &deed.Error{Op: "import " + c.name, Code: deed.Invalid, Err: fmt.Errorf("line %d is after the end: the last is line %d", c.opts.FromLine, c.lines.line-1)}
		case err == io.EOF:
			c.ended = err
		case err != nil:
			c.ended = fmt.Errorf("import %s: line %d: %w", c.name, line, err)
		default:
			for i := range p.Identities {
				p.Identities[i].Verified = c.opts.Verified
			}
			return p, line, nil
		}
	}
	return contact.Person{}, 0, c.ended
}

// field is what a field of a row says of a contact.
type field struct {
	what fieldKind
	name string // of an identity its type, of a part of the data its key
}

type fieldKind int

const (
	unknownField fieldKind = iota
	identityField
	zoneField
	localeField
	dataField
	keyField
)

const allFields = "email, phone, external_id, type:NAME, zone, locale, data or data.KEY"

var (
	typeName  = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	fieldName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.: -]{0,62}$`)
)

func fieldOf(name string) field {
	switch name {
	case "email", "phone", "external_id":
		return field{identityField, name}
	case "zone":
		return field{what: zoneField}
	case "locale":
		return field{what: localeField}
	case "data":
		return field{what: dataField}
	}
	if typ, ok := strings.CutPrefix(name, "type:"); ok && typeName.MatchString(typ) {
		return field{identityField, typ}
	}
	if key, ok := strings.CutPrefix(name, "data."); ok && key != "" {
		return field{keyField, key}
	}
	return field{}
}

// called names a field that is none, unless what should be its name may be a value.
func called(name string) string {
	if fieldName.MatchString(name) {
		return fmt.Sprintf(" called %q", name)
	}
	return ""
}

// contactRows are those of a CSV file.
type contactRows struct {
	csv    *csvFile
	fields []field
}

func newContactRows(l *lines) (*contactRows, error) {
	rows := &contactRows{csv: &csvFile{lines: l}}
	if err := rows.csv.readHeader(); err != nil {
		return nil, err
	}
	header := rows.csv.header
	var errs []error
	kinds := map[fieldKind]bool{}
	for i, name := range header {
		f := fieldOf(name)
		switch first := slices.Index(header, name); {
		case f.what == unknownField:
			errs = append(errs, fmt.Errorf("header: field %d%s is none of %s", i+1, called(name), allFields))
		case first < i:
			errs = append(errs, fmt.Errorf("header: field %d%s is the same as field %d", i+1, called(name), first+1))
		}
		kinds[f.what] = true
		rows.fields = append(rows.fields, f)
	}
	switch {
	case len(kinds) == 1 && kinds[unknownField]: // it may be a row, whose values nobody is shown
		return nil, fmt.Errorf("header: no field of the first row is one of %s", allFields)
	case kinds[dataField] && kinds[keyField]:
		errs = append(errs, errors.New("header: data and data.KEY do not go together"))
	case !kinds[identityField]:
		errs = append(errs, errors.New("header: no field is an identity: email, phone, external_id or type:NAME"))
	}
	return rows, errors.Join(errs...)
}

func (r *contactRows) person() (p contact.Person, line int, err error) {
	row, line, err := r.csv.row()
	if err != nil {
		return p, line, err
	}
	if len(row) != len(r.fields) {
		return p, line, &LineError{line, fmt.Errorf("%d fields, but the header has %d", len(row), len(r.fields))}
	}
	var data object
	for i, f := range r.fields {
		value := row[i]
		if strings.Trim(value, " \t\r\n") == "" {
			continue
		}
		switch f.what {
		case identityField:
			p.Identities = append(p.Identities, contact.Identity{Type: f.name, Value: value})
		case zoneField:
			p.Zone = strings.TrimSpace(value)
		case localeField:
			p.Locale = strings.TrimSpace(value)
		case dataField:
			p.Data = []byte(value)
		case keyField:
			data.add(f.name, appendJSON(nil, value))
		}
	}
	if p.Data == nil {
		p.Data = data.json()
	}
	return p, line, nil
}

// object is a JSON object that is being written.
type object []byte

func (o *object) add(key string, value []byte) {
	sep := byte(',')
	if len(*o) == 0 {
		sep = '{'
	}
	*o = append(append(appendJSON(append(*o, sep), key), ':'), value...)
}

// json is the object, or nil if it has nothing.
func (o object) json() []byte {
	if len(o) == 0 {
		return nil
	}
	return append(o, '}')
}

// contactObjects are the lines of an NDJSON file.
type contactObjects struct{ file *ndjson }

func (r *contactObjects) person() (p contact.Person, line int, err error) {
	text, _, line, err := r.file.next(nil)
	if err != nil {
		return p, line, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return p, line, &LineError{line, errors.New("not a JSON object")}
	}
	var data object
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		if bytes.Equal(raw, []byte("null")) {
			continue
		}
		f := fieldOf(name)
		if f.what == keyField {
			data.add(f.name, raw)
			continue
		}
		if err := take(&p, f, raw); err != nil {
			return p, line, &LineError{line, fmt.Errorf("a field%s %w", called(name), err)}
		}
	}
	if p.Data != nil && data != nil {
		return p, line, &LineError{line, errors.New("data and data.KEY do not go together")}
	}
	if p.Data == nil {
		p.Data = data.json()
	}
	return p, line, nil
}

// take has p say what a field of an object says.
func take(p *contact.Person, f field, raw json.RawMessage) (err error) {
	switch f.what {
	case unknownField:
		return fmt.Errorf("is none of %s", allFields)
	case dataField:
		p.Data = raw
	case zoneField:
		p.Zone, err = scalar(raw)
	case localeField:
		p.Locale, err = scalar(raw)
	case identityField:
		list := []json.RawMessage{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &list); err != nil {
				return errors.New("is no array")
			}
		}
		for _, one := range list {
			value, err := scalar(one)
			if err != nil {
				return err
			}
			if value != "" {
				p.Identities = append(p.Identities, contact.Identity{Type: f.name, Value: value})
			}
		}
	}
	return err
}
