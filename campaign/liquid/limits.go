package liquid

import (
	"context"
	"fmt"
	"strings"
)

// The limits. docs/templates.md tells them to those who write templates.
const (
	maxSource   = 256 << 10
	maxOutput   = 1 << 20
	maxSubject  = 2 << 10
	maxText     = 64 << 10 // of one value: filters and captures would double it, again and again
	maxItems    = 1000     // of one array
	maxValues   = 10_000   // in a recipient's data
	maxData     = 1 << 20  // bytes of text in them
	maxDepth    = 8        // of data within data
	maxNesting  = 32       // of blocks
	maxLoops    = 2        // within each other
	maxTokens   = 200      // of one expression
	maxParts    = 5000     // tags and {{ }}
	maxProblems = 100      // that are told at once
	// maxWork is in steps: see charge. It is some tenths of a second.
	maxWork = 1_000_000
	// lookEvery is after how many steps the context is looked at.
	lookEvery = 1000
)

// state is one rendering: what it has used up, and where it is.
type state struct {
	ctx   context.Context
	ended error // of ctx
	line  int
	work  int
	seen  int // the work at which ctx was looked at
	loops []*loopState
	zones zones

	values, bytes int // in the data
	// The largest that a comparison may meet: values in an array, bytes of a string.
	manyValues, longText int
}

// stateName is the name under which expressions hand the state to filters; no template
// can say it, as names that begin with _ are refused.
const stateName = "_s"

// charge counts work: a step is about what it takes to look at a token of an expression,
// or to copy 16 bytes.
func (s *state) charge(steps int) error {
	s.work += steps
	if s.work > maxWork {
		return s.errorf("more than %d steps of work: fewer loops or shorter texts", maxWork)
	}
	if s.work-s.seen >= lookEvery {
		s.seen = s.work
		return s.look()
	}
	return nil
}

// chargeText counts the making of a text.
func (s *state) chargeText(n int) error { return s.charge(1 + n/16) }

// comparison is the work of the dearest comparison that these data allow.
func (s *state) comparison() int { return 1 + s.manyValues/8 + s.longText/1024 }

func (s *state) look() error {
	if s.ctx.Err() != nil {
		s.ended = context.Cause(s.ctx)
		return s.ended
	}
	return nil
}

func (s *state) errorf(format string, args ...any) error {
	return &Error{Line: s.line, Problem: fmt.Sprintf(format, args...)}
}

// text takes note of a text that was made, and refuses one that is too long.
func (s *state) text(text string) (any, error) {
	if len(text) > maxText {
		return nil, s.errorf("a text of more than 64 KiB")
	}
	s.longText = max(s.longText, len(text))
	return text, s.chargeText(len(text))
}

// array takes note of an array that was made, and refuses one that is too long.
func (s *state) array(items []any) (any, error) {
	if len(items) > maxItems {
		return nil, s.errorf("an array of more than %d", maxItems)
	}
	s.manyValues = max(s.manyValues, s.values+len(items))
	return items, s.charge(1 + len(items))
}

// limited is a writer that takes so much and no more.
type limited struct {
	s    *state
	max  int
	what string
	text strings.Builder
}

func (w *limited) Write(b []byte) (int, error) {
	if w.text.Len()+len(b) > w.max {
		return 0, w.s.errorf("%s is over %d KiB", w.what, w.max>>10)
	}
	if err := w.s.chargeText(len(b)); err != nil {
		return 0, err
	}
	return w.text.Write(b)
}
