package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// output is what a process has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// process is a running deed.
type process struct {
	t           testing.TB
	cmd         *exec.Cmd
	out, errOut output
	done        chan struct{} // closed when it has ended
	err         error         // how it ended
}

// start runs deed; the test's end kills it if it still runs.
func start(t *testing.T, url string, args ...string) *process {
	t.Helper()
	return startWith(t, nil, url, args...)
}

// startWith is start with more environment variables.
func startWith(t *testing.T, env []string, url string, args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(command(t), "deed"), args...)
	p.cmd.Env = append(os.Environ(), "GORACE="+noRaceSleep, "DEED_DATABASE_URL="+url, "HOOK_SECRET=whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errOut
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if args[0] == "dev" { // its PostgreSQL writes to the test's directory until it has stopped
			_ = p.cmd.Process.Signal(os.Interrupt)
			select {
			case <-p.done:
			case <-time.After(pgtest.Patience):
			}
		}
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%s\n%s\n%s", strings.Join(args, " "), &p.out, &p.errOut)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit status, -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	eventually(p.t, "the process to end", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if p.err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](p.err)
	if !ok {
		p.t.Fatal(p.err)
	}
	return exit.ExitCode()
}

// prints waits for output and returns what the pattern's group matched.
func (p *process) prints(o *output, pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(p.t, pattern, func() bool {
		found = re.FindStringSubmatch(o.String())
		return found != nil
	})
	return found[len(found)-1]
}

// deedOK runs deed to its end, which must be well.
func deedOK(t *testing.T, url string, args ...string) string {
	t.Helper()
	p := start(t, url, args...)
	if code := p.wait(); code != 0 {
		t.Fatalf("deed %s: exit status %d\n%s", strings.Join(args, " "), code, &p.errOut)
	}
	return p.out.String()
}

// slowRelay is a relay that delivers one message at a time, and whose first
// delivery hangs until release is called.
func slowRelay(t *testing.T, db *pgtest.DB) (p *process, release func()) {
	t.Helper()
	reached, held := make(chan struct{}), make(chan struct{})
	var once, released sync.Once
	release = func() { released.Do(func() { close(held) }) }
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		once.Do(func() { close(reached) })
		select {
		case <-held:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(far.Close)
	t.Cleanup(release)
	for range 3 {
		deedOK(t, db.URL(pgtest.App), "publish", "--topic", "slow", "--payload", "{}")
	}
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := `topics: {slow: {sink: hook, concurrency: 1}}
sinks: {hook: {type: webhook, url: "` + far.URL + `", secret: "env:HOOK_SECRET", allow_hosts: [127.0.0.1], timeout: 5m}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p = start(t, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "")
	eventually(t, "a delivery", func() bool {
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	return p, release
}

func claimedNow(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select claimed from deed.status() where topic = 'slow'`)
}

func TestRelay_FirstSignalLetsDeliveriesFinish(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p, release := slowRelay(t, db)
	p.signal(syscall.SIGTERM)
	p.prints(&p.errOut, `msg="stopping`)
	eventually(t, "the rest to be given back", func() bool { return claimedNow(t, db) == 1 })
	release()
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select format('%s delivered, %s due, %s claimed', delivered, due, claimed) from deed.status() where topic = 'slow'
	`)
	if want := "1 delivered, 2 due, 0 claimed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select sum(attempts)::int from deed.pending`); n != 0 {
		t.Errorf("the stop cost %d attempts", n)
	}
}

func TestRelay_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p, _ := slowRelay(t, db)
	p.signal(os.Interrupt)
	p.prints(&p.errOut, `msg="stopping`)
	p.signal(os.Interrupt)
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	if n := claimedNow(t, db); n == 0 {
		t.Error("the delivery was waited for")
	}
}

