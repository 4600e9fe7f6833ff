package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/document"
)

// What is meant is looked for ten times in a file, whether it is found or not: each word is compared with all that are known.
func TestReader_DidYouMean(t *testing.T) {
	t.Parallel()
	known := []string{"charge", "mail", strings.Repeat("x", 90)}
	r := &document.Reader{}
	for word, want := range map[string]string{"chrage": "charge", "charg": "charge", "mail1": "mail", "m": "", strings.Repeat("x", 61): strings.Repeat("x", 90), strings.Repeat("x", 59): ""} {
		got := r.DidYouMean(word, known)
		if want != "" {
			want = fmt.Sprintf(" (did you mean %q?)", want)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	for range 4 {
		r.DidYouMean("unheard-of", known)
	}
	if got := r.DidYouMean("chrage", known); got != "" {
		t.Errorf("the eleventh: %q", got)
	}
}

// A section is asked for each of its keys, as a request's headers are, and each is found at once.
func TestSection_Keys(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "h%d: v\n", i)
	}
	r := &document.Reader{File: "f", Most: 3}
	s := &document.Section{Reader: r, Line: 1, Node: r.Parse([]byte(text.String()), "", "")}
	for i := 0; i < 20_000; i += 2 {
		if s.Text(fmt.Sprint("h", i)) != "v" || s.LineOf(fmt.Sprint("h", i)) != i+1 || s.Has(fmt.Sprint("g", i)) {
			t.Fatal(i)
		}
	}
	s.Done()
	if got := r.Err().Error(); strings.Count(got, "unknown key") != 3 || !strings.HasPrefix(got, "f:2: h1: unknown key") || !strings.HasSuffix(got, "\nand 9997 more problems") {
		t.Error(got)
	}
}
