package deed_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/schema"
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
	tests := testsDeclared(t)
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

// testsDeclared are the tests that the tree has, scripts among them (dead.txtar).
func testsDeclared(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && len(path) > 1 && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir // not the tree's own, and others may be writing there
		}
		if err == nil && filepath.Ext(path) == ".txtar" {
			tests[d.Name()] = true
		}
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
	return tests
}

// The register has every published face with the signatures that the tree has,
// so that none changes by the way.
func TestRegister_Faces(t *testing.T) {
	t.Parallel()
	page := readText(t, "docs/contracts.md")
	row := func(face string) string {
		t.Helper()
		m := regexp.MustCompile(`(?m)^\| ` + face + ` \| ([1-9]\d*) \| .*$`).FindStringSubmatch(page)
		if m == nil || m[1] != "1" && !strings.Contains(m[0], "](decisions/0") {
			t.Errorf("docs/contracts.md has no row for %s with its version and, but for the first, the decision", face)
			return ""
		}
		return m[0]
	}
	const next = "if that is meant, say why under docs/decisions/ and give the face its next version"
	golden := readText(t, "schema/expected_faces.sql")
	body := regexp.MustCompile(` body [0-9a-f]{32}`)
	for _, name := range schema.Faces() {
		lines := regexp.MustCompile(`(?m)^`+name+`: .*\n`).FindAllString(golden, -1)
		sum := sha256.Sum256([]byte(body.ReplaceAllString(strings.Join(lines, ""), "")))
		if has := fmt.Sprintf("`%x`", sum[:8]); len(lines) == 0 || !strings.Contains(row(name), has) {
			t.Errorf("the signatures of the face %s are %s, docs/contracts.md has others; %s", name, has, next)
		}
	}
	events := sha256.Sum256([]byte(readText(t, "run/testdata/events.txt")))
	if has := fmt.Sprintf("`%x`", events[:8]); !strings.Contains(row("events of runs"), has) {
		t.Errorf("the events of runs are %s, docs/contracts.md has others; %s", has, next)
	}
	// What was recorded under each version is there, and replays (TestContract_R6_RecordedHistories).
	version := 0
	if _, err := fmt.Sscanf(row("events of runs"), "| events of runs | %d |", &version); err != nil {
		t.Error(err)
	}
	for v := range version + 1 {
		if list, err := filepath.Glob(fmt.Sprintf("run/testdata/histories/%d/*.ndjson", v)); err != nil || len(list) == 0 {
			t.Errorf("no history is kept of version %d of the events of runs: %v", v, err)
		}
	}
	row("deedsql")
	source := readText(t, "deedsql/deedsql.go")
	for _, m := range regexp.MustCompile(`(?m)^((?:func|type|var|const) [A-Z].*?)(?: \{)?$`).FindAllStringSubmatch(source, -1) {
		if !strings.Contains(page, "\n"+m[1]+"\n") {
			t.Errorf("docs/contracts.md lacks %q of deedsql; %s", m[1], next)
		}
	}
}

// Whoever answers for the published faces is asked about each of their files,
// and CODEOWNERS names nothing that is gone.
func TestRegister_Owners(t *testing.T) {
	t.Parallel()
	var owned []string
	for line := range strings.Lines(readText(t, "CODEOWNERS")) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, owner, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(name, "/") || !strings.Contains(owner, "@") {
			t.Errorf("CODEOWNERS: %q is not a path from the root and an owner", line)
		} else if _, err := os.Stat(name[1:]); err != nil {
			t.Errorf("CODEOWNERS: %v", err)
		}
		owned = append(owned, name)
	}
	for _, name := range []string{"/schema/faces/", "/schema/expected_faces.sql", "/deedsql/", "/run/testdata/", "/docs/contracts.md"} {
		if !slices.Contains(owned, name) {
			t.Errorf("CODEOWNERS says nothing of %s", name)
		}
	}
}

// docs/upgrade.md has the migrations beside which older programs do not run, and no
// others; the first one makes the schema.
func TestRegister_BreakingMigrations(t *testing.T) {
	t.Parallel()
	migrations, err := schema.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range migrations[1:] {
		if m.Breaking {
			want = append(want, m.Name)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\d{4}_\\w+)` \\|").FindAllStringSubmatch(readText(t, "docs/upgrade.md"), -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/upgrade.md has the breaking migrations %q, want %q", got, want)
	}
}
