//go:build !linux

package main

import (
	"io"
	"os"
)

// terminalWidth is how many characters fit a line of w; 0 if w is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := unescaped(w).(*os.File)
	if !ok {
		return 0
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0
	}
	return 100
}
