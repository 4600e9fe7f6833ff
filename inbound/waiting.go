package inbound

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/work"
)

// outcome is what has become of a message.
type outcome struct {
	status Status
	held   bool
}

// waiting are the requests that wait for the outcomes of messages. A message may be run
// by another process, so those are looked for, too.
type waiting struct {
	mu   sync.Mutex
	byID map[string][]chan outcome // guarded by mu: by message; each channel holds one
}

// add waits for a message; drop ends that.
func (w *waiting) add(id string) (came chan outcome, drop func()) {
	came = make(chan outcome, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID == nil {
		w.byID = map[string][]chan outcome{}
	}
	w.byID[id] = append(w.byID[id], came)
	return came, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		list := w.byID[id]
		for i, c := range list {
			if c == came {
				list = append(list[:i:i], list[i+1:]...)
				break
			}
		}
		if w.byID[id] = list; len(list) == 0 {
			delete(w.byID, id)
		}
	}
}

// listeners are those who wait for a message by now. Whoever is told of an outcome has
// waited before it was looked for or recorded: who came later waits for another one.
func (w *waiting) listeners(id string) []chan outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.byID[id])
}

// all are those who wait for anything, by message.
func (w *waiting) all() map[string][]chan outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make(map[string][]chan outcome, len(w.byID))
	for id, who := range w.byID {
		list[id] = slices.Clone(who)
	}
	return list
}

func tell(who []chan outcome, o outcome) {
	for _, c := range who {
		select {
		case c <- o:
		default: // it has been told
		}
	}
}

// lookEvery is how often outcomes are looked for that another process may have recorded.
const lookEvery = 100 * time.Millisecond

func (r *Receiver) lookForWaiting(ctx context.Context) {
	for work.Sleep(ctx, lookEvery) {
		who := r.waiting.all()
		if len(who) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.opts.Deadline)
		rows, err := r.pool.Query(bounded, query.Outcomes, slices.Collect(maps.Keys(who)))
		var id string
		var o outcome
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&id, &o.status, &o.held}, func() error {
				tell(who[id], o)
				return nil
			})
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			r.opts.Logger.Warn("looking for outcomes failed; will try again", "error", err)
			work.Sleep(ctx, time.Second)
		}
	}
}
