package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// All that the program prints goes through it: what somebody has published, and
// what somebody has typed.
func TestExecute_PrintsNothingThatSteersATerminal(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const key = "a\x1b[2J\u202eb"
	for _, c := range []struct {
		role pgtest.Role
		args []string
		code int
	}{
		{pgtest.App, []string{"publish", "--topic", "orders", "--key", key, "--payload", "{}"}, exitOK},
		{pgtest.Worker, []string{"messages", "--topic", "orders"}, exitOK},
		{pgtest.Worker, []string{"messages", "--topic", "orders", "--json"}, exitOK},
		{pgtest.Worker, []string{"--" + key}, exitUsage},
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{"--database-url", db.URL(c.role)}, c.args...), strings.NewReader(""), &out, &errs)
		text := out.String() + errs.String()
		if code != c.code || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%q: %d, %q", c.args, code, text)
		}
		if last := c.args[len(c.args)-1]; strings.HasPrefix(last, "--") && !strings.Contains(text, `\u001b[2J\u202eb`) {
			t.Errorf("%q does not show the key: %q", c.args, text)
		}
	}
}

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
