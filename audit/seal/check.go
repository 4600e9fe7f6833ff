package seal

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/deedhq/deed"
)

// CheckOptions say against what an export is held.
type CheckOptions struct {
	// Keys are the public keys of those who may have signed. Required.
	Keys []ed25519.PublicKey
	// Holds are seals that are to be in it, as [Seal.Name] names them: with one that was
	// noted elsewhere it is seen that the newest ones are missing. Default: none.
	Holds []string
}

// Checked is what is proved of an export.
type Checked struct {
	Installation string     `json:"installation"`
	Seals        int64      `json:"seals"`
	Sealed       int64      `json:"sealed"`   // rows that are as they were sealed
	Erased       int64      `json:"erased"`   // of these, those of which something was erased since
	Unsealed     int64      `json:"unsealed"` // rows of which nothing is proved: no seal is for them yet
	Last         string     `json:"last"`     // [Seal.Name] of the newest one; "": there is none
	At           *time.Time `json:"at,omitempty"`
}

// Finding is the first thing that is wrong with an export.
type Finding struct {
	Row  int64 // 0: it is of no row
	Seal int64 // 0: it is of no seal
	What string
}

func (f *Finding) Error() string {
	switch {
	case f.Row != 0:
		return fmt.Sprintf("row %d %s", f.Row, f.What)
	case f.Seal != 0:
		return fmt.Sprintf("seal %d %s", f.Seal, f.What)
	}
	return f.What
}

// longest is of how many bytes a line is at most: a seal of 10,000 rows is half a million.
const longest = 16 << 20

// Check reads an export, and says whether it is as it was sealed: the error is a [*Finding] that names
// the first row that was changed, removed or added, or the first seal that was. It needs no
// database. Rows that are not sealed yet are counted, and not proved. Errors: [deed.Invalid]
// for what is no export, too.
func Check(r io.Reader, opts CheckOptions) (Checked, error) {
	c := &checker{keys: map[string]ed25519.PublicKey{}, holds: map[string]bool{}}
	for _, key := range opts.Keys {
		c.keys[KeyName(key)] = key
	}
	for _, name := range opts.Holds {
		c.holds[name] = true
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		if err := c.line(lines.Bytes()); err != nil {
			return c.Checked, invalid(err)
		}
	}
	if err := lines.Err(); err != nil {
		return c.Checked, err
	}
	return c.Checked, invalid(c.end())
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return &deed.Error{Op: "check audit log", Code: deed.Invalid, Err: err}
}

// checker reads an export line by line.
type checker struct {
	Checked
	keys  map[string]ed25519.PublicKey
	holds map[string]bool // that were not seen yet

	head     bool
	tail     *tail
	lines    int64
	seal     Seal     // the newest
	seen     int      // rows of the newest
	row      int64    // the newest
	unsealed int64    // the first row that no seal is for
	missing  *Finding // a row that did not come where it should have: removed, unless it comes later
}

func (c *checker) line(text []byte) error {
	c.lines++
	l, ok := readLine(text)
	if !ok {
		return fmt.Errorf("line %d is none of an audit log's export", c.lines)
	}
	switch {
	case c.tail != nil:
		return fmt.Errorf("line %d stands behind the end", c.lines)
	case l.Head != nil && !c.head && l.Head.Format == format:
		c.head, c.Installation = true, l.Head.Installation
		return nil
	case !c.head:
		return errors.New("it does not begin as an audit log's export does")
	case l.Seal != nil:
		return c.onSeal(*l.Seal)
	case l.Row != nil:
		return c.onRow(*l.Row)
	case l.Tail != nil:
		c.tail = l.Tail
		return nil
	}
	return fmt.Errorf("line %d is none of an audit log's export", c.lines)
}

// readLine takes a line apart that is as [Export] writes it but for blanks: what other readers of JSON could
// understand otherwise, such as a key that stands there twice, in capitals, or behind the end, is none.
func readLine(text []byte) (l line, ok bool) {
	var flat, again bytes.Buffer
	if json.Compact(&flat, text) != nil || json.Unmarshal(text, &l) != nil {
		return l, false
	}
	e := json.NewEncoder(&again)
	e.SetEscapeHTML(false)
	if e.Encode(l) != nil || !bytes.Equal(append(flat.Bytes(), '\n'), again.Bytes()) {
		return l, false
	}
	kinds := 0
	for _, is := range []bool{l.Head != nil, l.Seal != nil, l.Row != nil, l.Tail != nil} {
		if is {
			kinds++
		}
	}
	return l, kinds == 1
}

