package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/deedhq/deed/internal/pgtest"
)

var update = flag.Bool("update", false, "write the golden shapes into the scripts")

// TestScripts runs testdata/*.txtar: the command as a process of its own on a
// database of the script's own. Beside testscript's commands there are
//
//	database [bare]     makes the database, and names it as its owner
//	as ROLE             names it as app, worker, admin or owner
//	status N deed ARG…  runs deed, which must end with that exit status
//	shape               writes the last output, JSON, to the file shape, indented
//	                    and without what no two runs share; go test -update
//	                    puts it into the script that compares it
//	sql STATEMENT       runs a statement as the owner
//	broken              says that the script breaks the tables on purpose
//	receiver            starts a webhook receiver: $HOOK answers 204, $HOOK/down
//	                    500 until "repaired"
//	repaired            makes $HOOK/down answer 204
//	refuse TYPE         makes it answer 409 to messages of that type, until "accept"
//	received N          waits until exactly N messages have been received
//	inorder             says that each key's messages were received in order
//	until STATEMENT     waits until the statement, of the owner, says true
//	held                puts the id of the delivery that waits for a person into $HELD
//	who EMAIL NAME      puts the id of the contact that has the address into $NAME
//	expand FILE…        replaces $NAME in files by environment variables
//	ndjson N FILE       writes a file of N rows with an id and a key
//	persons N FILE      writes a CSV file of N contacts, of which every third has a bad phone number
//	bombs FILE          writes lines of contacts that are made to hurt, between two good ones
func TestScripts(t *testing.T) {
	t.Parallel()
	bin := command(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		UpdateScripts:      *update,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("GORACE", noRaceSleep)
			env.Setenv("HOOK_SECRET", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
			env.Setenv("DEED_LISTEN", "127.0.0.1:0") // scripts run at the same time
			env.Values[bench{}] = &bench{t: env.T().(testing.TB)}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database":    cmdDatabase,
			"as":          cmdAs,
			"status":      cmdStatus,
			"shape":       cmdShape,
			"sql":         cmdSQL,
			"broken":      func(ts *testscript.TestScript, _ bool, _ []string) { benchOf(ts).db.Broken() },
			"receiver":    cmdReceiver,
			"repaired":    func(ts *testscript.TestScript, _ bool, _ []string) { benchOf(ts).far.repair() },
			"refuse":      cmdRefuse,
			"accept":      func(ts *testscript.TestScript, _ bool, _ []string) { benchOf(ts).far.refuse("") },
			"received":    cmdReceived,
			"inorder":     cmdInOrder,
			"until":       cmdUntil,
			"who":         cmdWho,
			"message":     cmdMessage,
			"runid":       cmdRunID,
			"planrun":     cmdPlanRun,
			"campaignrun": cmdCampaignRun,
			"expand":      cmdExpand,
			"held":        cmdHeld,
			"ndjson":      cmdNDJSON,
			"persons":     cmdPersons,
			"bombs":       cmdBombs,
		},
	})
}

// bench is what a script works with.
type bench struct {
	t   testing.TB
	db  *pgtest.DB
	far *receiver
}

func benchOf(ts *testscript.TestScript) *bench { return ts.Value(bench{}).(*bench) }

func need(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

func cmdDatabase(ts *testscript.TestScript, _ bool, args []string) {
	b := benchOf(ts)
	if slices.Equal(args, []string{"bare"}) {
		b.db = pgtest.Bare(b.t)
	} else {
		need(ts, len(args) == 0, "database [bare]")
		b.db = pgtest.New(b.t)
	}
	ts.Setenv("DEED_DATABASE_URL", b.db.URL(pgtest.Owner))
}

func cmdAs(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "as ROLE")
	ts.Setenv("DEED_DATABASE_URL", benchOf(ts).db.URL(pgtest.Role(args[0])))
}

func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, len(args) > 1 && !neg, "status N deed ARG…")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// changing are the parts of an output that no two runs share.
var changing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`"backfilled": (true|false)`), `"backfilled": "EITHER"`}, // other tests' transactions delay it
	{regexp.MustCompile(`("oldest_due_seconds": )[0-9.e-]*[1-9][0-9.e-]*`), "${1}\"SECONDS\""},
	{regexp.MustCompile(`("(age|took)_seconds": )[0-9.e-]+`), `${1}"SECONDS"`},
	{regexp.MustCompile(`("attempts": )\d+(,\s+"dead": )`), `${1}"SOME"${2}`}, // of a key that waits
	{regexp.MustCompile(`("claim": )"\d+"`), `${1}"CLAIM"`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), `127.0.0.1:PORT`},
	{regexp.MustCompile(`("go": )"[^"]+"`), `${1}"GO"`},
	{regexp.MustCompile(`"\d{4}_[a-z_]+"`), `"MIGRATION"`},
	{regexp.MustCompile(`("worker": )"[^"]+"`), `${1}"WORKER"`},
	{regexp.MustCompile(`("(?:actor|claimed_by)": )"[^"]+:\d+"`), `${1}"WORKER"`},
	{regexp.MustCompile(`("idempotency_key": )"[0-9a-f]{64}"`), `${1}"KEY"`},
}

