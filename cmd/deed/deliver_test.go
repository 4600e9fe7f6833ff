package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// What is not UTF-8 is refused before anything is asked, by the flag's name: it
// could be stored as something else only.
func TestDeliver_NotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"to", "from", "subject", "text", "html", "key", "correlation-id"} {
		root := newRoot()
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs([]string{
			"deliver", "--database-url", "postgres://nowhere.invalid/d", "--to", "bob@example.org", "--subject", "x", "--text", "x",
			"--" + name, "Gr\xf6\xdfe",
		})
		err := root.Execute()
		exit, ok := errors.AsType[*exitError](err)
		if !ok || exit.code != exitUsage || !strings.Contains(err.Error(), "--"+name+" is not UTF-8") {
			t.Errorf("--%s: %v", name, err)
		}
	}
}
