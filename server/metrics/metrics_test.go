package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/server/metrics"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// start runs a client and its collector and returns what a scrape says.
func start(t *testing.T, db *pgtest.DB, subs []deed.Subscription, opts metrics.Options) (*metrics.Collector, func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := deed.New(ctx, db.Pool(pgtest.Worker), deed.Options{Subscriptions: subs, Grace: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	opts.Interval, opts.Doctor = 100*time.Millisecond, db.Pool(pgtest.Worker) // more often the looks would be what the tests beside wait for
	operator, err := admin.New(ctx, db.Pool(pgtest.Worker), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	looks := opts.Deadline == 0
	if looks {
		opts.Deadline = pgtest.Patience // what takes longer is counted as a failure
	}
	m := metrics.New(c, operator, opts)
	ran, measured := make(chan error, 1), make(chan struct{})
	go func() { ran <- c.Run(ctx) }()
	go func() { defer close(measured); m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		<-measured
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	var looked time.Time
	return m, func() string {
		// Run waits twenty times as long as a look has taken: after a slow one longer than a test does. That it looks by itself is seen by one whose looks all fail.
		if looks && time.Since(looked) > time.Second {
			_ = m.Refresh(ctx) // an error is one of its figures
			looked = time.Now()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if w.Code != 200 {
			t.Fatalf("scrape: %d %s", w.Code, w.Body)
		}
		return w.Body.String()
	}
}

// wantLines waits until every pattern matches a line.
func wantLines(t *testing.T, scrape func() string, patterns ...string) {
	t.Helper()
	var text string
	var missing []string
	found := pgtest.Wait(pgtest.Patience, func() bool {
		text = scrape()
		missing = slices.DeleteFunc(slices.Clone(patterns), func(p string) bool {
			return regexp.MustCompile(`(?m)^` + p + `$`).MatchString(text)
		})
		return len(missing) == 0
	})
	if !found {
		t.Fatalf("no line matches\n%s\nin\n%s", strings.Join(missing, "\n"), text)
	}
}

func TestCollector_CountsWhatHappened(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fail := func(m deed.Message) error {
		switch m.Key {
		case "bad":
			return deed.Permanent(errors.New("never"))
		case "later":
			return deed.After(time.Hour)
		}
		return nil
	}
	subs := []deed.Subscription{
		{Topic: "orders", Name: "good", Sink: deed.SinkFunc(func(_ context.Context, m deed.Message) error { return fail(m) })},
		{Topic: "orders", Name: "down", Sink: deed.SinkFunc(func(context.Context, deed.Message) error {
			return deed.Unavailable(errors.New("away"), 0)
		})},
		{Topic: "stuck", Name: "s", Sink: deed.SinkFunc(func(ctx context.Context, _ deed.Message) error { <-ctx.Done(); return ctx.Err() })},
	}
	subs[2].Timeout = time.Minute
	m, scrape := start(t, db, subs, metrics.Options{})
	for _, key := range []string{"a", "b", "bad", "later"} {
		if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "orders", Key: key, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{subscription="good",topic="orders"}`
	wantLines(t, scrape,
		`deed_process_claimed_total`+good+` 4`,
		`deed_process_attempts_total`+good+` 4`,
		`deed_process_delivered_total`+good+` 2`,
		`deed_process_failed_total`+good+` 1`,
		`deed_process_dead_total`+good+` 1`,
		`deed_process_in_flight`+good+` 0`,
		`deed_process_sink_down`+good+` 0`,
		`deed_process_sink_down{subscription="down",topic="orders"} 1`,
		`deed_process_deliver_seconds_count`+good+` 4`,
		`deed_process_exchange_seconds_count{op="claim",subscription="good",topic="orders"} [1-9]\d*`,
		`deed_messages{state="pending",subscription="good",topic="orders"} 1`,
		`deed_messages{state="dead",subscription="good",topic="orders"} 1`,
		`deed_messages{state="pending",subscription="down",topic="orders"} 4`,
		`deed_messages_published`+good+` 4`,
		`deed_messages_delivered`+good+` 2`,
		`deed_oldest_due_seconds{subscription="down",topic="orders"} [0-9.e-]+`,
		`deed_partitions_ahead [2-9]`,
		`deed_oldest_partition_seconds 0`,
		`deed_log_position [1-9]\d*`,
		`deed_refresh_failures_total 0`,
		`deed_doctor_findings{level="fail",name="schema-version"} 0`,
	)
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "stuck", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `
		insert into deed.running_calls (subscription, worker, name, id, message_id, messages, since, seen_until)
		select s.id, gen_random_uuid(), 'w', 1, '01890000-0000-7000-8000-000000000001', 1, clock_timestamp() - interval '1 hour', clock_timestamp() + interval '1 hour'
		from deed.subscriptions s
		where s.topic = 'orders' and s.name = 'good'`)
	wantLines(t, scrape,
		`deed_oldest_call_seconds`+good+` 3[6-9]\d\d.*`,
		`deed_process_in_flight{subscription="s",topic="stuck"} 1`,
		`deed_messages{state="claimed",subscription="s",topic="stuck"} 1`,
	)
}

func TestCollector_Streams(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.One[bool](t, db.Pool(pgtest.Worker), `select made from deed.declare_topic('events', 'stream', 3)`)
	m, scrape := start(t, db, []deed.Subscription{{Topic: "events", Name: "s", Sink: deed.SinkFunc(func(_ context.Context, m deed.Message) error {
		return map[string]error{"bad": deed.AfterError(time.Hour, errors.New("not yet"))}[m.Key]
	})}}, metrics.Options{})
	for _, key := range []string{"bad", "bad", "good"} {
		if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "events", Key: key, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	const labels = `{subscription="s",topic="events"}`
	wantLines(t, scrape,
		`deed_stream_lag`+labels+` 0`,
		`deed_blocked_keys`+labels+` 1`,
		`deed_lanes`+labels+` 3`,
		`deed_lanes_held`+labels+` 3`,
		`deed_messages{state="parked",subscription="s",topic="events"} 1`,
		`deed_messages_delivered`+labels+` 1`,
		`deed_messages_published`+labels+` 3`,
	)
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

func TestCollector_UnservedSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.put_plan('{"plan": "p", "version": "1", "steps": {"a": {"kind": "go", "handler": "ship@3"}, "b": {"kind": "sleep", "for": "1s"}}}')`)
	db.Exec(t, pgtest.App, `select deed.start_run('p', '1', 'r')`)
	db.Exec(t, pgtest.Worker, `select deed.serve_queues('w', gen_random_uuid(), '{deed}', '1 hour')`)
	m, scrape := start(t, db, nil, metrics.Options{Runs: db.Pool(pgtest.Worker)})
	wantLines(t, scrape, `deed_unserved_steps{queue="go:ship@3"} 1`)
	if n := testutil.CollectAndCount(m, "deed_unserved_steps"); n != 1 {
		t.Errorf("%d queues", n)
	}
}

func TestCollector_Deliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "webhook", "hooks")
	_, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
		Channel: delivery.Webhook, Provider: "hooks", Recipient: "https://example.com/", Payload: []byte(`{}`), Key: delivery.NewKey("one"),
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.pauses (provider, destination, since, until, why)
		select 'hooks', d, clock_timestamp() - interval '1 hour', clock_timestamp(), 'down' from unnest('{a.example,b.example}'::text[]) d`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set deferred_since = clock_timestamp() - interval '2 hours'`)
	ledger, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	m, scrape := start(t, db, nil, metrics.Options{Ledger: ledger})
	wantLines(t, scrape,
		`deed_deliveries{provider="hooks",state="queued"} 1`,
		`deed_deliveries{provider="hooks",state="due"} 1`,
		`deed_deliveries{provider="hooks",state="dead"} 0`,
		`deed_provider_pauses{provider="hooks"} 2`,
		`deed_provider_paused_seconds{provider="hooks"} 3[6-9]\d\d.*`,
		`deed_deliveries{provider="hooks",state="deferred"} 1`,
		`deed_provider_deferred_seconds{provider="hooks"} 7[2-5]\d\d.*`,
		`deed_deliveries{provider="hooks",state="sending"} 0`,
		`deed_deliveries{provider="hooks",state="in_doubt"} 0`,
		`deed_deliveries{provider="hooks",state="held"} 0`,
	)
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// An open transaction is the horizon; its age is seen even by a login that may
// not look at other sessions.
func TestCollector_HorizonAge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := deed.Publish(t.Context(), tx, deed.Message{Topic: "orders", Payload: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	_, scrape := start(t, db, []deed.Subscription{{Topic: "orders", Sink: deed.SinkFunc(func(context.Context, deed.Message) error { return nil })}}, metrics.Options{})
	wantLines(t, func() string {
		// Others end, so that the open one is seen as running.
		err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
			_, err := deed.Publish(t.Context(), tx, deed.Message{Topic: "orders", Payload: []byte(`{}`)})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return scrape()
	}, `deed_horizon_age_seconds (0\.[3-9]|[1-9]).*`)
}

func TestCollector_ManyTopicsAndNoDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var ms []deed.Message
	for n := range 20 {
		ms = append(ms, deed.Message{Topic: fmt.Sprintf("t%02d", n), Payload: []byte(`{}`)})
	}
	if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), ms...); err != nil {
		t.Fatal(err)
	}
	_, scrape := start(t, db, nil, metrics.Options{Topics: 5})
	wantLines(t, scrape,
		`deed_messages{state="pending",subscription="default",topic="t04"} 1`,
		`deed_messages{state="pending",subscription="\(others\)",topic="\(others\)"} 15`,
	)
	if strings.Contains(scrape(), `topic="t05"`) {
		t.Error("a topic past the limit has figures of its own")
	}

	_, blind := start(t, db, nil, metrics.Options{Deadline: time.Nanosecond})
	wantLines(t, blind, `deed_refresh_failures_total ([3-9]|[1-9]\d+)(\..*)?`)
	if strings.Contains(blind(), "deed_messages{") {
		t.Error("figures that were never read are shown")
	}
	if !strings.Contains(blind(), "\ndeed_refresh_age_seconds ") {
		t.Error("it is not told for how long they have not been read")
	}
}

// away is a database that may be away.
type away struct {
	doctor.DB
	gone bool
}

func (a *away) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	if a.gone {
		return nil, errors.New("away")
	}
	return a.DB.BeginTx(ctx, opts)
}

