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

// How much is said of a file that is wrong in many places: it may be a stranger's, and read by a process that serves others.
const (
	maxProposals = 10   // words that are compared with all that are known
	maxProblem   = 1000 // bytes of a problem
	maxKey       = 250  // bytes of a key in a path: one may be as long as the file, and have many below it
)

// Reader reads one file and gathers what is wrong with it.
type Reader struct {
	File     string // its name
	Most     int    // problems that are said; of ten times as many those that come first. 0: all
	problems []*Problem
	more     int // that are only counted
	proposed int // words for which one was looked for
}

// Problemf notes a problem of a line, and of what has that path.
func (r *Reader) Problemf(line int, path, format string, args ...any) {
	if r.Most > 0 && len(r.problems) == 10*r.Most {
		r.more++
		return
	}
	r.problems = append(r.problems, r.NewProblem(line, path, format, args...))
}

// NewProblem makes a problem that is none of the file's own.
func (r *Reader) NewProblem(line int, path, format string, args ...any) *Problem {
	return &Problem{file: r.File, line: line, path: clip(path, maxProblem), text: clip(fmt.Sprintf(format, args...), maxProblem)}
}

// Err joins the problems noted, as [InOrder] does, and says how many more there are.
func (r *Reader) Err() error {
	err := InOrder(r.problems)
	if over := len(r.problems) - r.Most; r.Most > 0 && over > 0 { // they are in order now
		return errors.Join(InOrder(r.problems[:r.Most]), fmt.Errorf("and %d more problems", over+r.more))
	}
	return err
}

// InOrder joins problems in the order of their lines, each a line; nil without one.
func InOrder(problems []*Problem) error {
	slices.SortStableFunc(problems, func(a, b *Problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, p := range problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// clip shortens what a file may make as long as it is itself.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Join makes the path of key inside path.
func Join(path, key string) string {
	key = clip(key, maxKey)
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// DidYouMean proposes the one of known that is closest to a misspelt word, as
// a text to put behind a problem, for the first ten of a file: who has written more of
// them wrong has another list in mind, and each is compared with all that are known.
func (r *Reader) DidYouMean(word string, known []string) string {
	if r.proposed++; r.proposed > maxProposals {
		return ""
	}
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
		most := max(1, len(k)/3)
		if len(word) > len(k)+most || len(k) > len(word)+most {
			continue // the letters too many or too few are more than that
		}
		d := distance(word, k)
		if d <= most && (best == "" || d < least) {
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
