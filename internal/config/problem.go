package config

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"

	"github.com/deedhq/deed/internal/document"
)

// reader reads one file and gathers what is wrong with it.
type reader struct {
	*document.Reader
	env      func(string) (string, bool)
	readFile func(string) ([]byte, error)

	part    string // what is being read: topics.NAME and its like, else the first part of a key's path
	lacking []lack
}

// lack is a secret that this machine or this process does not have: a matter of who needs
// that part of the file.
type lack struct {
	part string
	*document.Problem
}

// lackf reports a value that is not in the file, and cannot be used.
func (r *reader) lackf(line int, path, format string, args ...any) {
	part, _, _ := strings.Cut(path, ".")
	r.lacking = append(r.lacking, lack{cmp.Or(r.part, part), r.NewProblem(line, path, format, args...)})
}

// section is a mapping of the file, read key by key.
type section struct {
	*document.Section
	reader *reader
}

// sections calls each for the entries of a mapping of mappings.
func (s *section) sections(key string, each func(name string, sub *section)) {
	s.Sections(key, func(name string, sub *document.Section) {
		s.reader.part = sub.Path
		each(name, &section{sub, s.reader})
		s.reader.part = ""
	})
}

// sub returns the section under key, or nil if there is none.
func (s *section) sub(key string) *section {
	sub := s.Sub(key)
	if sub == nil {
		return nil
	}
	return &section{sub, s.reader}
}

// cause drops the path and the operation that the os package puts before an
// error: the texts here name the file themselves.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
