package deed_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) {
	// So many checks are enough of the models, unless the command line says how many. Before
	// the tests: two of them would set it beside each other, while others read it.
	if err := flag.Set("rapid.checks", "8"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

// publish commits msgs as the application's login.
func publish(t testing.TB, db *pgtest.DB, msgs ...deed.Message) []deed.Published {
	t.Helper()
	published, err := deed.Publish(context.Background(), db.Pool(pgtest.App), msgs...)
	if err != nil {
		t.Fatal(err)
	}
	return published
}

// subscribe declares a subscription and brings it what its topic holds.
func subscribe(t testing.TB, db *pgtest.DB, topic, name string) int {
	t.Helper()
	id := pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe($1, $2)`, topic, name)
	scan(t, db, id)
	return id
}

// scan backfills what is committed. That nothing late is to come is known only
// when all older transactions of the whole server have ended, other tests'
// included: few tests need it.
func scan(t testing.TB, db *pgtest.DB, subscription int) {
	t.Helper()
	for scanned := false; !scanned; {
		pgtest.One[int](t, db.Pool(pgtest.Worker), `select added from deed.backfill($1)`, subscription)
		scanned = pgtest.One[bool](t, db.Pool(pgtest.Worker), `select scanned from deed.backfills where subscription = $1`, subscription)
	}
}

// backfill brings a subscription all that it is owed, late commits included.
func backfill(t testing.TB, db *pgtest.DB, subscription int) {
	t.Helper()
	eventuallyWithin(t, 3*time.Minute, "the backfill to finish", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select finished from deed.backfill($1)`, subscription)
	})
}

// eventually polls cond, for things that happen in another process.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	eventuallyWithin(t, pgtest.Patience, what, cond)
}

func eventuallyWithin(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	if !pgtest.Wait(limit, cond) {
		t.Fatalf("waited %s for %s", limit, what)
	}
}

// claimed is a row of deed.claim.
type claimed struct {
	ID, Claim      int64
	Attempts, Lost int
	Payload        string
}

func claim(t testing.TB, pool *pgxpool.Pool, topic, worker string, limit int, more ...any) []claimed {
	t.Helper()
	list, err := tryClaim(pool, topic, worker, limit, more...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// tryClaim claims from the subscription "s"; more is a tenant, then a lease, which is
// long: a busy machine may take a minute from one step of a test to the next.
func tryClaim(pool *pgxpool.Pool, topic, worker string, limit int, more ...any) ([]claimed, error) {
	args := [2]any{nil, "1 hour"}
	copy(args[:], more)
	rows, err := pool.Query(context.Background(), `
		select id, claim, attempts, lost_claims, convert_from(payload, 'UTF8')
		from deed.claim($1, $2, $3, 's', $4::text::uuid, $5::text::interval)
	`, topic, worker, limit, args[0], args[1])
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
}

func finish(t testing.TB, pool *pgxpool.Pool, subscription int, claim int64, ids ...int64) int {
	t.Helper()
	return pgtest.One[int](t, pool, `select deed.finish($1, $2, $3)`, subscription, claim, ids)
}

func ids(list []claimed) []int64 {
	out := make([]int64, len(list))
	for i, c := range list {
		out[i] = c.ID
	}
	return out
}

func message(topic string, n int) deed.Message {
	return deed.Message{Topic: topic, Payload: fmt.Appendf(nil, `{"n":%d}`, n)}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// run starts a client and returns a function that stops it and reports what
// Run returned; the test's end calls it too.
func run(t testing.TB, db *pgtest.DB, opts deed.Options) (c *deed.Client, stop func() error) {
	t.Helper()
	return runOn(t, db.Pool(pgtest.Worker), opts)
}

func runOn(t testing.TB, pool *pgxpool.Pool, opts deed.Options) (c *deed.Client, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := deed.New(ctx, pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- c.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-result
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return c, stop
}

func drained(t testing.TB, c *deed.Client) {
	t.Helper()
	eventually(t, "the subscriptions to be drained", func() bool {
		ok, err := c.Drained(context.Background())
		return err == nil && ok
	})
}

// recorder is a sink that remembers what it was given.
type recorder struct {
	mu   sync.Mutex
	seen map[int64]int
	list []deed.Message
	done []deed.Message // the delivered ones
	fail func(deed.Message) error
}

func (r *recorder) Deliver(_ context.Context, ms []deed.Message) []error {
	outcomes := make([]error, len(ms))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[int64]int{}
	}
	for i, m := range ms {
		r.list = append(r.list, m)
		if r.fail != nil {
			if outcomes[i] = r.fail(m); outcomes[i] != nil {
				continue
			}
		}
		r.seen[m.Seq]++
		r.done = append(r.done, m)
	}
	return outcomes
}

func (r *recorder) counts() (messages, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.seen {
		messages++
		repeats += n - 1
	}
	return messages, repeats
}
