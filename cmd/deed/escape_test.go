package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestEscaper(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\tline\n":                      "a\tline\n",
		"\x1b]0;title\x07\x1b[2J\r":      `\u001b]0;title\u0007\u001b[2J\u000d`,
		"\u009b31m\u202e\u2066\ufeff":    `\u009b31m\u202e\u2066\ufeff`,
		"caf\u00e9 \u4e2d \U0001f600":    "caf\u00e9 \u4e2d \U0001f600",
		"\u0646\u0645\u06cc\u200c\u062e": "\u0646\u0645\u06cc\u200c\u062e",
		"\x9b31m\xff":                    `\x9b31m\xff`,
		"\U000e0041":                     `\udb40\udc41`,
	} {
		for _, size := range []int{1, 2, 3, 1000} { // a character may come in pieces
			var out bytes.Buffer
			e := &escaper{to: &out}
			for rest := []byte(text); len(rest) > 0; {
				n := min(size, len(rest))
				if wrote, err := e.Write(rest[:n]); wrote != n || err != nil {
					t.Fatal(wrote, err)
				}
				rest = rest[n:]
			}
			if out.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, out.String(), want)
			}
		}
	}
	// JSON means the same as before.
	value := "a\u0085b\u202ec\U000e0041\x1b"
	var out bytes.Buffer
	if err := printJSON(&escaper{to: &out}, map[string]string{"v": value}); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["v"] != value {
		t.Errorf("%s: %q, %v", &out, back["v"], err)
	}
	if strings.ContainsFunc(out.String(), func(r rune) bool { return r > '~' }) {
		t.Errorf("the JSON has characters that a terminal heeds: %s", fmt.Sprintf("%q", out.String()))
	}
}
