package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/journal"
)

// journalSize is how large the journal may get.
const journalSize = 64 << 20

// tellEvery is how often what is in the journal is told again (R14).
const tellEvery = time.Second

// mostUntold is how many announcements are held; of what comes beyond them the end tells the start.
const mostUntold = 10_000

// beginning is that a step has begun, as the journal has it.
type beginning struct {
	Run     string    `json:"run"`
	Place   int       `json:"place"`
	Claim   int64     `json:"claim"`
	Attempt int       `json:"attempt"`
	Engine  int       `json:"engine_attempt"`
	Started time.Time `json:"started_at"`

	due  time.Time // when telling it is past the budget
	text []byte    // in the journal; nil: it is not
}

// teller tells of steps that have run for a while, and puts what it cannot tell within the budget into the journal. It is one goroutine's.
type teller struct {
	e       *Engine
	untold  []*beginning
	journal *journal.Journal // nil: there is none, or it is another's
	since   time.Time        // since when it fails; zero: it does not
	stored  int              // entries in its file, also of what was told since
}

// announcer is that goroutine, until ctx ends. What is in the journal then, the next process tells.
func (e *Engine) announcer(ctx context.Context) {
	t := &teller{e: e}
	t.open()
	defer t.close()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case it := <-e.slow:
			t.add(it)
		case <-again.C:
			if t.journal == nil {
				t.open()
			}
		}
		for more := true; more; {
			select {
			case it := <-e.slow:
				t.add(it)
			default:
				more = false
			}
		}
		t.tell(ctx)
		again.Reset(t.pause())
	}
}

// pause is after what time it tells again.
func (t *teller) pause() time.Duration {
	for _, b := range t.untold {
		if b.text == nil {
			return min(tellEvery, max(time.Until(b.due), 50*time.Millisecond))
		}
	}
	return tellEvery
}

func (t *teller) add(it *item) {
	if len(t.untold) >= mostUntold {
		return
	}
	t.untold = append(t.untold, &beginning{
		Run: it.run, Place: it.place, Claim: it.claim, Attempt: it.attempt, Engine: it.engine, Started: it.started,
		due: it.started.Add(announceAfter + t.e.opts.StateStore.WriteLatencyBudget),
	})
}

// tell tells all that is untold, 100 at a time; what it cannot is put aside.
func (t *teller) tell(ctx context.Context) {
	// Of two beginnings of an attempt the first is told.
	slices.SortStableFunc(t.untold, func(a, b *beginning) int { return a.Started.Compare(b.Started) })
	var left []*beginning
	for n := 0; n < len(t.untold); n += 100 {
		list := t.untold[n:min(n+100, len(t.untold))]
		again, err := t.some(ctx, list)
		if err != nil {
			if ctx.Err() == nil {
				t.e.opts.Logger.Warn("that steps have begun was not told; it is told later, at the latest with their ends", "error", err, "steps", len(t.untold)-n)
			}
			left = append(left, t.untold[n:]...) // the others fare no better now, and some have a budget that runs
			break
		}
		left = append(left, again...)
	}
	t.untold = left
	t.keep()
	t.clear()
}

// some tells list, and returns what is to be told again.
func (t *teller) some(ctx context.Context, list []*beginning) (again []*beginning, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.within())
	defer cancel()
	locked, err := t.announce(ctx, list)
	if err != nil && !passing(err) && ctx.Err() == nil {
		return t.oneByOne(ctx, list), nil
	}
	if err != nil {
		return list, err
	}
	for n, b := range list {
		switch {
		case slices.Contains(locked, n+1):
			again = append(again, b)
		case b.text != nil:
			t.e.replayed.Add(1)
		}
	}
	return again, nil
}

// oneByOne tells list of which together something is refused, as of a tenant that is being removed; that is told no more.
func (t *teller) oneByOne(ctx context.Context, list []*beginning) (again []*beginning) {
	for _, b := range list {
		locked, err := t.announce(ctx, []*beginning{b})
		switch {
		case err != nil && (passing(err) || ctx.Err() != nil), len(locked) > 0:
			again = append(again, b)
		case err != nil:
			t.e.opts.Logger.Warn("that a step has begun is refused; its end tells it", "run", b.Run, "error", err)
		case b.text != nil:
			t.e.replayed.Add(1)
		}
	}
	return again
}

// within is for how long it waits for the database: until the first that is not in the journal is past its budget.
func (t *teller) within() time.Duration {
	bound := min(t.e.opts.StateStore.WriteLatencyBudget, t.e.opts.Deadline)
	for _, b := range t.untold {
		if left := time.Until(b.due); b.text == nil && left > 0 {
			bound = min(bound, left)
		}
	}
	return max(bound, 10*time.Millisecond)
}