// gate is a way to the database that is closed at first.
func gate(t *testing.T, db *pgtest.DB) (url string, open func()) {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.URL(pgtest.Worker))
	if err != nil {
		t.Fatal(err)
	}
	network, address := pgNetwork(cfg)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var opened atomic.Bool
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			if !opened.Load() {
				near.Close()
				continue
			}
			conns.Go(func() {
				defer near.Close()
				far, err := net.Dial(network, address)
				if err != nil {
					return
				}
				defer far.Close()
				go func() { // ends with the connections
					_, _ = io.Copy(far, near)
					far.Close()
				}()
				_, _ = io.Copy(near, far)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		conns.Wait()
	})
	url = "postgres://" + cfg.User + ":" + cfg.Password + "@" + listener.Addr().String() + "/" + cfg.Database +
		"?sslmode=disable&default_query_exec_mode=" + strings.ReplaceAll(cfg.DefaultQueryExecMode.String(), " ", "_")
	return url, func() { opened.Store(true) }
}

func pgNetwork(cfg *pgx.ConnConfig) (network, address string) {
	if strings.HasPrefix(cfg.Host, "/") {
		return "unix", filepath.Join(cfg.Host, ".s.PGSQL."+strconv.Itoa(int(cfg.Port)))
	}
	return "tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
}

