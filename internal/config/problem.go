package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// problem is one thing that is wrong with a file.
type problem struct {
	file string
	line int
	path string // such as topics.orders.sink; empty for the file as a whole
	text string
}

func (p *problem) Error() string {
	if p.path == "" {
		return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.file, p.line, p.path, p.text)
}

// reader reads one file and gathers what is wrong with it.
type reader struct {
	file     string
	env      func(string) (string, bool)
	readFile func(string) ([]byte, error)
	problems []*problem

	part    string // what is being read: topics.NAME and its like, else the first part of a key's path
	lacking []lack
}

// lack is a secret that this machine or this process does not have: a matter of who needs
// that part of the file.
type lack struct {
	part string
	*problem
}

func (r *reader) problemf(line int, path, format string, args ...any) {
	r.problems = append(r.problems, &problem{file: r.file, line: line, path: path, text: fmt.Sprintf(format, args...)})
}

// lackf reports a value that is not in the file, and cannot be used.
func (r *reader) lackf(line int, path, format string, args ...any) {
	part, _, _ := strings.Cut(path, ".")
	r.lacking = append(r.lacking, lack{cmp.Or(r.part, part), &problem{file: r.file, line: line, path: path, text: fmt.Sprintf(format, args...)}})
}

func (r *reader) err() error { return inOrder(r.problems) }

// inOrder joins problems in the order of their lines.
func inOrder(problems []*problem) error {
	slices.SortStableFunc(problems, func(a, b *problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, p := range problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

// join makes the path of key inside path.
func join(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) }) {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// didYouMean proposes the one of known that is closest to a misspelt word, as
// a text to put behind a problem.
func didYouMean(word string, known []string) string {
	if best := closest(word, known); best != "" {
		return fmt.Sprintf(" (did you mean %q?)", best)
	}
	return ""
}

// closest returns the one of known that is at most a third of its letters away
// from word, or "".
func closest(word string, known []string) string {
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

// cause drops the path and the operation that the os package puts before an
// error: the texts here name the file themselves.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
