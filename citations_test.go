package deed_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whatever is cited can be found: documents that the tree has, rules of the
// window protocol that docs/design.md has, files and headings that exist.
func TestCitations(t *testing.T) {
	t.Parallel()
	design := readText(t, "docs/design.md")
	foreign := regexp.MustCompile(`\b(DESIGN|CONTRACTS|STYLE|DEVELOPERS)\.md\b`)
	rule := regexp.MustCompile(`\brules? (\d+)\b`)
	link := regexp.MustCompile(`\]\(([^)\s:]+)\)`)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "bin" || d.Name() == "dist") {
			return filepath.SkipDir
		}
		ext := filepath.Ext(name)
		if d.IsDir() || name == "citations_test.go" || (ext != ".go" && ext != ".sql" && ext != ".md") {
			return nil
		}
		text := readText(t, name)
		for _, found := range foreign.FindAllString(text, -1) {
			t.Errorf("%s cites %s, which the tree does not have; docs/design.md and docs/contracts.md are what readers find", name, found)
		}
		for _, m := range rule.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(design, "\n| "+m[1]+" | ") {
				t.Errorf("%s cites rule %s, which docs/design.md does not have", name, m[1])
			}
		}
		if ext == ".md" {
			for _, m := range link.FindAllStringSubmatch(text, -1) {
				checkLink(t, name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(design, "\n"); lines > 400 {
		t.Errorf("docs/design.md has %d lines; it is read in one go only below 400", lines)
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkLink follows a link within the tree, to a heading if it names one.
func checkLink(t *testing.T, from, to string) {
	t.Helper()
	file, heading, _ := strings.Cut(to, "#")
	target := from
	if file != "" {
		target = path.Join(path.Dir(filepath.ToSlash(from)), file)
	}
	info, err := os.Stat(target)
	if err != nil {
		t.Errorf("%s links to %s, which does not exist", from, to)
		return
	}
	if heading == "" || info.IsDir() {
		return
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(readText(t, target), -1) {
		if anchor(m[1]) == heading {
			return
		}
	}
	t.Errorf("%s links to %s, whose heading does not exist", from, to)
}

// anchor is what a heading is linked by.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// The tests that decisions cite exist. A name that ends in … is of several.
func TestCitations_DecisionsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := testsDeclared(t)
	files, err := filepath.Glob("docs/decisions/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d decisions, %v", len(files), err)
	}
	for _, name := range files {
		for _, m := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)\\w+|[a-z0-9_-]+\\.txtar)`").FindAllStringSubmatch(readText(t, name), -1) {
			if !tests[m[1]] {
				t.Errorf("%s cites %s, which does not exist", name, m[1])
			}
		}
	}
}

// The files that docs/design.md sends its readers to exist.
func TestCitations_DesignNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	for _, m := range regexp.MustCompile(`\b(deed\.[a-z_]+\.sql|[a-z_/]+\.go)\b`).FindAllString(readText(t, "docs/design.md"), -1) {
		name := m
		if strings.HasSuffix(name, ".sql") {
			name = "schema/functions/" + name
		}
		if _, err := os.Stat(name); err == nil {
			continue
		}
		if _, err := os.Stat("delivery/" + name); err != nil {
			t.Errorf("docs/design.md names %s, which does not exist", m)
		}
	}
}
