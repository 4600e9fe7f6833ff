package run_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// call is what was asked of one run: to append events, each as "TYPE STEP", in one call, or to
// read the log.
type call struct {
	run    string
	events []string // nil: to read
	again  bool     // it may have been repeated before it was answered, and then it is a repeat
}

// answer is what came of it; lost: nobody knows whether it was committed.
type answer struct {
	lost     bool
	seqs     []int64
	repeated []bool
	log      []string // of a read
}

// appendLog is a run's log as one that nobody shares: the next number is the last one and one; a
// repeat has the first one's, and changes nothing; the start of a step comes before its end.
func appendLog(log, events []string) (_ []string, a answer) {
	log = slices.Clone(log)
	for _, e := range events {
		at := slices.Index(log, e)
		a.repeated = append(a.repeated, at >= 0)
		if at < 0 {
			if start := strings.Replace(e, string(run.StepCompleted), string(run.StepStarted), 1); !slices.Contains(log, start) && start != e {
				log = append(log, start)
			}
			log = append(log, e)
			at = len(log) - 1
		}
		a.seqs = append(a.seqs, int64(at+1))
	}
	return log, a
}

// logModel says which answers one log explains. A call whose answer was lost was committed, or was not.
var logModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		of := map[string]int{}
		for _, op := range history {
			r := op.Input.(call).run
			n, ok := of[r]
			if !ok {
				n = len(parts)
				of[r], parts = n, append(parts, nil)
			}
			parts[n] = append(parts[n], op)
		}
		return parts
	},
	Init: func() []any {
		return []any{[]string{string(run.RunApproved), string(run.RunStarted)}}
	},
	Step: func(state, input, output any) []any {
		log, in, out := state.([]string), input.(call), output.(answer)
		if in.events == nil {
			if slices.Equal(log, out.log) {
				return []any{log}
			}
			return nil
		}
		after, would := appendLog(log, in.events)
		switch {
		case out.lost:
			return []any{log, after}
		case slices.Equal(would.seqs, out.seqs) && (slices.Equal(would.repeated, out.repeated) || in.again && out.repeated[0]):
			return []any{after}
		}
		return nil
	},
	Equal: func(a, b any) bool { return slices.Equal(a.([]string), b.([]string)) },
}

// What sixteen writers of three runs are told, who repeat each other's events, roll back, append
// by an Appender and lose answers, and what those see who read meanwhile: of each run one log explains it all, in
// which each call stands between its beginning and its answer (porcupine).
func TestContract_R2_AppendsAreLinearizable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	runs := []string{running(t, db, "a"), running(t, db, "b"), running(t, db, "c")}
	var lost arming
	deafened := deafPool(t, db, "commit", &lost)
	pool := db.NewPool(pgtest.Worker, 16)
	var lostByAll arming
	gathering := appender(t, deafPool(t, db, "append_events", &lostByAll), run.AppenderOptions{})
	appending(t, gathering)
	began := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	note := func(client int, called time.Duration, in call, out answer) {
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: int64(called), Output: out, Return: int64(time.Since(began))})
	}
	read := func(client int, r string) {
		called := time.Since(began)
		events, err := run.Events(t.Context(), pool, r, 0, 1000)
		if err != nil {
			t.Error(err)
			return
		}
		log := make([]string, len(events))
		for i, e := range events {
			log[i] = strings.TrimSpace(string(e.Type) + " " + e.Step)
		}
		note(client, called, call{run: r}, answer{log: log})
	}
	var wg sync.WaitGroup
	for w := range 16 {
		rng := rand.New(rand.NewPCG(uint64(w), 29))
		wg.Go(func() {
			for n := range 25 {
				r := runs[rng.IntN(len(runs))]
				var events []run.New
				in := call{run: r}
				for range 1 + rng.IntN(3) {
					e := run.New{Run: r, Step: fmt.Sprint("s", rng.IntN(60)), Attempt: 1, Type: run.StepStarted}
					if rng.IntN(2) == 0 {
						e.Type, e.Data = run.StepCompleted, begun
					}
					events, in.events = append(events, e), append(in.events, string(e.Type)+" "+e.Step)
				}
				called := time.Since(began)
				var got []run.Appended
				switch {
				case w == n: // one in 25 loses its answer
					lost.Add(1)
					if err := appendIn(t.Context(), deafened, nil, events...); err == nil {
						t.Error("the commit's answer came")
					}
					note(w, called, in, answer{lost: true})
					continue
				case rng.IntN(8) == 0:
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						_, err := run.Append(t.Context(), tx, "", events...)
						return errors.Join(err, errRolledBack)
					})
					if !errors.Is(err, errRolledBack) {
						t.Error(err)
					}
					continue
				case rng.IntN(8) == 0:
					read(w, r)
					continue
				case rng.IntN(2) == 0:
					if n%8 == 0 {
						lostByAll.Store(1)
					}
					in.events, in.again = in.events[:1], true
					a, err := gathering.Append(t.Context(), events[0])
					if err != nil {
						t.Error(err)
						return
					}
					note(w, called, in, answer{seqs: []int64{a.Seq}, repeated: []bool{a.Repeated}})
					continue
				}
				if err := appendIn(t.Context(), pool, &got, events...); err != nil {
					t.Error(err)
					return
				}
				var out answer
				for _, a := range got {
					out.seqs, out.repeated = append(out.seqs, a.Seq), append(out.repeated, a.Repeated)
				}
				note(w, called, in, out)
			}
		})
	}
	wg.Wait()
	for i := range history { // what was lost may be committed at any time
		if history[i].Output.(answer).lost {
			history[i].Return = int64(time.Since(began))
		}
	}
	for _, r := range runs {
		read(0, r)
	}
	if t.Failed() {
		return
	}
	if !porcupine.CheckOperations(logModel.ToModel(), history) {
		t.Errorf("no log explains what was answered in %d calls", len(history))
	}
}
