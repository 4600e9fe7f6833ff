package local

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	keyN     int
	once     bool   // an attempt that may have been made is not repeated
	parked   bool   // what it waited for has come
	verdict  string // it is only to be finished
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
	if _, ok := errors.AsType[*work.Panic](err); ok || errors.Is(err, work.ErrGoexit) {
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
