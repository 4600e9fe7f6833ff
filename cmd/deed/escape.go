package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escaper writes text in which nothing steers a terminal or turns a line
// around: keys, types, headers and errors are whatever somebody has published.
// Control and format characters stand as \u001b does, which in a JSON string
// means the same as before; lines and tabs stay, and the joiners that scripts
// are written with.
type escaper struct {
	to      io.Writer
	wide    bool // tables are as wide as they are
	columns int  // how wide tables may be where to is no terminal; 0: as usual
	mu      sync.Mutex
	tail    []byte // guarded by mu: the beginning of a character whose end has not come
}

func (e *escaper) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := append(e.tail, p...)
	e.tail = nil
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			e.tail = append(e.tail, text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n', r == '\t', r == '\u200c', r == '\u200d':
			b.Write(text[:n])
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			writeEscaped(&b, r)
		default:
			b.Write(text[:n])
		}
		text = text[n:]
	}
	if _, err := io.WriteString(e.to, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

func writeEscaped(b *strings.Builder, r rune) {
	if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
		fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
		return
	}
	fmt.Fprintf(b, `\u%04x`, r)
}

// unescaped is where w writes to, for what steers the terminal on purpose.
func unescaped(w io.Writer) io.Writer {
	if e, ok := w.(*escaper); ok {
		return e.to
	}
	return w
}

// forFile is where w writes to, for what is a file and stays as it is in one; a terminal is
// steered by nothing in it.
func forFile(w io.Writer) io.Writer {
	if terminalWidth(w) > 0 {
		return w
	}
	return unescaped(w)
}
