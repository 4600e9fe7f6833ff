package deed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// modelMessage is what the model knows of one message and one subscription.
type modelMessage struct {
	attempts, lost int
	claim          int64 // 0: none
	expired        bool  // the claim's lease has run out
	scheduled      bool
	dead, finished bool
}

// Random operations against an in-memory model: after each step the database
// agrees with the model, and in the end deed.verify finds nothing.
func TestModel(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
	topic := 0
	rapid.Check(t, func(rt *rapid.T) {
		topic++
		name := fmt.Sprintf("model%d", topic)
		maxAttempts := rapid.IntRange(1, 4).Draw(rt, "max attempts")
		// Leases run out when the model says so, and not while the machine is busy.
		const made = `select subscription from deed.subscribe($1, 's', p_max_attempts => $2, p_lease => '1 hour')`
		sub := pgtest.One[int](t, worker, made, name, maxAttempts)
		scan(t, db, sub)
		model := map[int64]*modelMessage{}
		claims := []int64{}
		pick := func() (int64, []int64) {
			if len(claims) == 0 {
				return 1 << 40, nil
			}
			c := rapid.SampledFrom(claims).Draw(rt, "claim")
			var held []int64
			for id := range model {
				if rapid.Bool().Draw(rt, "include") {
					held = append(held, id)
				}
			}
			return c, held
		}
		rt.Repeat(map[string]func(*rapid.T){
			"publish": func(rt *rapid.T) {
				n := rapid.IntRange(1, 5).Draw(rt, "n")
				roll := rapid.Bool().Draw(rt, "roll back")
				scheduled := rapid.Bool().Draw(rt, "scheduled")
				tx, err := db.Pool(pgtest.App).Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				msgs := make([]deed.Message, n)
				for i := range msgs {
					msgs[i] = message(name, i)
					if scheduled {
						msgs[i].ProcessAfter = pgtest.One[time.Time](t, owner, `select now() + interval '1 hour'`)
					}
				}
				published, err := deed.Publish(ctx, tx, msgs...)
				if err != nil {
					t.Fatal(err)
				}
				if roll {
					err = tx.Rollback(ctx)
				} else {
					err = tx.Commit(ctx)
					for _, p := range published {
						model[p.Seq] = &modelMessage{scheduled: scheduled}
					}
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"claim": func(rt *rapid.T) {
				limit := rapid.IntRange(0, 6).Draw(rt, "limit")
				got := claim(t, worker, name, "w", limit)
				for _, c := range got {
					m := model[c.ID]
					free := m != nil && !m.dead && !m.finished && !m.scheduled && (m.claim == 0 || m.expired)
					if !free {
						rt.Fatalf("message %d was claimed; the model has %+v", c.ID, m)
					}
					over := 0 // only the claim that takes over says so
					if m.expired {
						m.lost++
						over = m.lost
					}
					if c.Attempts != m.attempts || c.Lost != over {
						rt.Fatalf("message %d was claimed as %+v; the model has %+v", c.ID, c, m)
					}
					m.claim, m.expired = c.Claim, false
				}
				if len(got) > 0 {
					claims = append(claims, got[0].Claim)
				}
				// What died at the claim, died of lost claims.
				for id, m := range model {
					if m.expired && m.lost+1 >= maxAttempts+10 {
						if pgtest.One[bool](t, owner, `select dead_at is not null from deed.pending where subscription = $1 and id = $2`, sub, id) {
							m.dead, m.claim, m.expired = true, 0, false
							m.lost++
						}
					}
				}
			},
			"finish": func(rt *rapid.T) {
				c, list := pick()
				want := 0
				for _, id := range list {
					if m := model[id]; m.claim == c && !m.dead {
						want++
						m.finished = true
					}
				}
				if got := finish(t, worker, sub, c, list...); got != want {
					rt.Fatalf("finish of %v under claim %d says %d, want %d", list, c, got, want)
				}
			},
			"fail": func(rt *rapid.T) {
				c, list := pick()
				outcome := rapid.SampledFrom([]string{"retry", "discard", "outage", "release"}).Draw(rt, "outcome")
				outcomes, errs := make([]string, len(list)), make([]string, len(list))
				want := 0
				for i, id := range list {
					outcomes[i], errs[i] = outcome, "e"
					m := model[id]
					if m.claim != c || m.finished {
						continue
					}
					want++
					m.claim, m.expired = 0, false
					switch outcome {
					case "retry":
						m.attempts++
						m.scheduled = true
						m.dead = m.attempts >= maxAttempts
					case "discard":
						m.attempts++
						m.dead = true
					}
				}
				got := pgtest.One[int](t, worker, `
					select count(*) from deed.fail($1, $2, $3, $4, p_outcomes => $5,
					  p_after => case when $6 then array_fill('1 hour'::interval, array[greatest(cardinality($3::bigint[]), 1)]) end)`,
					sub, c, list, errs, outcomes, outcome == "retry")
				if got != want {
					rt.Fatalf("fail of %v under claim %d says %d, want %d", list, c, got, want)
				}
			},
			"extend": func(rt *rapid.T) {
				c, list := pick()
				want := 0
				for _, id := range list {
					if m := model[id]; m.claim == c && !m.finished {
						want++
						m.expired = false
					}
				}
				if got := pgtest.One[[]int64](t, worker, `select deed.extend($1, $2, $3)`, sub, c, list); len(got) != want {
					rt.Fatalf("extend of %v under claim %d says %v, want %d", list, c, got, want)
				}
			},
			"leases run out": func(*rapid.T) {
				db.Exec(t, pgtest.Owner, `update deed.pending set lease_until = now() - interval '1 ms' where subscription = $1 and claim is not null`, sub)
				for _, m := range model {
					m.expired = m.claim != 0 && !m.finished
				}
			},
			"time passes": func(*rapid.T) {
				db.Exec(t, pgtest.Owner, `update deed.pending set process_after = now() - interval '1 s' where subscription = $1 and process_after > now()`, sub)
				for _, m := range model {
					m.scheduled = false
				}
			},
			"redrive": func(rt *rapid.T) {
				want := 0
				for _, m := range model {
					if m.dead {
						want++
						*m = modelMessage{}
					}
				}
				if want == 0 {
					return
				}
				if got := pgtest.One[int](t, db.Pool(pgtest.Admin), `select redriven::int from deed.redrive(gen_random_uuid()::text, $1)`, name); got != want {
					rt.Fatalf("redrive says %d, want %d", got, want)
				}
			},
			"removed and made anew": func(rt *rapid.T) {
				if rapid.IntRange(0, 4).Draw(rt, "seldom") > 0 {
					return
				}
				waited := 0
				for _, m := range model {
					if !m.finished {
						waited++
					}
				}
				n := pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.remove_subscription($1, 's', 'x')`, name)
				for state := "going"; state == "going"; {
					state = pgtest.One[string](t, worker, `select state from deed.remove_step($1, 3)`, n)
				}
				if got := pgtest.One[int](t, worker, `select taken from deed.removals where n = $1`, n); got != waited {
					rt.Fatalf("%d messages were given up, want %d", got, waited)
				}
				sub = pgtest.One[int](t, worker, made, name, maxAttempts)
				scan(t, db, sub)
				model = map[int64]*modelMessage{}
			},
			"": func(rt *rapid.T) { compareModel(t, rt, db, sub, model) },
		})
		if n := pgtest.One[int](t, owner, `select count(*) from deed.verify()`); n != 0 {
			rt.Fatalf("deed.verify finds %d violations", n)
		}
	})
}

func compareModel(t *testing.T, rt *rapid.T, db *pgtest.DB, sub int, model map[int64]*modelMessage) {
	owner := db.Pool(pgtest.Owner)
	rows, err := owner.Query(context.Background(), `
		select id, attempts, lost_claims, coalesce(claim, 0), dead_at is not null from deed.pending where subscription = $1`, sub)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID             int64
		Attempts, Lost int
		Claim          int64
		Dead           bool
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		t.Fatal(err)
	}
	pending := map[int64]row{}
	for _, r := range list {
		pending[r.ID] = r
	}
	for id, m := range model {
		r, ok := pending[id]
		if ok == m.finished {
			rt.Fatalf("message %d is pending %t; the model has %+v", id, ok, m)
		}
		if want := (row{id, m.attempts, m.lost, m.claim, m.dead}); ok && r != want {
			rt.Fatalf("message %d is %+v; the model has %+v", id, r, want)
		}
		delete(pending, id)
	}
	if len(pending) > 0 {
		rt.Fatalf("pending and unknown to the model: %v", pending)
	}
}
