package local

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// item is a step in this process's hands.
type item struct {
	run      string
	place    int
	claim    int64
	tenant   tenant.ID
	step     string
	attempt  int
	engine   int // how often this attempt was begun
	lost     int // how often a claim of it was lost
	keyN     int
	once     bool   // an attempt that may have been made is not repeated
	parked   bool   // what it waited for has come
	verdict  string // it is only to be finished
	called   bool   // its code was, under this claim
	begun    *time.Time
	plan     string
	version  string
	hash     []byte
	input    json.RawMessage
	at       time.Time // when it was claimed, by this process's clock
	started  time.Time // when it began here
	end      *ending   // what became of it; Do sets it
	recorded bool      // in a transaction of its own
	guard    guard     // of its secrets
}

// key is that of the step's effects.
func (it *item) key() string {
	sum := it.keySum()
	return hex.EncodeToString(sum[:])
}

func (it *item) keySum() [32]byte { return idempotency.Key(it.run, it.step, strconv.Itoa(it.keyN)) }

// first reports whether no attempt before this one can have been made under its key. That this one has done nothing says
// nothing of one before it, nor of what it did itself before it waited, so else the key stays: under another one it would be done twice.
func (it *item) first() bool {
	return it.keyN == it.attempt && !it.parked && (it.engine <= 1 || it.once)
}

// ending is an outcome as deed.finish_steps takes it.
type ending struct {
	it      *item
	outcome string
	data    map[string]any
	instead any // of the output in data, where the database refuses that one
	started time.Time
	notDone bool
	again   *float64   // seconds
	until   *time.Time // instead of again
	woken   bool       // instead of both: it is due when something wakes it
	message *deed.Message
	owed    *owed
}

// maxOutput is how large what a step returns may be.
const maxOutput = 16 << 10

func (it *item) completed(output json.RawMessage, started time.Time) *ending {
	if len(output) > maxOutput {
		return it.failed(&run.Failure{Code: "OUTPUT_TOO_LARGE", Final: true, Err: errors.New("the output has " + strconv.Itoa(len(output)) +
			" bytes; at most 16384 are possible: keep it elsewhere, and return where")}, started)
	}
	end := &ending{it: it, outcome: "completed", data: map[string]any{}, started: started}
	if len(output) > 0 && string(output) != "null" {
		end.data["output"] = output
	}
	return end
}

func (it *item) skippedFor(reason string) *ending {
	return &ending{it: it, outcome: "skipped", data: map[string]any{"reason": errortext.Stored(reason, 1000, "")}}
}

// failed is the end of an attempt that err has ended.
func (it *item) failed(err error, started time.Time) *ending {
	f := run.Failure{Category: "user", Code: "STEP_FAILED", Err: err}
	if said, ok := errors.AsType[*run.Failure](err); ok {
		f.Final, f.NotDone = said.Final, said.NotDone
		if said.Category != "" {
			f.Category = said.Category
		}
		if said.Code != "" {
			f.Code = said.Code
		}
	}
	if _, ok := errors.AsType[*plan.ConditionError](err); ok {
		f.Code, f.Final, f.NotDone = "CONDITION_ERROR", true, true
	}
	if panicked(err) {
		f.Code = "PANIC"
	}
	if errors.Is(err, context.DeadlineExceeded) && f.Code == "STEP_FAILED" {
		f.Code = "TIMEOUT"
	}
	f.Final = f.Final || deed.IsPermanent(err)
	return &ending{it: it, outcome: "failed", started: started, notDone: f.NotDone, data: map[string]any{"error": run.Error{
		Category: errortext.Stored(f.Category, 100, ""), Code: errortext.Stored(f.Code, 100, ""), Message: errortext.Stored(err.Error(), 1000, ""), Retryable: !f.Final,
	}}}
}

// failedCode is as failed, of its code: cut says that this was cut short, late that its time was over when it ended, mayBeDone that an inner step of it may have been.
func (it *item) failedCode(err error, started time.Time, cut, late, mayBeDone bool) *ending {
	end := it.failed(err, started)
	// What ends past its time, with an error that says nothing more, or of which nothing is kept, was cut short by that.
	code := end.data["error"].(run.Error).Code
	cut = cut || late && !end.notDone && (code == "STEP_FAILED" || code == "SECRET_LEAK")
	// Whatever the error says, an attempt before it, or an inner step, may have been done.
	end.notDone = end.notDone && it.first() && !mayBeDone
	if cut {
		return it.asked(end)
	}
	return end
}

// asked makes of a failure whose code was cut short one that a person decides, where that must not be repeated: what it had begun may be done, or be
// under way elsewhere.
func (it *item) asked(end *ending) *ending {
	said, ok := end.data["error"].(run.Error)
	if !ok || !it.once || !it.called {
		return end
	}
	said.Code, said.Retryable = "OUTCOME_UNKNOWN", false
	said.Message = errortext.Stored("its code was cut short, and nobody knows whether it was done: "+said.Message, 1000, "")
	end.data["error"], end.notDone = said, false
	return end
}

// cutOff reports whether err, or a part of it, is of code that a time-out or a panic has cut short, an inner step's or a branch's, too; not of such that is known
// to have done nothing, unless mayBeDone says that this is not believed.
func cutOff(err error, mayBeDone bool) bool {
	if f, ok := err.(*run.Failure); ok {
		switch {
		case f.NotDone && !mayBeDone:
			return false
		case f.Code == "TIMEOUT" || f.Code == "PANIC":
			return true
		case f.Code != "" && f.Code != "STEP_FAILED" && !panicked(f): // its word, whatever has led to it
			return false
		}
	}
	switch outer := err.(type) {
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(outer.Unwrap(), func(part error) bool { return cutOff(part, mayBeDone) })
	case interface{ Unwrap() error }:
		return cutOff(outer.Unwrap(), mayBeDone)
	}
	return panicked(err) || errors.Is(err, errGoexit) || errors.Is(err, context.DeadlineExceeded)
}

// panicked reports whether err is of a panic, or of code that has ended its goroutine.
func panicked(err error) bool {
	_, ok := errors.AsType[*work.Panic](err)
	return ok || errors.Is(err, work.ErrGoexit)
}

// unbegun gives back what nothing of was called since it was claimed: that claim counts as no attempt of the engine's, so what is known
// of those before it stays known.
func (it *item) unbegun(in time.Duration) *ending {
	end := it.back(in, true)
	end.data = map[string]any{"begun": false}
	return end
}

// back gives it back, to be begun again in a while.
func (it *item) back(in time.Duration, notDone bool) *ending {
	end := &ending{it: it, outcome: "released", notDone: notDone}
	if in > 0 {
		seconds := in.Seconds()
		end.again = &seconds
	}
	return end
}