func cmdShape(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, len(args) == 0 && !neg, "shape")
	var got bytes.Buffer
	if err := json.Indent(&got, []byte(ts.ReadFile("stdout")), "", "  "); err != nil {
		ts.Fatalf("the output is not JSON: %v", err)
	}
	text := got.String()
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.by)
	}
	ts.Check(os.WriteFile(ts.MkAbs("shape"), []byte(text), 0o600))
}

func cmdSQL(ts *testscript.TestScript, _ bool, args []string) {
	_, err := benchOf(ts).db.Pool(pgtest.Owner).Exec(context.Background(), strings.Join(args, " "))
	ts.Check(err)
}

func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	statement := strings.Join(args, " ")
	ts.Check(await(statement, func() bool {
		var yes bool
		ts.Check(benchOf(ts).db.Pool(pgtest.Owner).QueryRow(context.Background(), statement).Scan(&yes))
		return yes
	}))
}

func cmdRefuse(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "refuse TYPE")
	benchOf(ts).far.refuse(args[0])
}

func cmdInOrder(ts *testscript.TestScript, _ bool, _ []string) {
	if wrong := benchOf(ts).far.disorder(); wrong != "" {
		ts.Fatalf("%s", wrong)
	}
}

func cmdReceiver(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 0, "receiver")
	b := benchOf(ts)
	b.far = newReceiver(b.t)
	ts.Setenv("HOOK", b.far.URL)
	ts.Setenv("HOOK_ADDRESS", strings.TrimPrefix(b.far.URL, "http://"))
}

// cmdReceived also prints what was received, sorted.
func cmdReceived(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "received N")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	far := benchOf(ts).far
	if err := await(args[0]+" messages", func() bool { return far.count() >= want }); err != nil {
		ts.Fatalf("%v; there are %d", err, far.count())
	}
	if n := far.count(); n != want {
		ts.Fatalf("received %d messages, want %d", n, want)
	}
	for _, line := range far.lines() {
		fmt.Fprintln(ts.Stdout(), line)
	}
}

func cmdHeld(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 0, "held")
	b := benchOf(ts)
	ts.Setenv("HELD", pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select id::text from deed.channel_outbox where held_at is not null`))
}

func cmdWho(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 2, "who EMAIL NAME")
	b := benchOf(ts)
	ts.Setenv(args[1], pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where type = 'email' and value = $1`, args[0]))
}

func cmdMessage(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 2, "message PLATFORM_ID NAME")
	b := benchOf(ts)
	ts.Setenv(args[1], pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select id::text from deed.channel_messages where platform_message_id = $1`, args[0]))
}

func cmdRunID(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "runid NAME")
	b := benchOf(ts)
	ts.Setenv(args[0], pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select run_id::text from deed.runs`))
}

// cmdPlanRun names the run of a plan.
func cmdPlanRun(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 2, "planrun PLAN NAME")
	b := benchOf(ts)
	ts.Setenv(args[1], pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select run_id::text from deed.runs where plan_id = $1`, args[0]))
}

// cmdCampaignRun names the newest run of a campaign.
func cmdCampaignRun(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "campaignrun NAME")
	b := benchOf(ts)
	ts.Setenv(args[0], pgtest.One[string](b.t, b.db.Pool(pgtest.Owner), `select id::text from deed.campaign_runs order by id desc limit 1`))
}

func cmdExpand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

func cmdNDJSON(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 2, "ndjson N FILE")
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": %d, "origin": "K%d"}`+"\n", i+1, i%7)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

func cmdPersons(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 2, "persons N FILE")
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	b := strings.Builder{}
	b.WriteString("external_id,phone,data.plan\n")
	for i := range n {
		phone := fmt.Sprintf("+4930%07d", i)
		if i%3 == 2 {
			phone = fmt.Sprintf("030 %07d", i)
		}
		fmt.Fprintf(&b, "c%d,%s,free\n", i, phone)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

func cmdBombs(ts *testscript.TestScript, _ bool, args []string) {
	need(ts, len(args) == 1, "bombs FILE")
	many := make([]string, 10_000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	lines := []string{
		`{"external_id": "first"}`,
		`{"external_id": [` + strings.Join(many, ", ") + `]}`,
		`{"external_id": "deep", "data": {"a": ` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}}`,
		`{"external_id": "deeper", "data": {"a": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`,
		`{"external_id": "vast", "data": {"a": 1e999999999}}`,
		`{"external_id": "nul", "data": {"a": "\u0000"}}`,
		`{"external_id": "big", "data": {"a": "` + strings.Repeat("secret", 20_000) + `"}}`,
		`{"external_id": "first", "data": {"a": "` + strings.Repeat("secret", 7_000) + `"}}`,
		`{"external_id": "first", "data": {"b": "` + strings.Repeat("secret", 7_000) + `"}}`, // too much together
		`{"external_id": "last"}`,
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}
