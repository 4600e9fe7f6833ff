package inbound

import (
	"context"
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

// tell tells whoever waits for a message.
func (w *waiting) tell(id string, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byID[id] {
		select {
		case c <- o:
		default: // it has been told
		}
	}
}

func (w *waiting) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]string, 0, len(w.byID))
	for id := range w.byID {
		list = append(list, id)
	}
	return list
}

// lookEvery is how often outcomes are looked for that another process may have recorded.
const lookEvery = 100 * time.Millisecond

func (r *Receiver) lookForWaiting(ctx context.Context) {
	for work.Sleep(ctx, lookEvery) {
		ids := r.waiting.ids()
		if len(ids) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, r.opts.Deadline)
		rows, err := r.pool.Query(bounded, query.Outcomes, ids)
		var id string
		var o outcome
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&id, &o.status, &o.held}, func() error {
				r.waiting.tell(id, o)
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
