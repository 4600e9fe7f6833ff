package contact

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Problem is why [Upsert] would refuse a person.
type Problem struct {
	N    int    // which person, counting from 1
	Text string // it names the field, and never repeats a value
}

// Check says which persons [Upsert] would refuse for what they are, one problem each,
// in their order: one bad person has a whole call refused, and who reads persons from
// a file leaves it out. What a contact's data are together with those that it has
// already is seen by Upsert alone. Nothing is stored.
func Check(ctx context.Context, db DB, persons ...Person) ([]Problem, error) {
	const op = "check contacts"
	var list []Problem
	var a columns
	var at []int32 // those that the database is asked about
	for i := range persons {
		if text := persons[i].problem(); text != "" {
			list = append(list, Problem{i + 1, text})
			continue
		}
		at = append(at, int32(i+1))
	}
	for i, n := range at {
		a.add(&persons[n-1], i+1, len(at))
	}
	rows, err := db.Query(ctx, query.Check, a.of, a.types, a.values, a.data, a.zones, a.locales)
	if err != nil {
		return nil, wrap(op, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Problem])
	if err != nil {
		return nil, wrap(op, err)
	}
	for _, p := range found {
		p.N = int(at[p.N-1])
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Problem) int { return a.N - b.N })
	return list, nil
}

// problem is what is wrong with p that can be told without the database, most of it
// what would have a statement fail without saying for whom.
func (p *Person) problem() string {
	if len(p.Identities) == 0 {
		return "it has no identity"
	}
	text := utf8.Valid(p.Data)
	for _, i := range p.Identities {
		text = text && utf8.ValidString(i.Value) && utf8.ValidString(i.Type)
		if strings.Contains(i.Value, "\x00") {
			return printable(i.Type) + ": it has a character that nobody sees"
		}
	}
	switch {
	case !text:
		return "data or an identity are not UTF-8"
	case !isText(p.Zone):
		return "zone is not the name of a time zone, such as Europe/Berlin"
	case !isText(p.Locale):
		return "locale is not a language tag, such as de or pt-BR"
	case len(p.Data) > 0:
		return dataProblem(p.Data)
	}
	return ""
}

// isText reports whether PostgreSQL takes s for a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// printable is a type's name, however little of a name it is.
func printable(name string) string {
	if name == "" || !isText(name) || len(name) > 63 {
		return "identity"
	}
	return name
}

const (
	mostDepth    = 1000  // arrays and objects in each other
	mostDigits   = 65536 // bytes of numbers, as PostgreSQL writes them
	mostEvidence = 8192  // of those in a word's evidence
)

// dataProblem says why data are no object that jsonb can hold and give back.
func dataProblem(data []byte) string {
	if problem := jsonbProblem(data, mostDigits); problem != "" {
		return "data have " + problem
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) || !json.Valid(data) {
		return "data must be a JSON object"
	}
	return ""
}

// evidenceProblem says the same of what shows a word. That it is an object, and not too much,
// is asked by the database.
func evidenceProblem(evidence []byte) string {
	if len(evidence) == 0 {
		return ""
	}
	if !utf8.Valid(evidence) || !json.Valid(evidence) {
		return "evidence is not JSON"
	}
	if problem := jsonbProblem(evidence, mostEvidence); problem != "" {
		return "evidence has " + problem
	}
	return ""
}

// jsonbProblem says what a JSON text has that jsonb cannot hold and give back: what
// takes a few bytes to write can take a server's stack, or its memory.
func jsonbProblem(data []byte, mostDigits int) string {
	depth, digits := 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			end, problem := stringEnd(data, i+1)
			if problem != "" {
				return problem
			}
			i = end
		case c == '{' || c == '[':
			if depth++; depth > mostDepth {
				return fmt.Sprintf("over %d arrays and objects in each other", mostDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("0123456789+-.eE", data[end]) >= 0 {
				end++
			}
			if digits += digitsOf(string(data[i:end])); digits > mostDigits {
				return fmt.Sprintf("numbers with so many digits that they are over the limit of %d bytes", mostDigits)
			}
			i = end - 1
		}
	}
	return ""
}

// stringEnd is where a string's closing quote is, or what jsonb cannot hold of it.
func stringEnd(data []byte, i int) (end int, problem string) {
	high := false // the escape before was the first half of a surrogate pair
	for ; i < len(data); i++ {
		var code uint64
		escape := data[i] == '\\' && i+6 <= len(data) && data[i+1] == 'u'
		if escape {
			code, _ = strconv.ParseUint(string(data[i+2:i+6]), 16, 16)
		}
		low := escape && code >= 0xdc00 && code < 0xe000
		switch {
		case high != low:
			return i, "half of a surrogate pair, which is no character"
		case escape && code == 0 && string(data[i+2:i+6]) == "0000":
			return i, `the escape \u0000, which PostgreSQL's jsonb cannot hold`
		case data[i] == '"':
			return i, ""
		}
		high = escape && code >= 0xd800 && code < 0xdc00
		switch {
		case escape:
			i += 5
		case data[i] == '\\':
			i++
		}
	}
	return i, ""
}

// digitsOf is about how many bytes a number has as PostgreSQL writes it, if it is
// written with very many digits, as deed.json_digits counts them.
func digitsOf(number string) int {
	mantissa, exponent, has := strings.Cut(strings.ToLower(number), "e")
	if !has && len(number) <= 32 {
		return 0
	}
	const vast = 131072
	exp := 0
	if has {
		var err error
		if exp, err = strconv.Atoi(exponent); err != nil || exp > 20_000 || exp < -16_000 {
			return vast
		}
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	whole = strings.TrimLeft(whole, "0")
	size := len(whole) // digits before the point
	if whole == "" {
		size = len(strings.TrimLeft(fraction, "0")) - len(fraction)
	}
	if strings.Trim(whole+fraction, "0") == "" {
		size, exp = 0, min(exp, 0)
	}
	scale := max(len(fraction)-exp, 0)
	switch {
	case size+exp > 310:
		return vast
	case scale > 400:
		return vast / 8
	case size+exp > 32 || scale > 32:
		return 400
	}
	return 0
}