func (t *teller) announce(ctx context.Context, list []*beginning) (locked []int, err error) {
	n := len(list)
	runs, places, claims, started, attempts, engines := make([]string, n), make([]int, n), make([]int64, n), make([]time.Time, n), make([]int, n), make([]int, n)
	for i, b := range list {
		runs[i], places[i], claims[i], started[i], attempts[i], engines[i] = b.Run, b.Place, b.Claim, b.Started, b.Attempt, b.Engine
	}
	rows, err := t.e.pool.Query(ctx, query.Announce, runs, places, claims, started, adapter, attempts, engines)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// keep puts what is past its budget into the journal.
func (t *teller) keep() {
	if t.journal == nil || !t.e.opts.StateStore.failsOpen() {
		return
	}
	var late []*beginning
	var texts [][]byte
	for _, b := range t.untold {
		if b.text == nil && time.Until(b.due) <= 0 {
			text, err := json.Marshal(b)
			if err != nil {
				continue // of numbers and an id
			}
			late, texts = append(late, b), append(texts, text)
		}
	}
	if len(late) == 0 {
		return
	}
	err := t.journal.Append(texts...)
	if errors.Is(err, journal.ErrFull) {
		// Of what was told since, it needs nothing any more.
		if err = t.rewrite(); err == nil {
			err = t.journal.Append(texts...)
		}
	}
	if err != nil {
		t.failed(err)
		return
	}
	t.works()
	t.e.journaled.Add(int64(len(late)))
	t.stored += len(late)
	for i, b := range late {
		b.text = texts[i]
	}
}

// clear takes what was told out of the file: at once when that is all, else when most of it was.
func (t *teller) clear() {
	if t.journal == nil {
		return
	}
	n := 0
	for _, b := range t.untold {
		if b.text != nil {
			n++
		}
	}
	if n == t.stored || n > 0 && (n > t.stored/2 || t.journal.Size() < 1<<20) {
		return
	}
	crash.Point("journal told")
	if err := t.rewrite(); err != nil {
		t.failed(err)
	}
}

// rewrite has the file have what is untold, and nothing else.
func (t *teller) rewrite() error {
	var texts [][]byte
	for _, b := range t.untold {
		if b.text != nil {
			texts = append(texts, b.text)
		}
	}
	err := t.journal.Replace(texts...)
	if err == nil {
		t.stored = len(texts)
	}
	return err
}

// checkJournal reports a journal that will never be one. That another process has it will pass.
func checkJournal(path string) error {
	if path == "" {
		return nil
	}
	if err := journal.Check(path, journalSize); err != nil && !errors.Is(err, journal.ErrInUse) {
		return fmt.Errorf("option Journal: %w", err)
	}
	return nil
}

// open takes the journal, if there is one and no other process has it, and what it has.
func (t *teller) open() {
	if t.e.opts.Journal == "" {
		return
	}
	j, kept, err := journal.Open(t.e.opts.Journal, journalSize)
	if err != nil {
		t.failed(err)
		return
	}
	t.works()
	t.journal, t.stored = j, len(kept.Entries)
	broken := int64(kept.Broken)
	for _, text := range kept.Entries {
		b := &beginning{text: text}
		if err := json.Unmarshal(text, b); err != nil || len(t.untold) >= mostUntold {
			broken++
			continue
		}
		t.untold = append(t.untold, b)
	}
	if kept.Torn {
		broken++
	}
	if broken > 0 {
		t.e.journalErrors.Add(broken)
		t.e.opts.Logger.Warn("the journal of runs has lines that are not what was written; they are passed over, and what they said is told with the ends of their steps",
			"journal", t.e.opts.Journal, "lines", broken, "torn", kept.Torn)
	}
	if len(t.untold) > 0 {
		t.e.opts.Logger.Info("the journal of runs has announcements, which are told now", "journal", t.e.opts.Journal, "steps", len(t.untold))
	}
}

func (t *teller) close() {
	if t.journal != nil {
		if err := t.journal.Close(); err != nil {
			t.e.opts.Logger.Warn("the journal of runs was not closed", "error", err)
		}
	}
}

// failed counts that the journal cannot be used, and says so once.
func (t *teller) failed(err error) {
	t.e.journalErrors.Add(1)
	if t.since.IsZero() {
		t.since = time.Now()
		t.e.opts.Logger.Error("the journal of runs cannot be used; what cannot be announced within the budget waits in memory, and is told with its end at the latest",
			"journal", t.e.opts.Journal, "error", err)
	}
}

func (t *teller) works() {
	if !t.since.IsZero() {
		t.e.opts.Logger.Info("the journal of runs can be used again", "journal", t.e.opts.Journal, "after", time.Since(t.since).Round(time.Second).String())
		t.since = time.Time{}
	}
}
