package config

import (
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/signing"
)

const redacted = "redacted"

// Secret is a value that only [Secret.Reveal] shows: printing, logging and
// encoding it give "redacted".
type Secret struct {
	// A pointer, since fmt prints the bare contents of a struct that it finds
	// in an unexported field.
	value *string
}

// Reveal returns the value; "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Known is a secret that is none, such as one of deed dev's own.
func Known(value string) Secret { return Secret{&value} }

func (s Secret) String() string { return redacted }

// GoString keeps the value out of %#v.
func (s Secret) GoString() string { return redacted }

// MarshalJSON keeps the value out of JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue keeps the value out of logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// secret reads env:NAME or file:PATH. The problem of an inline secret does not
// repeat it.
func (s *section) secret(key string) Secret {
	n := s.Get(key)
	if n == nil {
		return Secret{}
	}
	return s.secretOf(n, document.Join(s.Path, key))
}

func (s *section) secretOf(n *document.Node, path string) Secret {
	if n.Kind == document.Text {
		if value, ok := s.reader.reference(n, path); ok {
			return value
		}
	}
	s.Problemf(n.Line, path, "want env:NAME or file:PATH; a secret must not stand in the file itself")
	return Secret{}
}

// secrets reads one secret, or a list of them.
func (s *section) secrets(key string) (list []Secret) {
	n := s.Get(key)
	if n == nil {
		return nil
	}
	path, items := document.Join(s.Path, key), []*document.Node{n}
	if n.Kind == document.List {
		items = n.Items
	}
	for _, item := range items {
		secret := s.secretOf(item, path)
		s.checkSigning(secret, item.Line, path)
		list = append(list, secret)
	}
	return list
}

// reference resolves env:NAME and file:PATH; ok is false for other texts. After
// a problem, and where there is no such thing, the Secret is empty.
func (r *reader) reference(n *document.Node, path string) (value Secret, ok bool) {
	if name, is := strings.CutPrefix(n.Text, "env:"); is {
		return r.variable(n, path, name), true
	}
	if file, is := strings.CutPrefix(n.Text, "file:"); is {
		return r.secretFile(n, path, file), true
	}
	return Secret{}, false
}

func (r *reader) variable(n *document.Node, path, name string) Secret {
	// What is no variable's name may be the secret itself.
	if !variableName.MatchString(name) || strings.HasPrefix(name, signing.Prefix) {
		r.Problemf(n.Line, path, "env: wants the name of an environment variable after it")
		return Secret{}
	}
	v, set := r.env(name)
	switch {
	case !set:
		r.lackf(n.Line, path, "the environment variable %s is not set", name)
		return Secret{}
	case v == "":
		r.lackf(n.Line, path, "the environment variable %s is empty", name)
		return Secret{}
	}
	return Secret{&v}
}

// secretFile reads a file without the line end that editors leave behind.
func (r *reader) secretFile(n *document.Node, path, file string) Secret {
	if file == "" || strings.HasPrefix(file, signing.Prefix) {
		r.Problemf(n.Line, path, "file: wants a path after it")
		return Secret{}
	}
	at := file
	if !filepath.IsAbs(at) {
		at = filepath.Join(filepath.Dir(r.File), at)
	}
	data, err := r.readFile(at)
	if err != nil {
		r.lackf(n.Line, path, "file %q: %s", file, cause(err))
		return Secret{}
	}
	v := strings.TrimRight(string(data), "\r\n")
	if v == "" {
		r.lackf(n.Line, path, "file %q is empty", file)
		return Secret{}
	}
	return Secret{&v}
}
