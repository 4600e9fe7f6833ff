package contact

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/sqlvalue"
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
	case !sqlvalue.IsText(p.Zone):
		return "zone is not the name of a time zone, such as Europe/Berlin"
	case !sqlvalue.IsText(p.Locale):
		return "locale is not a language tag, such as de or pt-BR"
	case len(p.Data) > 0:
		return dataProblem(p.Data)
	}
	return ""
}

// printable is a type's name, however little of a name it is.
func printable(name string) string {
	if name == "" || !sqlvalue.IsText(name) || len(name) > 63 {
		return "identity"
	}
	return name
}

const (
	mostDigits   = 65536 // bytes of numbers, as PostgreSQL writes them
	mostEvidence = 8192  // of those in a word's evidence
)

// dataProblem says why data are no object that jsonb can hold and give back.
func dataProblem(data []byte) string {
	if problem := sqlvalue.JSONBProblem(data, mostDigits); problem != "" {
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
	if problem := sqlvalue.JSONBProblem(evidence, mostEvidence); problem != "" {
		return "evidence has " + problem
	}
	return ""
}