// Findings that could not be looked for are not told any more, and that it is so is: by a figure, and in the log. A stop is no such
// failure.
func TestCollector_FindingsThatAreNotRenewed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c, err := deed.New(t.Context(), db.Pool(pgtest.Worker), deed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Worker), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	examined := &away{DB: db.Pool(pgtest.Worker)}
	m := metrics.New(c, operator, metrics.Options{Doctor: examined, Deadline: pgtest.Patience, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	m.Examine(t.Context())
	if n := testutil.CollectAndCount(m, "deed_doctor_findings"); n == 0 {
		t.Fatal("no findings of a doctor that could look")
	}
	examined.gone = true
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m.Examine(ended)
	if n := testutil.CollectAndCount(m, "deed_doctor_findings"); n == 0 || log.Len() > 0 {
		t.Errorf("%d findings after a stop, and the log has %q", n, log.String())
	}
	m.Examine(t.Context())
	if n := testutil.CollectAndCount(m, "deed_doctor_findings"); n != 0 {
		t.Errorf("%d findings, want none of a doctor that could not look", n)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "away") {
		t.Errorf("the log has %q, want one warning", log.String())
	}
	want := `
# HELP deed_refresh_failures_total Questions to the database for these figures that failed.
# TYPE deed_refresh_failures_total counter
deed_refresh_failures_total 1
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "deed_refresh_failures_total"); err != nil {
		t.Error(err)
	}
}

// Providers' names are data too: past the limit they are one series.
func TestCollector_ManyProviders(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, recipient, payload, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(n::text::bytea), 'email', 'p' || n, 'a@example.com', '{}', now(), now()
		from generate_series(1, 20) n`)
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	_, scrape := start(t, db, nil, metrics.Options{Topics: 5, Ledger: l})
	wantLines(t, scrape, `deed_deliveries{provider="\(others\)",state="queued"} 15`)
	if n := strings.Count(scrape(), `deed_deliveries{provider="p`); n != 5*7 {
		t.Errorf("%d series of single providers, want 35", n)
	}
}

// The dashboard, the alert rules and the documentation speak of metrics that
// exist, and of all of them.
func TestDocuments_NameTheMetrics(t *testing.T) {
	t.Parallel()
	descs := make(chan *prometheus.Desc, 100)
	metrics.New(nil, nil, metrics.Options{}).Describe(descs)
	close(descs)
	known := []string{"deed_build_info"}
	for d := range descs {
		known = append(known, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	name := regexp.MustCompile(`\bdeed_[a-z_]+`)
	for _, file := range []string{"grafana-dashboard.json", "alerts.yaml", "metrics.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		var used []string
		for _, n := range name.FindAllString(string(text), -1) {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(n, "")
			used = append(used, base)
			if !slices.Contains(known, base) && !slices.Contains([]string{"deed_process_", "deed_worker", "deed_admin"}, n) {
				t.Errorf("%s speaks of %s, which does not exist", file, n)
			}
		}
		for _, n := range known {
			if file == "metrics.md" && !slices.Contains(used, n) {
				t.Errorf("%s does not explain %s", file, n)
			}
		}
	}
}
