package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// The first walk of docs/campaigns.md does what it says, with the files and the commands as
// they are printed; and so do the proofs of it, of its page and of docs/operations.md.
func TestCampaignWalk(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/campaigns.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(raw), "## A first walk\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	dir := t.TempDir()
	for _, m := range regexp.MustCompile("(?s)```[a-z]+\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(walk, -1) {
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := steps(walk)
	if len(found) != 2 || len(found[0]) != 8 || len(found[1]) != 4 {
		t.Fatalf("the walk has the commands %q: go through it here, too", found)
	}
	db := pgtest.New(t)
	env := append(os.Environ(), "PATH="+command(t)+":"+os.Getenv("PATH"), "DEED_DATABASE_URL="+db.URL(pgtest.Owner), strings.TrimPrefix(found[0][0], "export "))
	run := func(line, want string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euc", line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Fatalf("%s: %v\n%s\nwant %s", line, err, out, want)
		}
		return string(out)
	}
	id := ""
	for i, want := range []string{`mail`, `it is sound; 3 members were looked at`, `Bob, spring is here`, ``, `: deployed; 3 members`, `: was deployed before, by the same request; 3 members`, ``} {
		out := run(found[0][i+1], want)
		if strings.Contains(out, ": deployed;") {
			id = regexp.MustCompile(`[0-9a-f-]{36}`).FindString(out)
		}
	}
	for i, want := range []string{`(?m)^status +completed$`, `(?m)^sent +2$(.|\n)*^skipped +1 +suppressed`, `(?m)^3,.*cid@example.com,.*,skipped,`, `launched: each of 3 members has one delivery`} {
		run(strings.ReplaceAll(found[1][i], "RUN", id), want)
	}
	for _, c := range [][2]string{
		{"deed audit key audit.pem > audit.pub.pem; echo 'audit: {key: file:audit.pem}' > proof.yaml", `^$`},
		{"deed audit key audit.pem && false; echo $?", `audit.pem: file exists(.|\n)*2\n$`},
		{"deed audit key --public audit.pem | cmp - audit.pub.pem", `^$`},
		{"deed audit seal && false; echo $?", `deed audit key makes one(.|\n)*2\n$`},
		{"deed audit seal --config proof.yaml", `^[1-9]\d* rows were sealed\n$`},
		{"deed audit export > audit.ndjson", `are not sealed yet; newest seal: 1:[0-9a-f]{64}`},
		{"deed audit check audit.ndjson --key audit.pub.pem", `^as it was sealed: [1-9]\d* rows under 1 seal of`},
		{`sed '0,/"actor":"[^"]*"/s//"actor":"nobody"/' audit.ndjson > changed; deed audit check changed --key audit.pub.pem && false; echo $?`, `row \d+ was changed(.|\n)*2\n$`},
		{"deed audit check audit.ndjson --key audit.pem && false; echo $?", `not a public key(.|\n)*2\n$`},
		{"deed audit check audit.ndjson && false; echo $?", `give --key(.|\n)*2\n$`},
		{"deed campaign verify RUN --signed spring.proof && false; echo $?; ls", `deed audit key makes one(.|\n)*2\n(.|\n)*spring.yaml`},
		{"deed campaign verify RUN --signed spring.proof --config proof.yaml", `launched: each of 3 members has one delivery`},
		{"deed campaign verify RUN --signed spring.proof --config proof.yaml && false; echo $?", `spring.proof: file exists(.|\n)*2\n$`},
		{"deed campaign verify --check spring.proof --key audit.pub.pem", `RUN: completed, signed .*: each of 3 members has one delivery`},
		{`sed '/"n"/s/"skipped"/"sent"/' spring.proof > changed; deed campaign verify --check changed --key audit.pub.pem && false; echo $?`, `it was changed since it was signed(.|\n)*2\n$`},
	} {
		run(strings.ReplaceAll(c[0], "RUN", id), strings.ReplaceAll(c[1], "RUN", id))
	}
}
