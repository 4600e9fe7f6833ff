package deed_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a copy shows: it is on another server, in another database of its own
// server, or says that it is production's.
const (
	anotherServer   = `update deed.settings set system_identifier = 1, database_oid = (select oid::bigint from pg_database where datname = current_database())`
	anotherDatabase = `update deed.settings set system_identifier = (select system_identifier from pg_control_system()), database_oid = 1`
	ofProduction    = `update deed.settings set environment = 'production'`
)

// holder is a sink that asks to be held, as webhooks do.
type holder struct{ recorder }

func (*holder) HoldOnNewCluster() bool { return true }

// What is to hold in a copy claims and delivers nothing until it is adopted, and
// says so; what goes on there goes on.
func TestHold_NothingIsDeliveredUntilAdopted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		copied string
		opts   deed.Options
		why    string // empty: it is not held
		holder bool
	}{
		"a sink that asks for it":          {copied: anotherServer, why: "the server is another", holder: true},
		"another database of the server":   {copied: anotherDatabase, why: "the database is another", holder: true},
		"any other sink":                   {copied: anotherServer},
		"told to hold":                     {copied: anotherServer, opts: deed.Options{OnNewCluster: deed.Hold}, why: "the server is another"},
		"a holder told to go on":           {copied: anotherServer, opts: deed.Options{OnNewCluster: deed.Continue}, holder: true},
		"another environment":              {copied: ofProduction, opts: deed.Options{Environment: "staging"}, why: `"production", and this process to "staging"`},
		"the same environment":             {copied: ofProduction, opts: deed.Options{Environment: "production"}, holder: true},
		"a holder of no environment":       {copied: ofProduction, why: "this process names none", holder: true},
		"no environment":                   {copied: ofProduction},
		"another one, told to go on":       {copied: ofProduction, opts: deed.Options{Environment: "staging", OnNewCluster: deed.Continue}, holder: true},
		"the first environment":            {copied: `select`, opts: deed.Options{Environment: "staging"}, holder: true},
		"an installation from before this": {copied: `select`, holder: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, pgtest.Owner, tt.copied)
			sink := &holder{}
			opts := tt.opts
			opts.Subscriptions = []deed.Subscription{{Topic: "orders", Name: "s", Sink: &sink.recorder}}
			if tt.holder {
				opts.Subscriptions[0].Sink = sink
			}
			said := &lines{}
			opts.Logger = slog.New(slog.NewTextHandler(said, nil))
			publish(t, db, message("orders", 1))
			c, _ := run(t, db, opts)
			want := 1
			if tt.why != "" {
				held(t, db, c, sink, tt.why)
				adopted(t, db, opts.Environment, tt.why)
				want = 2
			}
			eventually(t, "it to be delivered", func() bool { n, _ := sink.counts(); return n == want })
			eventually(t, "it to be ready", func() bool { return c.Ready(t.Context()) == nil })
			if c.Held() != "" {
				t.Errorf("held: %q", c.Held())
			}
			if n := said.count("nothing is claimed"); n != min(1, len(tt.why)) {
				t.Errorf("it says %d times that it is held: %s", n, said)
			}
			if pgtest.One[bool](t, db.Pool(pgtest.Owner), `select system_identifier is null from deed.settings`) {
				t.Error("the installation belongs to no server")
			}
			if opts.Environment != "" && opts.OnNewCluster != deed.Continue {
				same(t, "the environment", pgtest.One[string](t, db.Pool(pgtest.Owner), `select environment from deed.settings`), opts.Environment)
			}
		})
	}
}

// A client that is held registers nothing, and tells all the same whether anything is to be done there.
func TestHold_DrainedGoesByWhatIsStored(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, anotherServer)
	c, _ := run(t, db, deed.Options{Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: &holder{}}}})
	eventually(t, "it to be held", func() bool { return c.Held() != "" })
	unfinished := func(what string) {
		t.Helper()
		if ok, err := c.Drained(t.Context()); ok || err != nil {
			t.Errorf("drained %s: %t, %v", what, ok, err)
		}
	}
	unfinished("without such a subscription")
	goesOn, stop := run(t, db, deed.Options{OnNewCluster: deed.Continue, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: &recorder{}}}})
	drained(t, goesOn)
	drained(t, c) // while the other looks for what was committed late, as other tests' transactions
	if err := stop(); err != nil {
		t.Error(err)
	}
	publish(t, db, message("orders", 1))
	unfinished("with a message that is due")
}

