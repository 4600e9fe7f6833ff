package deed_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// seedSection is the last column of the register: a seed's number, and the
// section; or that the clause came later.
var seedSection = regexp.MustCompile(`\| (00[0-4] [^|]+|later )\|$`)

// The register names every clause once, names only tests that exist, and names
// every test that carries a clause's number.
func TestRegister(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/contracts.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([ODCR]\d+) \|.*$`).FindAllStringSubmatch(string(text), -1) {
		if rows[m[1]] != "" {
			t.Errorf("clause %s stands twice in the register", m[1])
		}
		rows[m[1]] = m[0]
	}
	for letter, last := range map[string]int{"O": 18, "D": 13, "C": 8, "R": 16} {
		for n := 1; n <= last; n++ {
			clause := fmt.Sprintf("%s%d", letter, n)
			row := rows[clause]
			switch {
			case row == "":
				t.Errorf("clause %s is missing from the register", clause)
			case !seedSection.MatchString(row):
				t.Errorf("clause %s does not say where it stands in the seeds", clause)
			case strings.Contains(row, "| kept") && !strings.Contains(row, "`TestContract_"+clause+"_"):
				t.Errorf("clause %s is said to be kept, but no test that carries its number is named", clause)
			}
		}
	}
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
		if !tests[m[1]] {
			t.Errorf("the register names %s, which does not exist", m[1])
		}
	}
	for name := range tests {
		if strings.HasPrefix(name, "TestContract_") && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("%s is not in the register", name)
		}
	}
}
