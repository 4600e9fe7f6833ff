package run_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// untilAnswered appends until somebody says what became of it: an answer that never came is
// asked for again.
func untilAnswered(ctx context.Context, url string, e run.New) (a run.Appended, err error) {
	for ctx.Err() == nil {
		if a, err = appendOnce(ctx, url, e); err == nil || sqlState(err)[:min(2, len(sqlState(err)))] == "DD" {
			return a, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // it is starting
		}
	}
	return a, ctx.Err()
}

func appendOnce(ctx context.Context, url string, e run.New) (a run.Appended, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return a, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		list, err := run.Append(ctx, tx, "", e)
		if err == nil {
			a = list[0]
		}
		return err
	})
	return a, err
}

// The server is killed while writers append and a projector projects, five times, and comes
// back. What was answered is there under the number that was told; each event is there
// once, without a gap, with one message; and the snapshots are what the events say.
func TestContract_R2_TheServerIsKilled(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Private(t, pgembed.Options{})
	db := cluster.DB(t)
	runs := []string{running(t, db, "a"), running(t, db, "b")}
	_, stop := projecting(t, db, &lines{})
	eventually(t, "the projector to be at work", func() bool { return lastOf(t, db, runs[0]) == 2 && lastOf(t, db, runs[1]) == 2 }) // one that is cut off as it registers ends
	const writers, steps = 6, 40
	var mu sync.Mutex
	told := map[string]int64{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range steps {
				e := run.New{Run: runs[n%2], Type: run.StepCompleted, Step: fmt.Sprint(w, "-", n), Attempt: 1, Data: begun}
				a, err := untilAnswered(t.Context(), db.URL(pgtest.Worker), e)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				told[e.Run+" "+e.Step] = a.Seq
				mu.Unlock()
			}
		})
	}
	answered := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(told)
	}
	for kill := range 5 {
		pgtest.Wait(time.Minute, func() bool { return answered() >= (kill+1)*writers*steps/8 })
		cluster.Kill()
		if err := cluster.Restart(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	owner := db.Conn(t, pgtest.Owner)
	for _, r := range runs {
		const events = 2 + writers*steps // a start and an end of half the steps each
		if !pgtest.Wait(3*time.Minute, func() bool {
			var last int64
			err := owner.QueryRow(t.Context(), `select coalesce(max(last_event_seq), 0) from deed.run_snapshots where run_id = $1::text::uuid`, r).Scan(&last)
			return err == nil && last == events
		}) {
			t.Fatal("timed out waiting for the snapshots")
		}
		want(t, "events", pgtest.One[string](t, owner, `
			select concat_ws(' ', count(*), min(run_seq), max(run_seq), count(distinct (event_type, step_id))) from deed.run_log where run_id = $1::text::uuid`, r), fmt.Sprint(events, " 1 ", events, " ", events))
		want(t, "messages", pgtest.One[string](t, owner, `
			select concat_ws(' ', count(*), count(distinct convert_from(payload, 'UTF8')::jsonb ->> 'runSeq')) from deed.log where key = $1`, r), fmt.Sprint(events, " ", events))
		if found, err := run.Rebuild(t.Context(), owner, r, true); err != nil || len(found) > 0 {
			t.Errorf("snapshots are not what the events say: %+v, %v", found, err)
		}
	}
	stop()
	want(t, "answers", len(told), writers*steps)
	for what, seq := range told {
		want(t, what, pgtest.One[int64](t, owner, `select run_seq from deed.run_log where run_id::text || ' ' || step_id = $1 and event_type = 'StepCompleted'`, what), seq)
	}
}