// held expects that c says why it holds and claims nothing, while publishing, and
// others that may go on, do: they take what there is.
func held(t *testing.T, db *pgtest.DB, c *deed.Client, sink *holder, why string) {
	t.Helper()
	eventually(t, "it to say that it is held", func() bool {
		err := c.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), why)
	})
	if got := c.Held(); !strings.Contains(got, why) {
		t.Errorf("held: %q, want %q", got, why)
	}
	goesOn := &recorder{}
	_, stop := run(t, db, deed.Options{OnNewCluster: deed.Continue, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: goesOn}}})
	for i := range 50 {
		publish(t, db, message("orders", i+2))
	}
	eventually(t, "one that may go on to deliver", func() bool { n, _ := goesOn.counts(); return n == 51 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	publish(t, db, message("orders", 100), message("orders", 101))
	if n, _ := sink.counts(); n != 0 {
		t.Errorf("%d messages were delivered", n)
	}
}

// adopted does what deed adopt does, first wrongly.
func adopted(t *testing.T, db *pgtest.DB, environment, why string) {
	t.Helper()
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{OnNewCluster: deed.Hold, Environment: environment})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := operator.NewCluster(t.Context()); err != nil || !strings.Contains(got, why) {
		t.Errorf("held: %q, %v, want %q", got, err, why)
	}
	for _, reason := range []string{"", " \n", strings.Repeat("x", 2001)} {
		if _, err := operator.Adopt(t.Context(), audit.Act{By: "x", Reason: reason}); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("with the reason %q: %v", reason, err)
		}
	}
	if _, err := operator.Adopt(t.Context(), audit.Act{By: "x", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	if environment == "" && strings.Contains(why, "names none") {
		db.Exec(t, pgtest.Owner, `update deed.settings set environment = null`) // what it lacks is a name
		return
	}
	if _, err := db.Pool(pgtest.Admin).Exec(t.Context(), `update deed.settings set environment = 'mine', system_identifier = 1`); sqlState(err) != "42501" {
		t.Errorf("without a record: %v", err)
	}
	rows := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'adopt' and reason = 'a test' and actor = 'x'`)
	}
	same(t, "rows in the audit log", rows(), 1)
	if why, err := operator.Adopt(t.Context(), audit.Act{By: "x", Reason: "a test"}); err != nil || why != "" {
		t.Errorf("once more: %q, %v", why, err)
	}
	same(t, "rows in the audit log, when nothing holds", rows(), 1)
	if why, err := operator.NewCluster(t.Context()); err != nil || why != "" {
		t.Errorf("still held: %q, %v", why, err)
	}
}

// lines is a log.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(what string) int { return strings.Count(l.String(), what) }

// Relays of two environments that start at once on a new installation agree on
// whose it is: one stores its name, and the other holds.
func TestHold_TheFirstStartDecides(t *testing.T) {
	t.Parallel()
	for range 5 {
		db := pgtest.New(t)
		var clients []*deed.Client
		sinks := map[string]*recorder{}
		for _, environment := range []string{"production", "staging", "production", "staging"} {
			sink := &recorder{}
			c, _ := run(t, db, deed.Options{
				OnNewCluster: deed.Hold, Environment: environment,
				Subscriptions: []deed.Subscription{{Topic: "orders", Name: environment, Sink: sink}},
			})
			clients = append(clients, c)
			sinks[environment] = sink
		}
		eventually(t, "two to run and two to hold", func() bool {
			ready, holding := 0, 0
			for _, c := range clients {
				if c.Ready(t.Context()) == nil {
					ready++
				}
				if c.Held() != "" {
					holding++
				}
			}
			return ready == 2 && holding == 2
		})
		whose := pgtest.One[string](t, db.Pool(pgtest.Owner), `select environment from deed.settings`)
		for i, environment := range []string{"production", "staging", "production", "staging"} {
			if (clients[i].Held() == "") != (environment == whose) {
				t.Errorf("the installation is %s's; a relay of %s: %q", whose, environment, clients[i].Held())
			}
		}
		same(t, "rows in the audit log", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'environment'`), 1)
	}
}

// Whoever starts while somebody adopts goes on, whichever comes first.
func TestHold_AdoptingBesideRelaysThatStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, anotherServer)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{Environment: "staging"})
	if err != nil {
		t.Fatal(err)
	}
	var clients []*deed.Client
	var adopting sync.WaitGroup
	for i := range 6 {
		adopting.Go(func() {
			if _, err := operator.Adopt(t.Context(), audit.Act{Reason: "a test"}); err != nil {
				t.Errorf("adopt: %v", err)
			}
		})
		c, _ := run(t, db, deed.Options{
			OnNewCluster: deed.Hold, Environment: "staging",
			Subscriptions: []deed.Subscription{{Topic: "orders", Name: fmt.Sprint("s", i), Sink: &recorder{}}},
		})
		clients = append(clients, c)
	}
	adopting.Wait()
	for _, c := range clients {
		eventually(t, "it to be ready", func() bool { return c.Ready(t.Context()) == nil })
	}
	same(t, "rows in the audit log", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where action = 'adopt'`), 1)
}

// Where the cluster comes to be another one under a relay that runs, as at a
// cut-over, it ends with an error; to name an environment ends nobody.
func TestHold_ACutOverEndsWhatRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c, err := deed.New(t.Context(), db.Pool(pgtest.Worker), deed.Options{
		OnNewCluster: deed.Hold, Subscriptions: []deed.Subscription{{Topic: "orders", Name: "s", Sink: &recorder{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	eventually(t, "it to be ready", func() bool { return c.Ready(t.Context()) == nil })
	named, _ := run(t, db, deed.Options{Environment: "production"})
	eventually(t, "the other to be ready", func() bool { return named.Ready(t.Context()) == nil })
	db.Exec(t, pgtest.Owner, anotherServer)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the server is another") {
		t.Errorf("it ended with %v", err)
	}
}

// A login that may not ask gets an error, and does not wait for ever.
func TestHold_WhoMayNotAskGetsAnError(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c, err := deed.New(t.Context(), db.Pool(pgtest.App), deed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); sqlState(err) != "42501" {
		t.Errorf("it ended with %v", err)
	}
}

// All problems of the options are told at once.
func TestHold_OptionsAreChecked(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := deed.New(t.Context(), db.Pool(pgtest.Worker), deed.Options{OnNewCluster: "stop", Environment: strings.Repeat("ü", 101)})
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), `"stop"`) || !strings.Contains(err.Error(), "100 characters") {
		t.Errorf("new: %v", err)
	}
	if _, err := deed.New(t.Context(), db.Pool(pgtest.Worker), deed.Options{Environment: strings.Repeat("ü", 100)}); err != nil {
		t.Error(err)
	}
}
