package schema_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a function does must not depend on the session's
// standard_conforming_strings, under which a body is parsed: a literal with a
// backslash is written e'…', which reads the same either way.
func TestFunctions_LiteralsReadTheSameInEverySession(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("functions/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	faces, err := filepath.Glob("faces/*/*.sql")
	if err != nil || len(files) == 0 || len(faces) == 0 {
		t.Fatalf("%d functions, %d files of faces, %v", len(files), len(faces), err)
	}
	for _, name := range append(files, faces...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, literal := range plainLiterals(string(text)) {
			if strings.Contains(literal, `\`) {
				t.Errorf("%s: '%s' has a backslash: write e'…'", name, literal)
			}
		}
	}
}

// plainLiterals returns the string literals of s that are not written e'…'.
func plainLiterals(s string) (list []string) {
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], "--"):
			for i < len(s) && s[i] != '\n' {
				i++
			}
		case s[i] == '\'':
			escapes := i > 1 && strings.ContainsRune("eE", rune(s[i-1])) && strings.ContainsRune(" (,[\n", rune(s[i-2]))
			from := i + 1
			for i++; i < len(s) && s[i] != '\''; i++ {
				if escapes && s[i] == '\\' {
					i++
				}
			}
			if !escapes {
				list = append(list, s[from:min(i, len(s))])
			}
		}
	}
	return list
}
