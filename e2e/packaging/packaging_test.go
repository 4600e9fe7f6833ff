// Package packaging tests what is in packaging/ and .goreleaser.yaml: quickly,
// without the tools that build packages. With the tag packaging, make packaging
// tests what these tools make of it.
package packaging

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/server"
)

const root = "../.."

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unmarshal(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

// program builds deed, once.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(root, ".cache", "packaging-test", "deed"))
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", path, "./cmd/deed")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func deed(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// knownTo fails unless deed has the command and its flags.
func knownTo(t *testing.T, args []string) {
	t.Helper()
	n := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") })
	if n < 0 {
		n = len(args)
	}
	out, err := exec.Command(deed(t), append(args[:n:n], "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	help := string(out)
	if !strings.Contains(help, "\n  deed "+strings.Join(args[:n], " ")) {
		t.Errorf("%q is not a command:\n%s", args[:n], help)
	}
	for _, arg := range args[n:] {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "--") && !strings.Contains(help, " "+name+" ") {
			t.Errorf("deed %s knows no %s", strings.Join(args[:n], " "), name)
		}
	}
}

// parsed is what deed makes of a deed.yaml, all of whose references resolve.
func parsed(t *testing.T, text string) *config.Config {
	t.Helper()
	resolve := func(string) (string, bool) { return "postgres://a-text-of-some-length", true }
	c, err := config.Parse("deed.yaml", []byte(text), resolve, func(string) ([]byte, error) {
		return []byte("postgres://a-text-of-some-length"), nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// The configuration that packages install says nothing until its examples are
// uncommented; then it is valid.
func TestExampleConfiguration(t *testing.T) {
	t.Parallel()
	text := read(t, "packaging", "deed.yaml")
	if v := unmarshal(t, text); len(v) != 0 {
		t.Errorf("the example would relay: %v", v)
	}
	c := parsed(t, regexp.MustCompile(`(?m)^#([a-z]|  )`).ReplaceAllString(text, "$1"))
	if len(c.Topics) != 1 || len(c.Sinks) != 1 || c.DatabaseURL == "" {
		t.Errorf("uncommented, the example is %+v", c)
	}
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := read(t, "packaging", "docker", "Dockerfile")
	m := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatal("no CMD")
	}
	var args []string
	if err := json.Unmarshal([]byte(m[1]), &args); err != nil {
		t.Fatal(err)
	}
	knownTo(t, args)
	for _, want := range []string{"NOT VERIFIED", "FROM scratch", "CGO_ENABLED=0", "-trimpath", "ca-certificates.crt", "\nUSER 65532:65532\n", "\nENTRYPOINT [\"/deed\"]\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	goVersion := regexp.MustCompile(`(?m)^go ([0-9]+\.[0-9]+)`).FindStringSubmatch(read(t, "go.mod"))
	if !strings.Contains(text, "golang:"+goVersion[1]+"-") {
		t.Errorf("the Dockerfile does not build with Go %s", goVersion[1])
	}
}

// The files that goreleaser names are there, but for those that it makes.
func TestGoreleaserNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	text := read(t, ".goreleaser.yaml")
	if v := unmarshal(t, text); v["version"] != 2 {
		t.Errorf("version %v", v["version"])
	}
	names := regexp.MustCompile(`(?:src|preinstall|postinstall|preremove|postremove): "?([A-Za-z./_-]+)`).FindAllStringSubmatch(text, -1)
	if len(names) < 15 {
		t.Errorf("only %d files", len(names))
	}
	for _, m := range names {
		if strings.HasPrefix(m[1], ".cache/") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Error(err)
		}
	}
}

func TestScriptsAreShell(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join(root, "packaging", "scripts", "*"))
	if err != nil || len(scripts) != 4 {
		t.Fatal(scripts, err)
	}
	for _, s := range scripts {
		if out, err := exec.Command("sh", "-n", s).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", s, out)
		}
	}
}

// A manual page of each command, which groff would not misread.
func TestManualPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "./man", deed(t), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"deed", "deed-relay", "deed-migrate-up", "deed-dead-redrive"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(page), ".TH "+strings.ToUpper(name)+" 1\n.SH NAME\n") {
			t.Errorf("%s begins %.60q", name, page)
		}
		for line := range strings.Lines(string(page)) {
			if macro := regexp.MustCompile(`^[.'](TH|SH|nf|fi)\b`); strings.HasPrefix(line, ".") && !macro.MatchString(line) {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
}

const chart = "packaging/helm/deed"

func templates(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, chart, "templates", "*"))
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// at follows a path of keys.
func at(v any, path ...string) (any, bool) {
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

func TestChart(t *testing.T) {
	t.Parallel()
	meta := unmarshal(t, read(t, chart, "Chart.yaml"))
	for _, key := range []string{"apiVersion", "name", "version", "appVersion", "kubeVersion"} {
		if s, _ := meta[key].(string); s == "" {
			t.Errorf("Chart.yaml has no %s", key)
		}
	}
	values := unmarshal(t, read(t, chart, "values.yaml"))
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\.Values((?:\.[A-Za-z_]+)+)`).FindAllStringSubmatch(templates(t), -1) {
		path := strings.Split(m[1][1:], ".")
		used[path[0]] = true
		if _, ok := at(values, path...); !ok && m[1] != ".config.database_url" {
			t.Errorf("a template uses .Values%s, which values.yaml lacks", m[1])
		}
	}
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, chart, "values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	for key := range values {
		if !used[key] {
			t.Errorf("no template uses %s", key)
		}
	}
	covers(t, "", values, schema)
	sets, err := filepath.Glob(filepath.Join(root, chart, "ci", "*.yaml"))
	if err != nil || len(sets) != 4 {
		t.Fatal(sets, err)
	}
	for _, set := range sets {
		covers(t, filepath.Base(set)+": ", unmarshal(t, read(t, chart, "ci", filepath.Base(set))), schema)
	}
}

// covers fails where the schema of an object would refuse a key.
func covers(t *testing.T, path string, values, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	for key, v := range values {
		sub, ok := properties[key].(map[string]any)
		if !ok {
			if schema["additionalProperties"] == false {
				t.Errorf("values.schema.json lacks %s%s", path, key)
			}
			continue
		}
		if m, ok := v.(map[string]any); ok {
			covers(t, path+key+".", m, sub)
		}
	}
}

// The chart starts the program as the program wants it, and asks for what it
// serves.
func TestChart_FitsTheProgram(t *testing.T) {
	t.Parallel()
	text := templates(t)
	var args []string
	block := regexp.MustCompile(`(?m)^          args:\n((?:            - .*\n)+)`).FindStringSubmatch(text)
	if block == nil {
		t.Fatal("no args")
	}
	for line := range strings.Lines(block[1]) {
		args = append(args, strings.TrimPrefix(strings.TrimSpace(line), "- "))
	}
	knownTo(t, args)
	knownTo(t, []string{"migrate", "up"})
	metrics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	h := server.Handler(func(context.Context) error { return nil }, metrics)
	paths := regexp.MustCompile(`path: (/[a-z]+)`).FindAllStringSubmatch(text, -1)
	if len(paths) != 3 {
		t.Errorf("paths %v", paths)
	}
	for _, m := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", m[1], nil))
		if w.Code != 200 {
			t.Errorf("a relay answers %s with %d", m[1], w.Code)
		}
	}
}

// A panic ends a Go program with status 2, as a wrong configuration ends deed.
// With the unit's GOTRACEBACK it ends with a signal instead, and is restarted.
func TestRelay_PanicIsNoUsageError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "deed.yaml")
	if err := os.WriteFile(file, []byte("topics: {orders: {sink: out}}\nsinks: {out: {type: print}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	setting := regexp.MustCompile(`(?m)^Environment=(GOTRACEBACK=.*)$`).FindStringSubmatch(read(t, unit))
	if setting == nil {
		t.Fatal("the unit sets no GOTRACEBACK")
	}
	// Nothing listens at the database's port: the relay waits for it.
	for _, test := range []struct {
		env    string
		status string
	}{{"GOTRACEBACK=single", "exit status 2"}, {setting[1], "signal: aborted"}} {
		cmd := exec.Command(deed(t), "relay", "--config", file, "--listen", "127.0.0.1:0", "--database-url", "postgres://127.0.0.1:1/none")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), test.env)
		var log waiter
		log.want, log.seen = "will try again", make(chan struct{})
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-log.seen:
		case <-time.After(pgtest.Patience):
			t.Errorf("the relay does not wait for its database")
		}
		if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil { // Go's run time ends as in a panic
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil || !strings.HasPrefix(err.Error(), test.status) {
			t.Errorf("%s: %v, want %s", test.env, err, test.status)
		}
	}
}

// waiter closes seen when want was written.
type waiter struct {
	text string
	want string
	seen chan struct{}
	once sync.Once
}

func (w *waiter) Write(b []byte) (int, error) {
	w.text += string(b)
	if strings.Contains(w.text, w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(b), nil
}

const unit = "packaging/systemd/deed-relay.service"

func TestUnit_FitsTheProgram(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/deed (.*)$`).FindStringSubmatch(read(t, unit))
	if m == nil {
		t.Fatal("no ExecStart")
	}
	knownTo(t, strings.Fields(m[1]))
}
