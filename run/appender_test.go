package run_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// appender makes one. Unless the test says otherwise its statements have all the time there is: one that is tried again, as the machine is busy with
// other things, says that what it has appended is a repeat.
func appender(t testing.TB, pool *pgxpool.Pool, opts run.AppenderOptions) *run.Appender {
	t.Helper()
	opts.Deadline = cmp.Or(opts.Deadline, pgtest.Patience)
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	a, err := run.NewAppender(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// appending runs a until stop, or the end of the test.
func appending(t testing.TB, a *run.Appender) (stop func()) {
	t.Helper()
	return background(t, a.Run)
}

// told is what the caller of an Appender was told of an event.
type told struct {
	event run.New
	got   run.Appended
	err   error
}

// bring has each of events appended by a goroutine of its own.
func bring(ctx context.Context, a *run.Appender, events ...run.New) (wait func() []told) {
	list := make([]told, len(events))
	var wg sync.WaitGroup
	for i, e := range events {
		list[i].event = e
		wg.Go(func() { list[i].got, list[i].err = a.Append(ctx, e) })
	}
	return func() []told { wg.Wait(); return list }
}

func completed(r, step string) run.New {
	return run.New{Run: r, Type: run.StepCompleted, Step: step, Attempt: 1, Data: begun}
}

// checkTold holds what callers were told against the log.
func checkTold(t *testing.T, db *pgtest.DB, list []told) {
	t.Helper()
	for _, x := range list {
		if x.err != nil {
			t.Errorf("%s of %s: %v", x.event.Type, x.event.Step, x.err)
			continue
		}
		want(t, "what was told", pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select concat_ws(' ', event_type, step_id, deed.run_event_id(run_id, run_seq)) from deed.run_log where run_id = $1::text::uuid and run_seq = $2`, x.event.Run, x.got.Seq), fmt.Sprint(x.event.Type, " ", x.event.Step, " ", x.got.ID))
	}
	want(t, "each once, without a gap, and published", pgtest.One[bool](t, db.Pool(pgtest.Owner), `
		select bool_and(n = last and n = steps and n = (select count(*) from deed.log m where m.key = q.run_id::text))
		from (select run_id, count(*) as n, max(run_seq) as last, count(distinct (event_type, step_id)) as steps from deed.run_log group by run_id) q`), true)
}

// What waits is appended in one statement and one commit. Of those a few are wrong: each fails its own
// caller, with its own error, and nobody else.
func TestAppender_OneBadEventFailsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := []string{running(t, db, "a"), running(t, db, "b"), make1(t, db, "c")}
	a := appender(t, db.Pool(pgtest.Worker), run.AppenderOptions{Adapter: "test/1"})
	var good []run.New
	for n := range 100 {
		good = append(good, completed(runs[n%2], fmt.Sprint("s", n)))
	}
	all := bring(t.Context(), a, good...)
	eventually(t, "all to wait", func() bool { return a.Waiting() == len(good) })
	appending(t, a)
	checkTold(t, db, all())
	want(t, "statements", a.Stats(), run.AppenderStats{Events: 100, Statements: 1})
	want(t, "transactions", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(distinct xmin::text) from deed.run_log where adapter_version = 'test/1'`), 1)

	bad := map[string]deed.Code{"an attempt too far": deed.Conflict, "a NUL \x00": deed.Invalid, strings.Repeat("x", 201): deed.Invalid, "an unknown run": deed.NotFound, "a run that has not begun": deed.Conflict, "no attempt": deed.Invalid}
	var mixed []run.New
	for n := range 40 {
		mixed = append(mixed, completed(runs[n%2], fmt.Sprint("t", n)))
	}
	for step := range bad {
		e := completed(runs[0], step)
		switch step {
		case "an attempt too far":
			e.Attempt = 3
		case "no attempt":
			e.Attempt = 0
		case "an unknown run":
			e.Run = "00000000-0000-7000-8000-000000000000"
		case "a run that has not begun":
			e.Run = runs[2]
		}
		mixed = append(mixed, e)
	}
	rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	b := appender(t, db.Pool(pgtest.Worker), run.AppenderOptions{})
	all = bring(t.Context(), b, mixed...)
	eventually(t, "all to wait", func() bool { return b.Waiting() == len(mixed)-1 }) // without an attempt none does
	appending(t, b)
	var rest []told
	for _, x := range all() {
		code, ok := bad[x.event.Step]
		if ok {
			want(t, x.event.Step, deed.CodeOf(x.err), code)
			want(t, "of it in the log", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where step_id = $1`, strings.ReplaceAll(x.event.Step, "\x00", "")), 0)
			continue
		}
		rest = append(rest, x)
	}
	checkTold(t, db, rest)
	want(t, "events", b.Stats().Events, 40)
}

// An answer that never comes is asked for again, and says what the first would have said but that it
// is a repeat.
func TestAppender_AnswersThatNeverCome(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := []string{running(t, db, "a"), running(t, db, "b")}
	var armed arming
	a := appender(t, deafPool(t, db, "try_append_events", &armed), run.AppenderOptions{})
	var events []run.New
	for n := range 60 {
		events = append(events, completed(runs[n%2], fmt.Sprint("s", n)))
	}
	all := bring(t.Context(), a, events...)
	eventually(t, "all to wait", func() bool { return a.Waiting() == len(events) })
	armed.Store(1)
	appending(t, a)
	list := all()
	checkTold(t, db, list)
	for _, x := range list {
		want(t, "repeated", x.got.Repeated, true)
	}
	want(t, "new ones", a.Stats().Events, 0)
}

// Many callers, of which some bring what is wrong, what others bring and what was brought before, while connections are
// killed and answers are lost: each is told what the log says.
func TestContract_R3_AppenderOfMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var runs []string
	for n := range 4 {
		runs = append(runs, running(t, db, fmt.Sprint(n)))
	}
	var armed arming
	a := appender(t, deafPool(t, db, "append_events", &armed), run.AppenderOptions{Batch: 20})
	appending(t, a)
	var mu sync.Mutex
	var list []told
	fresh := map[string]int{}
	var callers sync.WaitGroup
	for w := range 32 {
		rng := rand.New(rand.NewPCG(uint64(w), 5))
		callers.Go(func() {
			for n := range 12 {
				e := completed(runs[rng.IntN(len(runs))], fmt.Sprint("s", rng.IntN(60)))
				if n%4 == w%4 { // wrong
					e.Attempt = 7
					if _, err := a.Append(t.Context(), e); deed.CodeOf(err) != deed.Conflict {
						t.Errorf("an attempt too far: %v", err)
					}
					continue
				}
				got, err := a.Append(t.Context(), e)
				mu.Lock()
				list = append(list, told{e, got, err})
				if !got.Repeated {
					fresh[e.Run+" "+e.Step]++
				}
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { callers.Wait(); close(done) }()
	owner := db.Conn(t, pgtest.Owner)
	killed := 0
	for n := 0; ; n++ {
		select {
		case <-done:
			checkTold(t, db, list)
			if armed.lost.Load() == 0 {
				t.Error("no answer was lost")
			}
			if killed == 0 {
				t.Error("no connection was killed")
			}
			for what, n := range fresh {
				if n > 1 {
					t.Errorf("%s was new %d times", what, n)
				}
			}
			return
		default:
		}
		if before := a.Stats().Statements; n < 8 { // then it may come to its end
			if n%2 == 0 { // one after the other: what a killed one has sent has no answer to be lost
				armed.Store(1)
			} else {
				killed += pgtest.One[int](t, owner, `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and query like '%append_events%' and pid <> pg_backend_pid()`)
			}
			pgtest.Wait(time.Minute, func() bool {
				select {
				case <-done:
					return true
				default:
					return a.Stats().Statements > before+2
				}
			})
		} else {
			armed.Store(0)
			<-done
		}
	}
}

// Who appends to a run and leaves the transaction open holds up that run, and no other: more of them, too, than
// the Appender has connections to wait with.
func TestAppender_ALockedRunHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a := appender(t, db.NewPool(pgtest.Worker, 3), run.AppenderOptions{Statements: 2, Deadline: time.Hour})
	appending(t, a)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	var held []run.New
	for n := range 5 {
		r := running(t, db, fmt.Sprint("held", n))
		if _, err := run.Append(t.Context(), tx, "", completed(r, "first")); err != nil {
			t.Fatal(err)
		}
		held = append(held, completed(r, "s"), completed(r, "t"))
	}
	waiting := bring(t.Context(), a, held...)
	free := running(t, db, "free")
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	for n := range 20 { // each beside them
		if _, err := a.Append(ctx, completed(free, fmt.Sprint("s", n))); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "of those that are held", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where step_id = 't'`), 0)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTold(t, db, waiting())
}

// Where as many runs stay locked as the Appender has connections to wait with, one that is locked for a moment is appended to when it is free,
// and not when one of the others is.
func TestAppender_ARunThatIsLockedForAMomentWaitsForNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a := appender(t, db.NewPool(pgtest.Worker, 2), run.AppenderOptions{Deadline: time.Hour})
	appending(t, a)
	long, short := running(t, db, "long"), running(t, db, "short")
	lock := func(r string) pgx.Tx {
		t.Helper()
		tx, err := db.Conn(t, pgtest.Owner).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Append(t.Context(), tx, "", completed(r, "undone")); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	forLong, forShort := lock(long), lock(short)
	defer forLong.Rollback(context.Background())
	defer forShort.Rollback(context.Background())
	waits := bring(t.Context(), a, completed(long, "s"))
	eventually(t, "the one to be waited for", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%append_events%')`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.Patience)
	defer cancel()
	before := a.Stats().Statements
	comes := bring(ctx, a, completed(short, "s"))
	eventually(t, "the other to be found locked", func() bool { return a.Stats().Statements > before && a.Waiting() == 1 })
	if err := forShort.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := comes()
	if err := forLong.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTold(t, db, append(got, waits()...))
}

// A caller who does not wait any longer harms nobody: what nobody has begun with is not appended, and the others are.
func TestAppender_CallersLeave(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	a := appender(t, db.Pool(pgtest.Worker), run.AppenderOptions{})
	ctx, leave := context.WithCancel(t.Context())
	left := bring(ctx, a, completed(r, "left"))
	stay := bring(t.Context(), a, completed(r, "s"), completed(r, "t"))
	eventually(t, "all to wait", func() bool { return a.Waiting() == 3 })
	leave()
	if x := left()[0]; !errors.Is(x.err, context.Canceled) {
		t.Errorf("who left: %v", x.err)
	}
	appending(t, a)
	checkTold(t, db, stay())
	want(t, "of who left", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_log where step_id = 'left'`), 0)

	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := run.Append(t.Context(), tx, "", completed(r, "open")); err != nil {
		t.Fatal(err)
	}
	ctx, leave = context.WithCancel(t.Context())
	left, stay = bring(ctx, a, completed(r, "left")), bring(t.Context(), a, completed(r, "u"))
	eventually(t, "somebody to wait for the run", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%append_events%')`)
	})
	leave()
	if x := left()[0]; !errors.Is(x.err, context.Canceled) {
		t.Errorf("who left: %v", x.err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkTold(t, db, stay())
}

// When Run ends what is in a statement is finished, and who waits is told what became of the event.
func TestAppender_Stops(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r := running(t, db, "a")
	a := appender(t, db.Pool(pgtest.Worker), run.AppenderOptions{Deadline: time.Hour})
	stop := appending(t, a)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := run.Append(t.Context(), tx, "", completed(r, "open")); err != nil {
		t.Fatal(err)
	}
	waits := bring(t.Context(), a, completed(r, "s"))
	eventually(t, "it to wait for the run", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%append_events%')`)
	})
	begun := bring(t.Context(), a, completed(r, "t"))
	eventually(t, "one more to wait", func() bool { return a.Waiting() == 1 })
	stop()
	for what, list := range map[string][]told{"it was tried": waits(), "it was not appended": begun()} {
		if err := list[0].err; err == nil || !strings.Contains(err.Error(), map[string]string{"it was tried": "append it again"}[what]) || what == "it was not appended" && !strings.Contains(err.Error(), "was not appended") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := a.Append(t.Context(), completed(r, "u")); err == nil || !strings.Contains(err.Error(), "has stopped") {
		t.Errorf("afterwards: %v", err)
	}
	if err := a.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
}

func TestNewAppender_SaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := run.NewAppender(db.NewPool(pgtest.Worker, 4), run.AppenderOptions{Adapter: strings.Repeat("x", 41), Statements: 4, Batch: 10_001, Deadline: -1})
	for _, what := range []string{"adapter", "statements 4", "batch", "deadline"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%s is not in %v", what, err)
		}
	}
	if _, err := run.NewAppender(db.NewPool(pgtest.Worker, 1), run.AppenderOptions{}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("one connection: %v", err)
	}
	// What no repeat would mend is told at once: here a right that the login lacks.
	a := appender(t, db.NewPool(pgtest.App, 2), run.AppenderOptions{})
	appending(t, a)
	if _, err := a.Append(t.Context(), completed(running(t, db, "a"), "s")); sqlState(err) != "42501" {
		t.Errorf("the application appends: %v", err)
	}
}

// deed.try_append_events appends what it can: an event of a run that somebody has locked is the one
// that has no number; of wrong ones it refuses all, as deed.append_events does.
func TestTryAppend_WaitsForNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := running(t, db, "a"), running(t, db, "b")
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := run.Append(t.Context(), tx, "", completed(a, "open")); err != nil {
		t.Fatal(err)
	}
	try := func(sql string, args ...any) string {
		t.Helper()
		rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `select coalesce(string_agg(concat_ws(' ', ordinal, run_seq, repeated), ', ' order by ordinal), '') from deed.try_append_events(`+sql+`)`, args...)
		if err == nil {
			var s string
			if s, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string]); err == nil {
				return s
			}
		}
		return sqlState(err)
	}
	three := `array[$1, $2, $1]::text[]::uuid[], '{StepStarted,StepCompleted,StepStarted}', '{x,y,z}', '{1,1,1}', p_data => $3::text[]::jsonb[]`
	data := []*string{nil, ptr(string(begun)), nil}
	want(t, "one of three", try(three, a, b, data), "1, 2 4 f, 3")
	want(t, "again", try(three, a, b, data), "1, 2 4 t, 3")
	want(t, "all held", try(`array[$1]::text[]::uuid[], '{StepStarted}', '{x}', '{1}'`, a), "1")
	want(t, "without the arrays that need not be", try(`array[$1, $2]::text[]::uuid[], '{StepStarted,StepStarted}', '{v,v}', '{1,1}'`, a, b), "1, 2 5 f")
	want(t, "an unknown run beside it", try(`array[$1, $2]::text[]::uuid[], '{StepStarted,StepStarted}', '{x,x}', '{1,1}'`, a, "00000000-0000-7000-8000-000000000000"), "DDNFD")
	want(t, "unequal lengths", try(`array[$1, $2]::text[]::uuid[], '{StepStarted}', '{x,x}', '{1,1}'`, a, b), "DDARG")
	want(t, "nothing", try(`'{}', '{}', '{}', '{}'`), "")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "then", try(three, a, b, data), "1 5 f, 2 4 t, 3 6 f")
}

func ptr[T any](v T) *T { return &v }
