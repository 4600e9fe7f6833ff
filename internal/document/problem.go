package document

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Problem is one thing that is wrong with a file.
type Problem struct {
	file string
	line int
	path string // such as topics.orders.sink; empty for the file as a whole
	text string
}

func (p *Problem) Error() string {
	if p.path == "" {
		return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.file, p.line, p.path, p.text)
}

// Reader reads one file and gathers what is wrong with it.
type Reader struct {
	File     string // its name
	problems []*Problem
}

// Problemf notes a problem of a line, and of what has that path.
func (r *Reader) Problemf(line int, path, format string, args ...any) {
	r.problems = append(r.problems, r.NewProblem(line, path, format, args...))
}

// NewProblem makes a problem that is none of the file's own.
func (r *Reader) NewProblem(line int, path, format string, args ...any) *Problem {
	return &Problem{file: r.File, line: line, path: path, text: fmt.Sprintf(format, args...)}
}

// Err joins all problems noted, as [InOrder] does.
func (r *Reader) Err() error { return InOrder(r.problems) }

// InOrder joins problems in the order of their lines, each a line; nil without one.
func InOrder(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, p := range problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// Join makes the path of key inside path.
func Join(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// DidYouMean proposes the one of known that is closest to a misspelt word, as
// a text to put behind a problem.
func DidYouMean(word string, known []string) string {
	if best := Closest(word, known); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}

// Closest returns the one of known that is at most a third of its letters away
// from word, or "".
func Closest(word string, known []string) string {
	best, least := "", 0
	for _, k := range known {
		if len(word) > 2*len(k)+2 {
			continue
		}
		d := distance(word, k)
		if d <= max(1, len(k)/3) && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	before, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := previous[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(previous[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, previous, row = previous, row, before
	}
	return previous[len(b)]
}
