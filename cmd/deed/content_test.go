package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// What is saved to standard output is the file, byte for byte, whatever a terminal would make of it.
func TestContentShow_SavesTheBytesAsTheyAre(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const content = "%PDF-1.7\r\n\xff\x00\x1b[2J\u202e\xe2\x82" // it ends within a character
	file := filepath.Join(t.TempDir(), "terms.pdf")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := strings.TrimSpace(deedOK(t, db.URL(pgtest.App), "content", "put", file))
	if got := deedOK(t, db.URL(pgtest.Admin), "content", "show", sum, "--save", "-"); got != content {
		t.Errorf("saved %q, want %q", got, content)
	}
}
