package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/config"
)

// A small file stays little work, whatever its merge keys multiply.
func TestParse_MergeKeysAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("base: &base\n")
	for i := range 200 {
		fmt.Fprintf(&b, "  k%d: 1\n", i)
	}
	b.WriteString("topics:\n")
	for i := range 60 {
		fmt.Fprintf(&b, "  t%d: {<<: [*base, *base]}\n", i)
	}
	_, err := config.Parse("deed.yaml", []byte(b.String()), func(string) (string, bool) { return "", false }, nil)
	if err == nil || !strings.Contains(err.Error(), "merge keys bring in more than 10000 entries") {
		t.Errorf("got %.300v", err)
	}
}
