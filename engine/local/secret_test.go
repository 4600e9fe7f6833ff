package local_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// canary is a secret's value; JSON writes it in another way.
const canary = `canary-<7f"3a>-psp`

// pin is one that is only looked for as a whole value.
const pin = "us"

type vault map[string]string

func (v vault) Resolve(_ context.Context, refs []string, _ tenant.ID, _ string) (map[string]string, error) {
	found := map[string]string{}
	for _, r := range refs {
		found[r] = v[r]
	}
	return found, nil
}

// safeLog is a log that many write to.
type safeLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// count is how often it says what.
func (l *safeLog) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.out.String(), what)
}

// attach makes an artifact with a signature in its URI.
func attach(ctx context.Context, kind, signature string) error {
	return run.Attach(ctx, run.Artifact{Kind: kind, URI: "https://files.example/report?signature=" + signature})
}

// inJSON is a body with value in it.
func inJSON(value string) string {
	text, _ := json.Marshal(map[string]string{"key": value}) // of texts
	return string(text)
}

// In whatever way a step tells a secret, it fails for good, and the value is in no table and in no line of the log.
func TestContract_R9_NoSecretIsStored(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	log := &safeLog{}
	secret := func(ctx context.Context) string { return run.Secret(ctx, "key") }
	ways := map[string]func(context.Context) (any, error){
		"output": func(ctx context.Context) (any, error) { return secret(ctx), nil },
		"part":   func(ctx context.Context) (any, error) { return "Bearer " + secret(ctx) + "!", nil },
		"nested": func(ctx context.Context) (any, error) { return map[string]any{"a": []any{1, secret(ctx)}}, nil },
		"key":    func(ctx context.Context) (any, error) { return map[string]any{secret(ctx): 1}, nil },
		"short":  func(ctx context.Context) (any, error) { return map[string]any{"pin": run.Secret(ctx, "pin")}, nil },
		"error":  func(ctx context.Context) (any, error) { return nil, errors.New("refused: " + secret(ctx)) },
		"code": func(ctx context.Context) (any, error) {
			return nil, &run.Failure{Code: secret(ctx), Err: errors.New("no")}
		},
		"far":   func(ctx context.Context) (any, error) { return nil, errors.New(strings.Repeat("x", 990) + secret(ctx)) },
		"skip":  func(ctx context.Context) (any, error) { return nil, run.Skip("not with " + secret(ctx)) },
		"panic": func(ctx context.Context) (any, error) { panic(secret(ctx)) },
		// A body of JSON that is told of, and what %q, strconv and net/url say of a text.
		"escaped error": func(ctx context.Context) (any, error) { return nil, errors.New("refused: " + inJSON(secret(ctx))) },
		"escaped skip":  func(ctx context.Context) (any, error) { return nil, run.Skip("not with " + inJSON(secret(ctx))) },
		"escaped panic": func(ctx context.Context) (any, error) { panic("no: " + inJSON(secret(ctx))) },
		"quoted error": func(ctx context.Context) (any, error) {
			return nil, fmt.Errorf("refused: %q", run.Secret(ctx, "lines"))
		},
		"quoted twice": func(ctx context.Context) (any, error) { return nil, fmt.Errorf("refused: %q", inJSON(secret(ctx))) },
		"no number": func(ctx context.Context) (any, error) {
			_, err := strconv.Atoi(run.Secret(ctx, "lines"))
			return nil, err
		},
		"URL": func(ctx context.Context) (any, error) {
			return nil, &url.Error{Op: "Get", URL: "https://psp.example/?key=" + url.QueryEscape(run.Secret(ctx, "lines")) + "&part=%", Err: io.EOF}
		},
		"inner escaped error": func(ctx context.Context) (any, error) {
			return run.Step(ctx, "i", func(ctx context.Context) (string, error) { return "", errors.New(inJSON(secret(ctx))) })
		},
		"inner output": func(ctx context.Context) (any, error) {
			return run.Step(ctx, "i", func(ctx context.Context) (string, error) { return secret(ctx), nil })
		},
		"inner error": func(ctx context.Context) (any, error) {
			return run.Step(ctx, "i", func(ctx context.Context) (string, error) { return "", errors.New(secret(ctx)) })
		},
		"inner panic": func(ctx context.Context) (any, error) {
			return run.Step(ctx, "i", func(ctx context.Context) (string, error) { panic(errors.New(secret(ctx))) })
		},
		"inner name": func(ctx context.Context) (any, error) {
			return run.Step(ctx, run.Named("i", "canary-7f3a-psp"), func(ctx context.Context) (string, error) { return "", nil })
		},
		"inner name that is escaped": func(ctx context.Context) (any, error) {
			return run.Step(ctx, run.Named("i", run.Secret(ctx, "slashed")), func(ctx context.Context) (string, error) { return "", nil })
		},
		"line": func(ctx context.Context) (any, error) {
			return nil, errors.New("refused: " + strings.TrimSpace(run.Secret(ctx, "line")))
		},
		"artifact": func(ctx context.Context) (any, error) {
			return nil, attach(ctx, "report", url.QueryEscape(secret(ctx)))
		},
		"artifact kind": func(ctx context.Context) (any, error) { return nil, attach(ctx, run.Secret(ctx, "named"), "") },
		"inner artifact": func(ctx context.Context) (any, error) {
			return run.Step(ctx, "i", func(ctx context.Context) (string, error) { return "", attach(ctx, "report", run.Secret(ctx, "named")) })
		},
		"tx": func(ctx context.Context) (any, error) {
			return nil, run.Tx(ctx, "i", func(ctx context.Context, tx pgx.Tx) error { return errors.New(secret(ctx)) })
		},
	}
	handlers := []local.Handler{
		// What only has a short one in it, or says it to the log, has told nothing.
		local.Step("fine", func(ctx context.Context, _ nothing) (string, error) {
			run.Log(ctx).With("token", secret(ctx)).Warn("with "+secret(ctx), "in", map[string]string{"a": secret(ctx)}, slog.Group("g", "b", secret(ctx)), "bytes", []byte(secret(ctx)), "raw", json.RawMessage(secret(ctx)))
			run.Log(ctx).Warn("sent "+inJSON(secret(ctx)), "body", inJSON(secret(ctx)), "bytes", []byte(inJSON(secret(ctx))), "quoted", strconv.Quote(run.Secret(ctx, "lines")), "error", errors.New(inJSON(secret(ctx))))
			return "status", nil
		}),
	}
	for name, way := range ways {
		handlers = append(handlers, local.Step(name, func(ctx context.Context, _ nothing) (any, error) { return way(ctx) }))
	}
	steps := `fine: {kind: go, handler: fine, secrets: {key: "secret://psp", pin: "secret://pin", lines: "secret://lines"}}`
	for name := range ways {
		steps += fmt.Sprintf(`, %q: {kind: go, handler: %q, secrets: {key: "secret://psp", pin: "secret://pin", named: "secret://named", slashed: "secret://slashed", line: "secret://line", lines: "secret://lines"}, retry: {attempts: 3, backoff: 1ms}}`, strings.ReplaceAll(name, " ", "_"), name)
	}
	put(t, db, `{plan: p, version: "1", steps: {`+steps+`}}`)
	serve(t, db, local.Options{
		Handlers: handlers, Secrets: vault{"secret://psp": canary, "secret://pin": pin, "secret://named": "canary-7f3a-psp", "secret://slashed": "canary/7f3a/psp", "secret://line": "canary-of-a-line\n", "secret://lines": "-----BEGIN KEY-----\nMIIC+cän\aary/3a\x01\n-----END KEY-----\n"},
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	for name := range ways {
		want(t, name, errorOf(t, db, id, strings.ReplaceAll(name, " ", "_")), "SECRET_LEAK")
	}
	want(t, "steps that are fine", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(step_id, ' ') from deed.run_log where event_type = 'StepCompleted'`), "fine")
	log.mu.Lock()
	text := log.out.String()
	log.mu.Unlock()
	has(t, text, "(secret)")
	for _, part := range []string{"canary-<7f", "canary-7f3a", "-psp", "canary%", "canary-%", "canary-of", "MIIC"} {
		if strings.Contains(text, part) {
			t.Errorf("the log has %q: %s", part, text)
		}
		canaryIn(t, db, part)
	}
}

// canaryIn looks for a text in all tables.
func canaryIn(t testing.TB, db *pgtest.DB, part string) {
	t.Helper()
	rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `select c.oid::regclass::text from pg_class c where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p')`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 40 {
		t.Fatal(len(tables), err)
	}
	for _, table := range tables {
		n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from `+table+` t where position($1 in t::text) > 0 or position($2 in t::text) > 0`, part, hex.EncodeToString([]byte(part)))
		if n > 0 {
			t.Errorf("%d rows of %s have %q", n, table, part)
		}
	}
}

// A function gets its secrets by name, in its inner steps too; its plan has the references, and whatever it tells of a value is stored nowhere.
func TestContract_R9_SecretsOfFunctions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	log := &safeLog{}
	const value = "canary-of-functions-7f3a"
	policy := local.Policy{Secrets: map[string]string{"key": "secret://psp"}, Attempts: 3, Backoff: time.Millisecond}
	_, stop := serve(t, db, local.Options{
		Secrets: vault{"secret://psp": value}, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Handlers: []local.Handler{
			local.Func("keeps", 1, func(ctx context.Context, _ nothing) (bool, error) {
				run.Log(ctx).Warn("with " + run.Secret(ctx, "key"))
				inner, err := run.Step(ctx, "inner", func(ctx context.Context) (bool, error) { return run.Secret(ctx, "key") == value, nil })
				return inner && run.Secret(ctx, "key") == value && run.Secret(ctx, "other") == "", err
			}).With(policy),
			local.Func("returns", 1, func(ctx context.Context, _ nothing) (string, error) { return "Bearer " + run.Secret(ctx, "key"), nil }).With(policy),
			local.Func("fails", 1, func(ctx context.Context, _ nothing) (nothing, error) {
				return nil, errors.New("refused: " + run.Secret(ctx, "key"))
			}).With(policy),
			local.Func("panics", 1, func(ctx context.Context, _ nothing) (nothing, error) { panic(run.Secret(ctx, "key")) }).With(policy),
			local.Func("tells", 1, func(ctx context.Context, _ nothing) (nothing, error) {
				_, err := run.Step(ctx, "inner", func(ctx context.Context) (string, error) { return run.Secret(ctx, "key"), nil })
				return nil, err
			}).With(policy),
		},
	})
	for name, code := range map[string]string{"keeps": "", "returns": "SECRET_LEAK", "fails": "SECRET_LEAK", "panics": "SECRET_LEAK", "tells": "SECRET_LEAK"} {
		s, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: name, ID: "1"})
		if err != nil {
			t.Fatal(err)
		}
		want(t, name, ended(t, db, s.ID), map[bool]string{true: "COMPLETED", false: "FAILED"}[code == ""])
		want(t, name, errorOf(t, db, s.ID, "main"), code)
	}
	stop()
	want(t, "whether the function knew its secret", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select (event_data -> 'output')::bool from deed.run_log where step_id = 'main' and event_type = 'StepCompleted'`), true)
	stored, err := plan.Load(t.Context(), db.Pool(pgtest.App), nil, "keeps", "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	has(t, string(stored.Body()), `"secrets":{"key":"secret://psp"}`)
	canaryIn(t, db, "canary-of")
	has(t, log.out.String(), "(secret)")
	if strings.Contains(log.out.String(), "canary-of") {
		t.Errorf("the log has it: %s", log.out.String())
	}

	for what, c := range map[string]struct {
		secrets map[string]string
		with    run.Secrets
		code    deed.Code
		said    string
	}{
		"a value in place of a reference":    {map[string]string{"key": value}, vault{}, deed.Invalid, "a reference such as secret://psp"},
		"a name that is none":                {map[string]string{"a key": "secret://psp"}, vault{}, deed.Invalid, "a secret's name"},
		"nothing to resolve them with":       {policy.Secrets, nil, deed.Invalid, "nothing to resolve them with"},
		"the same version with other ones":   {map[string]string{"key": "secret://other"}, vault{}, deed.Conflict, "keeps"},
		"the same version with none of them": {nil, vault{}, deed.Conflict, "keeps"},
	} {
		h := local.Func("keeps", 1, ship).With(local.Policy{Secrets: c.secrets, Attempts: 3, Backoff: time.Millisecond})
		_, err := local.New(t.Context(), db.Pool(pgtest.Worker), local.Options{Handlers: []local.Handler{h}, Secrets: c.with})
		if deed.CodeOf(err) != c.code || !strings.Contains(fmt.Sprint(err), c.said) || strings.Contains(fmt.Sprint(err), value) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A secret is its tenant's and its environment's, and is read anew at each attempt.
func TestContract_R9_SecretsAreTheTenantsAndTheEnvironments(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("of all\n")
	other := tenant.ID{9}
	sources := run.SecretSources{
		{Ref: "secret://psp", From: "file:" + file},
		{Ref: "secret://psp", Environment: "test", From: "file:" + file + ".test"},
		{Ref: "secret://psp", Tenant: &other, From: "file:" + file + ".other"},
		{Ref: "secret://own", Tenant: &other, From: "file:" + file},
		{Ref: "secret://inline", From: "sk_live_canary"},
		{Ref: "secret://unset", From: "env:DEED_TEST_UNSET"},
	}
	for suffix, text := range map[string]string{".test": "of test", ".other": "of the other"} {
		if err := os.WriteFile(file+suffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ref, environment string
		owner            tenant.ID
		value            string
	}{
		{"secret://psp", "default", tenant.ID{}, "of all"},
		{"secret://psp", "test", tenant.ID{}, "of test"},
		{"secret://psp", "test", other, "of the other"},
		{"secret://own", "default", other, "of all"},
		{"secret://own", "default", tenant.ID{}, ""},
		{"secret://inline", "default", tenant.ID{}, ""},
		{"secret://unset", "default", tenant.ID{}, ""},
		{"secret://none", "default", tenant.ID{}, ""},
	} {
		got, err := sources.Resolve(t.Context(), []string{c.ref}, c.owner, c.environment)
		if got[c.ref] != c.value || (err == nil) != (c.value != "") {
			t.Errorf("%+v: %q, %v", c, got[c.ref], err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("the error repeats what may be the value: %v", err)
		}
	}

	db := pgtest.New(t)
	var mu sync.Mutex
	var got []string
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, secrets: {key: "secret://psp"}, retry: {attempts: 2, backoff: 1ms}}, b: {kind: go, handler: b, secrets: {key: "secret://own"}, after: [a]}}}`)
	serve(t, db, local.Options{Secrets: sources, Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, run.Secret(ctx, "key")+"/"+run.Secret(ctx, "none"))
			write("a new one")
			if len(got) == 1 {
				return nil, fail("AGAIN")
			}
			return nil, nil
		}),
		local.Step("b", func(context.Context, nothing) (nothing, error) {
			t.Error("it was called without its secret")
			return nil, nil
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	mu.Lock()
	defer mu.Unlock()
	want(t, "what a got", fmt.Sprint(got), "[of all/ a new one/]")
	want(t, "why b has failed", errorOf(t, db, id, "b"), "SECRET_UNRESOLVED")
}

// A request has secrets in its headers and its body, and they are stored nowhere; what the other end repeats of them is a leak.
func TestContract_R9_SecretsOfRequests(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const token = "canary-of-requests-7f3a"
	var mu sync.Mutex
	got := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got[r.URL.Path] = r.Header.Get("Authorization") + " " + string(body)
		mu.Unlock()
		switch r.URL.Path {
		case "/echo":
			_, _ = w.Write([]byte("you said " + r.Header.Get("Authorization")))
		case "/refuse":
			http.Error(w, "no such token: "+r.Header.Get("Authorization"), http.StatusForbidden)
		}
	}))
	defer server.Close()
	step := func(path string) string {
		return `{kind: http, url: "` + server.URL + `/` + path + `", secrets: {key: "secret://psp"}, headers: {authorization: "Bearer ${secrets.key}"}, body: {token: "${secrets[\"key\"]}"}}`
	}
	put(t, db, `{plan: p, version: "1", steps: {good: `+step("good")+`, echo: `+step("echo")+`, refuse: `+step("refuse")+`, bad: {kind: http, url: "`+server.URL+`/bad", secrets: {key: "secret://psp"}, body: "${int(secrets.key)}"}}}`)
	log := &safeLog{}
	serve(t, db, local.Options{Secrets: vault{"secret://psp": token}, AllowHosts: []string{"127.0.0.1"}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	mu.Lock()
	want(t, "the request", got["/good"], "Bearer "+token+` {"token":"`+token+`"}`)
	mu.Unlock()
	want(t, "good", errorOf(t, db, id, "good"), "")
	for name, code := range map[string]string{"echo": "SECRET_LEAK", "refuse": "SECRET_LEAK", "bad": "CONDITION_ERROR"} {
		want(t, name, errorOf(t, db, id, name), code)
	}
	canaryIn(t, db, "canary-of")
	log.mu.Lock()
	defer log.mu.Unlock()
	if strings.Contains(log.out.String(), "canary-of") {
		t.Errorf("the log has it: %s", log.out.String())
	}
}

// Of an answer that is not kept, as it is too large, or no text, its error has a line: a secret is looked for in the whole of it, and as JSON writes it, so none is
// cut in two.
func TestContract_R9_SecretsInAnswersThatAreNotKept(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const token = `canary-of-<"lines">-7f3a`
	escaped, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	within := strings.Repeat("x", 190) // its line ends within what follows
	large := strings.Repeat(" y", 10<<10)
	answers := map[string]string{
		"large":       within + token + large,
		"nul":         within + token + "\x00",
		"no_utf8":     within + token + "\xff",
		"json":        `{"error": "` + within[20:] + strings.Trim(string(escaped), `"`) + `", "more": "` + large + `"}`,
		"json_cut":    `{"error": "` + within[20:] + strings.Trim(string(escaped), `"`) + large,
		"json_plain":  `{"error": "` + within[20:] + strings.ReplaceAll(token, `"`, `\"`) + large,
		"json_within": "it says: " + within[20:] + string(escaped) + large,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, once := strings.CutPrefix(strings.TrimPrefix(r.URL.Path, "/"), "once/")
		w.WriteHeader(map[bool]int{false: http.StatusForbidden, true: http.StatusBadGateway}[once])
		_, _ = w.Write([]byte(answers[name]))
	}))
	defer server.Close()
	steps := ""
	for name := range answers {
		steps += name + `: {kind: http, url: "` + server.URL + `/` + name + `", secrets: {key: "secret://psp"}, headers: {authorization: "Bearer ${secrets.key}"}}, `
	}
	put(t, db, `{plan: p, version: "1", steps: {`+steps+`last: {kind: sleep, for: 1ms}}}`)
	serve(t, db, local.Options{Secrets: vault{"secret://psp": token}, AllowHosts: []string{"127.0.0.1"}, Handlers: []local.Handler{
		local.Step("said", func(ctx context.Context, _ nothing) (nothing, error) {
			return nil, &run.Failure{Code: "OUTCOME_UNKNOWN", Final: true, Err: errors.New("no answer to " + run.Secret(ctx, "key"))}
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	for name := range answers {
		want(t, name, errorOf(t, db, id, name), "SECRET_LEAK")
	}

	// One at most once that may have been done a person decides, whatever was answered.
	put(t, db, `{plan: p, version: "2", steps: {`+strings.NewReplacer(server.URL+`/`, server.URL+`/once/`, `{kind: http`, `{kind: http, guarantee: at_most_once`).Replace(steps)+`said: {kind: go, handler: said, guarantee: at_most_once, secrets: {key: "secret://psp"}}}}`)
	answers["said"] = ""
	again, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "2", ID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a person to be asked of all", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`) == len(answers)
	})
	for name := range answers {
		want(t, name+" at most once", errorOf(t, db, again.ID, name), "OUTCOME_UNKNOWN")
	}
	canaryIn(t, db, "canary")
}

// An answer that is kept as text, since it does not say that it is JSON, may have a value as JSON escapes it.
func TestContract_R9_SecretsInAnswersThatAreText(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const token = `canary/of"text"-7f3a`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		_, _ = w.Write([]byte(`{"key": "` + strings.NewReplacer(`/`, `\/`, `"`, `\"`).Replace(token) + `"}`))
	}))
	defer server.Close()
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, url: "`+server.URL+`/", secrets: {key: "secret://psp"}, headers: {authorization: "Bearer ${secrets.key}"}}}}`)
	serve(t, db, local.Options{Secrets: vault{"secret://psp": token}, AllowHosts: []string{"127.0.0.1"}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "a"), "SECRET_LEAK")
	canaryIn(t, db, "canary")
}

// What is stored of an error, or of why a step is skipped, has no NULs: a secret that has some between, as one in UTF-16 has, is found.
func TestContract_R9_SecretsWithNULsBetween(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const token = "canary-of-nuls-7f3a"
	wide := strings.Join(strings.Split(token, ""), "\x00") + "\x00"
	said := map[string]error{
		"split":   errors.New("it said " + token[:9] + "\x00" + token[9:]),
		"wide":    fmt.Errorf("it said %s", wide),
		"code":    &run.Failure{Code: wide, Err: errors.New("no")},
		"skipped": run.Skip("it said " + wide),
		"inner":   nil,
	}
	var handlers []local.Handler
	steps := ""
	for name, err := range said {
		handlers = append(handlers, local.Step(name, func(ctx context.Context, _ nothing) (nothing, error) {
			if err == nil {
				return run.Step(ctx, "call", func(context.Context) (nothing, error) { return nil, said["wide"] })
			}
			return nil, err
		}))
		steps += name + `: {kind: go, handler: ` + name + `, secrets: {key: "secret://psp"}}, `
	}
	put(t, db, `{plan: p, version: "1", steps: {`+steps+`last: {kind: sleep, for: 1ms}}}`)
	serve(t, db, local.Options{Secrets: vault{"secret://psp": token}, Handlers: handlers})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	for name := range said {
		want(t, name, errorOf(t, db, id, name), "SECRET_LEAK")
	}
	canaryIn(t, db, "canary")
}