func TestRelay_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url, open := gate(t, db)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	if err := os.WriteFile(file, []byte("topics: {t: {sink: p}}\nsinks: {p: {type: print}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, url, "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening address=(\S+)`)
	p.prints(&p.errOut, `will try again`)
	if got := get("http://" + address + "/healthz"); got != 200 {
		t.Errorf("/healthz: %d", got)
	}
	if got := get("http://" + address + "/readyz"); got != 503 {
		t.Errorf("/readyz: %d while the database is away", got)
	}
	open()
	p.prints(&p.errOut, `msg="the database answers" failures=\d`)
	eventually(t, "/readyz", func() bool { return get("http://"+address+"/readyz") == 200 })
	deedOK(t, db.URL(pgtest.App), "publish", "--topic", "t", "--payload", "{}")
	p.prints(&p.out, `(?m)^\S+ \S+  t  key= type= 2 bytes  \S+$`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// A slip with providers register stops a relay: that is said by who did it, by the
// relay, and by who looks.
func TestRelay_SaysThatItsProviderIsReplaced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	serve := func(mail string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("channels: {outbox: {enabled: true}}\nproviders:\n  mail: {type: smtp, address: '127.0.0.1:1', from: a@example.com"+mail+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve(", account: first, sandbox: box@example.com")
	p := start(t, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening address=(\S+)`)
	p.prints(&p.errOut, `provider registered`) // or who comes later knows of no other
	eventually(t, "/readyz", func() bool { return get("http://"+address+"/readyz") == 200 })

	serve(", account: second")
	said := deedOK(t, db.URL(pgtest.Worker), "providers", "register", "--config", file)
	if !strings.Contains(said, "mail: is smtp second now, and was smtp first (sandbox)") {
		t.Errorf("register said %q", said)
	}
	deedOK(t, db.URL(pgtest.App), "deliver", "--provider", "mail", "--to", "b@example.com", "--subject", "x", "--text", "x")
	eventually(t, "/readyz to say that a provider is not served here", func() bool { return get("http://"+address+"/readyz") == 503 })
	for _, args := range [][]string{{"status"}, {"providers", "list"}} {
		if said := deedOK(t, db.URL(pgtest.Admin), args...); !strings.Contains(said, "serves it as smtp first (sandbox), and calls nobody") {
			t.Errorf("deed %q: %s", args, said)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestRelay_StopsWhileWaiting(t *testing.T) {
	t.Parallel()
	url, _ := gate(t, pgtest.New(t))
	file := filepath.Join(t.TempDir(), "deed.yaml")
	if err := os.WriteFile(file, []byte("topics: {t: {sink: p}}\nsinks: {p: {type: print}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, url, "relay", "--config", file, "--listen", "", "--until-empty")
	p.prints(&p.errOut, `will try again`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	p.prints(&p.errOut, `stopped before the database was reached`)
}

func TestTail(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := start(t, db.URL(pgtest.Worker), "tail", "--topic", "orders", "--json", "--payload")
	eventually(t, "a message", func() bool {
		deedOK(t, db.URL(pgtest.App), "publish", "--topic", "orders", "--payload", `{"n": 1}`)
		return strings.Contains(p.out.String(), `"payload":{"n":1}`)
	})
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	for range 2 { // the second one finds the data of the first
		p := start(t, "", "dev", "--data", data, "--listen", "", "--payload")
		url := p.prints(&p.out, `export DEED_DATABASE_URL='([^']+)'\n`)
		deedOK(t, url, "publish", "--topic", "hello", "--payload", `{"n": 1}`)
		p.prints(&p.out, `(?m)^\S+ \S+  hello  key= type= 8 bytes  \S+  \{"n":1\}$`)
		mailbox := p.prints(&p.out, `  deed (dev mailbox.*)\n`)
		for _, provider := range []string{"smtp", "resend", "ses"} {
			deedOK(t, url, "deliver", "--provider", provider, "--to", "you@example.com", "--subject", "Hello by "+provider, "--text", "It works.", "--wait", "2m")
			if got := deedOK(t, url, append(strings.Fields(mailbox), "--json")...); !strings.Contains(got, `"via":"`+provider+`"`) || !strings.Contains(got, `"subject":"Hello by `+provider) {
				t.Errorf("the mailbox has no mail by %s: %s", provider, got)
			}
		}
		deedOK(t, url, "deliver", "--provider", "telegram", "--channel", "chat", "--to", "42", "--payload", `{"text": "Hello by bot"}`, "--wait", "2m")
		if got := deedOK(t, url, append(strings.Fields(mailbox), "--via", "smtp", "--headers")...); !strings.Contains(got, "\nMessage-Id: <") || !strings.Contains(got, "\nSubject: Hello by smtp\n") {
			t.Errorf("the headers of a mail: %s", got)
		}
		if got := deedOK(t, url, append(strings.Fields(mailbox), "--via", "telegram")...); !strings.Contains(got, "Hello by bot") || strings.Contains(got, "Hello by smtp") {
			t.Errorf("the mailbox of telegram: %s", got)
		}
		for _, provider := range []string{"smtp", "resend", "telegram", "twilio"} { // as deed dev built them in
			catch := strings.Fields(mailbox)[2:] // --catch-http, unless it is the usual one
			if got := deedOK(t, "", append([]string{"providers", "test", provider}, catch...)...); !strings.Contains(got, "connect to") || strings.Contains(got, "FAILED") {
				t.Errorf("providers test %s: %s", provider, got)
			}
		}
		catch := strings.Fields(mailbox)[2:]
		if got := deedOK(t, url, append([]string{"dev", "say", "Is anybody there?"}, catch...)...); !strings.HasPrefix(got, "200 ") {
			t.Errorf("said: %s", got)
		}
		eventually(t, "the answer", func() bool {
			return strings.Contains(deedOK(t, url, append(strings.Fields(mailbox), "--json")...), "You wrote: Is anybody there?")
		})
		if got := deedOK(t, url, "run", "start", "hello", "--wait", "2m"); !strings.Contains(got, "COMPLETED") {
			t.Errorf("the run of the plan hello: %s", got)
		}
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the snapshot of the run", func() bool {
			return pgtest.One[bool](t, conn, `select exists (select from deed.run_snapshots s where s.snapshot ->> 'status' = 'COMPLETED')`)
		})
		_ = conn.Close(t.Context())
		if got := deedOK(t, url, "verify"); !strings.Contains(got, "no violations") {
			t.Errorf("verify: %s", got)
		}
		p.signal(os.Interrupt)
		if code := p.wait(); code != 0 {
			t.Fatalf("exit status %d", code)
		}
		if _, err := os.Stat(filepath.Join(data, "postmaster.pid")); err == nil {
			t.Error("PostgreSQL was left running")
		}
	}
}

// With deliveries off nothing listens where sources would be served, and what needs deliveries is not offered.
func TestDev_WithoutDeliveries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	public := freeAddress(t)
	file := filepath.Join(dir, "deed.yaml")
	text := "dev: {data: .deed}\npublic: {listen: '" + public + "'}\nchannels: {outbox: {enabled: false}}\n" +
		"sources: {in: {type: webhook, secret: env:HOOK_SECRET, sender: $.from, executor: {topic: in}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "", "dev", "--config", file)
	url := p.prints(&p.out, `export DEED_DATABASE_URL='([^']+)'\n`)
	p.prints(&p.out, `(?m)^(deliveries are off: sources are not served)`)
	for _, offer := range []string{"deed deliver", "deed dev say", "deed run start"} {
		if strings.Contains(p.out.String(), offer) {
			t.Errorf("%s is offered", offer)
		}
	}
	if c, err := net.Dial("tcp", public); err == nil {
		c.Close()
		t.Errorf("somebody listens at %s", public)
	}
	said := start(t, "", append([]string{"dev", "say", "Is anybody there?"}, strings.Fields(p.prints(&p.out, `  deed (dev mailbox.*)\n`))[2:]...)...)
	if code := said.wait(); code != 1 || !strings.Contains(said.errOut.String(), "serves no sources") {
		t.Errorf("exit status %d of who writes to it: %s", code, &said.errOut)
	}
	deedOK(t, url, "publish", "--topic", "hello", "--payload", `{"n": 1}`)
	p.prints(&p.out, `(?m)^\S+ \S+  (hello)  key= `)
	p.signal(os.Interrupt)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// Two projects have each a deed dev of their own, at once, though both would like the
// usual addresses; what their deed.yaml fixes is where it says, and taken by
// the commands that ask for it.
func TestDev_OneForEachProject(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	fixedAt, catch := freeAddress(t), freeAddress(t)
	_, port, _ := strings.Cut(fixedAt, ":")
	seen := map[string]bool{}
	for name, fixed := range map[string]string{"one": "", "two": ", port: " + port + ", catch_http: '" + catch + "'"} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "deed.yaml")
		if err := os.WriteFile(file, []byte("environment: production\ndev: {data: .deed"+fixed+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p := start(t, "", "dev", "--config", file)
		url := p.prints(&p.out, `export DEED_DATABASE_URL='([^']+)'\n`)
		hooks := p.prints(&p.out, `post to (http://\S+)/hook`)
		if seen[url] || seen[hooks] {
			t.Errorf("%s: %s and %s are another's", name, url, hooks)
		}
		seen[url], seen[hooks] = true, true
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if pgtest.One[bool](t, conn, `select s.environment is not null from deed.settings s`) {
			t.Errorf("%s: the environment of its relays is written into the data", name)
		}
		_ = conn.Close(t.Context())
		if _, err := os.Stat(filepath.Join(dir, ".deed")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		deedOK(t, url, "deliver", "--provider", "smtp", "--to", "you@example.com", "--subject", "Hello", "--text", name, "--wait", "2m")
		mailbox := strings.Fields(p.prints(&p.out, `  deed (dev mailbox.*)\n`))
		if got := deedOK(t, "", append(mailbox, "--config", file, "--json")...); strings.Count(got, `"subject"`) != 1 {
			t.Errorf("%s: its mailbox has %s", name, got)
		} else if !strings.Contains(got, `"data":"`+filepath.Join(dir, ".deed")+`"`) {
			t.Errorf("%s: the mailbox does not say whose it is: %s", name, got)
		}
		if name == "two" && (!regexp.MustCompile(`(:|port=)`+port+`\b`).MatchString(url) || hooks != "http://"+catch || len(mailbox) != 2) {
			t.Errorf("it is at %s and %s, and says %q; want port %s and %s", url, hooks, mailbox, port, catch)
		}
	}
}
