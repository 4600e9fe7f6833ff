package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/internal/pgtest"
)

// The test binary is the command too, under the command's name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "deed" {
		os.Exit(program())
	}
	pgtest.Main(m)
}

// noRaceSleep is a GORACE: a command that was built with the race detector
// would sleep for a second before it ends.
const noRaceSleep = "atexit_sleep_ms=0"

// command returns a folder that holds the command, for a PATH.
func command(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "deed")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually polls cond, for things that happen in another process.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	if err := await(what, cond); err != nil {
		t.Fatal(err)
	}
}

func await(what string, cond func() bool) error {
	if !pgtest.Wait(pgtest.Patience, cond) {
		return &timeoutError{what}
	}
	return nil
}

type timeoutError struct{ what string }

func (e *timeoutError) Error() string { return "waited in vain for " + e.what }

// get returns the status of a GET, 0 if there is none.
func get(url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // some tests ask once
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// Every command teaches: what it does, and an example.
func TestHelp_EveryCommandTeaches(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return // cobra's own
		}
		if cmd.Short == "" || cmd.Long == "" || !strings.Contains(cmd.Example, "  deed") {
			t.Errorf("%s: want a line, a paragraph and an example", cmd.CommandPath())
		}
		for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
			if len([]rune(line)) > 125 {
				t.Errorf("%s: a line of help has %d characters: %s", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot())
}

// A configuration that somebody names is there, whether the command needs it or not.
func TestConfig_OneThatIsNamedIsThere(t *testing.T) {
	t.Parallel()
	n := 0
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.HasSubCommands() && cmd.Name() != "dev" || cmd.Name() == "help" || cmd.Name() == "completion" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			return
		}
		n++
		args := append(strings.Fields(cmd.CommandPath())[1:], "--config", "nowhere.yaml")
		var errs strings.Builder
		for range 4 {
			errs.Reset()
			if execute(t.Context(), args, strings.NewReader(""), io.Discard, &errs) != exitUsage || !strings.Contains(errs.String(), "an argument is missing") {
				break
			}
			args = append(args, "1")
		}
		if !strings.Contains(errs.String(), "nowhere.yaml: no such file") {
			t.Errorf("%q: %s", args, &errs)
		}
	}
	visit(newRoot())
	if n < 70 {
		t.Errorf("%d commands were looked at", n)
	}
}

func TestTable_FitsATerminal(t *testing.T) {
	t.Parallel()
	header := []string{"ID", "TEXT"}
	rows := [][]string{{"12345", strings.Repeat("long\n", 30)}, {"6", "short"}}
	for _, width := range []int{0, 40, 20, 1} {
		var out strings.Builder
		if _, err := tableOf(&out, width, header, rows); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 3 {
			t.Errorf("width %d: %d lines", width, len(lines))
		}
		longest := 0
		for _, line := range lines {
			longest = max(longest, cells(line))
		}
		want := max(width, 15) // no cell is cut below 8 characters
		if width == 0 {
			want = 156 // no line ends with a blank
		}
		if longest != want {
			t.Errorf("width %d: the longest line has %d characters, want %d\n%s", width, longest, want, &out)
		}
	}
}

// Characters that take two places of a line count as two, and columns stay below each other.
func TestTable_CountsPlacesAndNotCharacters(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	header := []string{"WHO", "REASON", "N"}
	rows := [][]string{{"日本語", strings.Repeat("長い理由", 20), "1"}, {"e\u0301va", "短い", "2"}, {"ann", "short", "3"}}
	if _, err := tableOf(&out, 30, header, rows); err != nil {
		t.Fatal(err)
	}
	want := "WHO     REASON               N\n日本語  長い理由長い理由長…  1\ne\u0301va     短い                 2\nann     short                3\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// Ids of one cell that are too long for a line stand one below the other, uncut.
func TestTable_IDsAreNeverCut(t *testing.T) {
	t.Parallel()
	const one, two, three = "01a1fe76-14ee-7f1b-b119-532699ab7d4c", "01a1fe76-1a02-70aa-8d1f-0c5a1b2c3d4e", "01a1fe76-1a02-70aa-8d1f-0c5a1b2c3d4f"
	var out strings.Builder
	if _, err := tableOf(&out, 80, []string{"N", "CONTACTS", "TYPES"}, [][]string{{"2", one + " " + two + " " + three, "email phone"}, {"1", one + " " + two, "email"}}); err != nil {
		t.Fatal(err)
	}
	blank := "\n   "
	want := "N  CONTACTS                              TYPES\n2  " + one + "  email phone" + blank + two + blank + three + "\n1  " + one + "  email" + blank + two + "\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestContent(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ contentType, payload, shown, encoding string }{
		{"application/json", `{"n": 9007199254740993}`, `{"n": 9007199254740993}`, ""},
		{"application/cloudevents+json; charset=utf-8", `[1]`, `[1]`, ""},
		{"text/plain", `{"n":1}`, `"{\"n\":1}"`, ""},
		{"application/octet-stream", "\xff\x00", `"/wA="`, "base64"},
	} {
		got, encoding, err := content(test.contentType, []byte(test.payload))
		if err != nil || string(got) != test.shown || encoding != test.encoding {
			t.Errorf("%s: %s %q %v, want %s %q", test.contentType, got, encoding, err, test.shown, test.encoding)
		}
	}
}

func TestParseDatabase(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://h/d":                       "deed/" + version + " w1",
		"postgres://h/d?application_name=mine": "mine",
		"host=h dbname=d pool_max_conns=3":     "deed/" + version + " w1",
	} {
		cfg, err := parseDatabase(url, "w1")
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.ConnConfig.RuntimeParams["application_name"]; got != want {
			t.Errorf("%s: application_name %q, want %q", url, got, want)
		}
		if cfg.ConnConfig.ConnectTimeout == 0 {
			t.Errorf("%s: connecting has no deadline", url)
		}
	}
}

// What the table of variables says is a flag of a command is one.
func TestConfiguration_NamesFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	commandOf, flagOf := regexp.MustCompile("`deed ([a-z ]+)`"), regexp.MustCompile("`--([a-z-]+)`")
	looked := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if !strings.HasPrefix(line, "| `DEED_") || len(cells) < 3 {
			continue
		}
		says, _, _ := strings.Cut(cells[2], ";") // what follows is said of the command without it
		for _, command := range commandOf.FindAllStringSubmatch(says, -1) {
			cmd, _, err := newRoot().Find(strings.Fields(command[1]))
			if err != nil {
				t.Error(err)
				continue
			}
			for _, flag := range flagOf.FindAllStringSubmatch(says, -1) {
				if looked++; cmd.Flags().Lookup(flag[1]) == nil {
					t.Errorf("deed %s has no --%s", command[1], flag[1])
				}
			}
		}
	}
	if looked < 6 {
		t.Errorf("%d flags of commands are in the table", looked)
	}
}