// onSeal looks whether a seal follows the one before it, all of whose rows were seen.
func (c *checker) onSeal(s Seal) error {
	if err := c.whole(); err != nil {
		return err
	}
	if c.unsealed != 0 {
		return &Finding{Row: c.unsealed, What: "was added: it stands before a seal that is not for it"}
	}
	last := c.seal
	if last.K == 0 {
		last.Hash = make([]byte, 32)
	}
	hash := s.hash(c.Installation)
	switch {
	case s.K != last.K+1:
		return &Finding{Seal: last.K + 1, What: "is not there"}
	case !bytes.Equal(s.Hash, hash[:]) || len(s.Leaves) != s.Rows*leafSize || s.Rows < 1:
		return &Finding{Seal: s.K, What: "was changed"}
	case !s.signed(c.keys):
		return &Finding{Seal: s.K, What: "is not signed with a key that was given: " + s.Key}
	case !bytes.Equal(s.Previous, last.Hash) || s.From != last.Upto:
		return &Finding{Seal: s.K, What: "does not follow the one before it"}
	}
	c.seal, c.seen = s, 0
	c.Seals, c.Last, c.At = s.K, s.Name(), &s.At
	delete(c.holds, c.Last)
	return nil
}

// onRow holds a row against its seal.
func (c *checker) onRow(r Row) error {
	if m := c.missing; m != nil {
		if r.N == m.Row {
			m.What = "does not stand in its place"
			return m
		}
		return nil // until the next seal, or the end
	}
	if r.N <= c.row {
		return &Finding{Row: r.N, What: "stands twice, or behind one that is later"}
	}
	c.row = r.N
	if err := unambiguous(json.NewDecoder(bytes.NewReader(r.Details))); err != nil {
		return &Finding{Row: r.N, What: "was changed: " + err.Error()}
	}
	if c.seen == c.seal.Rows {
		if r.N <= c.seal.Upto {
			return &Finding{Row: r.N, What: "was added"}
		}
		if c.unsealed == 0 {
			c.unsealed = r.N
		}
		c.Unsealed++
		return nil
	}
	n, want := c.seal.leafAt(c.seen)
	switch {
	case r.N < n:
		return &Finding{Row: r.N, What: "was added"}
	case r.N > n:
		c.missing = &Finding{Row: n, What: "was removed"}
		return nil
	}
	c.seen++
	hash, err := r.hash()
	if err != nil {
		return &Finding{Row: r.N, What: "was changed: " + err.Error()}
	}
	if !bytes.Equal(hash[:], want) {
		return &Finding{Row: r.N, What: "was changed"}
	}
	erased, err := r.opened()
	if err != nil {
		return &Finding{Row: r.N, What: "was changed: " + err.Error()}
	}
	if erased > 0 {
		c.Erased++
	}
	c.Sealed++
	return nil
}

// unambiguous refuses details in which a key stands twice: what is hashed has the last one's value, and other readers
// of JSON may show the first one's. [readLine] leaves them as they are.
func unambiguous(d *json.Decoder) error {
	token, err := d.Token()
	if err == io.EOF { // there are none
		return nil
	}
	open, ok := token.(json.Delim)
	if err != nil || !ok {
		return err
	}
	keys := map[string]bool{}
	for d.More() {
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := token.(string)
			if keys[key] {
				return errors.New("a key stands twice in its details")
			}
			keys[key] = true
		}
		if err := unambiguous(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// whole looks whether all rows of the newest seal were seen.
func (c *checker) whole() error {
	if c.missing != nil {
		return c.missing
	}
	if c.seen < c.seal.Rows {
		n, _ := c.seal.leafAt(c.seen)
		return &Finding{Row: n, What: "was removed"}
	}
	return nil
}

func (c *checker) end() error {
	if !c.head {
		return errors.New("it does not begin as an audit log's export does")
	}
	if err := c.whole(); err != nil {
		return err
	}
	switch {
	case c.tail == nil:
		return &Finding{What: "it was cut off: it has no end"}
	case c.tail.Seals != c.Seals:
		return &Finding{Seal: c.Seals + 1, What: "is not there"}
	case c.tail.Rows != c.Sealed+c.Unsealed:
		return &Finding{What: fmt.Sprintf("it has %d rows, and its end says %d", c.Sealed+c.Unsealed, c.tail.Rows)}
	}
	for name := range c.holds {
		return &Finding{What: fmt.Sprintf("seal %s is not in it", name)}
	}
	return nil
}
