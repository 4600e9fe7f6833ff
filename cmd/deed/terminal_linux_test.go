package main

import (
	"os"
	"strings"
	"testing"
)

// A file's bytes do not go to a terminal, which they may steer.
func TestContentShow_NotToATerminal(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	defer terminal.Close()
	var errs strings.Builder
	if code := execute(t.Context(), []string{"content", "show", strings.Repeat("0", 64), "--save", "-"}, strings.NewReader(""), terminal, &errs); code != exitUsage ||
		!strings.Contains(errs.String(), "--save - is a terminal, which a file's bytes may steer: redirect it, or name a file") {
		t.Errorf("exit status %d: %s", code, &errs)
	}
}
