package claim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// badError is a handler's error that cannot be read.
type badError struct{}

func (badError) Error() string { panic("no words") }

func TestDescribe(t *testing.T) {
	t.Parallel()
	cause := errors.New("no")
	for name, c := range map[string]struct {
		err   error
		kind  Kind
		after time.Duration // -1: none
		text  string
	}{
		"plain":      {cause, Retry, -1, "no"},
		"after":      {fmt.Errorf("step 2: %w", &Steer{Retry, 3 * time.Second, cause}), Retry, 3 * time.Second, "step 2: no"},
		"at once":    {&Steer{Retry, 0, cause}, Retry, 0, "no"},
		"permanent":  {&Steer{Discard, 0, cause}, Discard, -1, "no"},
		"outage":     {&Steer{Outage, time.Second, cause}, Outage, -1, "no"}, // its pause is the breaker's
		"panic":      {&work.Panic{Value: "boom", Stack: []byte("stack")}, Retry, -1, "panic: boom"},
		"unreadable": {badError{}, Retry, -1, "the handler's error cannot be read: panic: no words"},
	} {
		o := Describe(c.err).Outcome
		after := time.Duration(-1)
		if o.After != nil {
			after = time.Duration(*o.After * float64(time.Second))
		}
		if o.Kind != c.kind || after != c.after || o.Text != c.text {
			t.Errorf("%s: %+v, after %s", name, o, after)
		}
	}
	if o := Describe(&work.Panic{Stack: []byte("stack")}).Outcome; !strings.Contains(o.Stack, "stack") {
		t.Error("a panic has lost its stack")
	}
}

// Outcomes are recorded claim by claim, and an attempt that a stop has cut short is
// none, whatever it returned.
func TestSettle_GoesByClaims(t *testing.T) {
	t.Parallel()
	item := func(claim, seq int64) *Item { return &Item{Message: Message{Seq: seq}, Claim: claim} }
	got := Settle([]work.Done[*Item]{
		{Item: item(7, 1)},
		{Item: item(8, 2), Err: Describe(&Steer{Discard, 0, errors.New("never")})},
		{Item: item(7, 3), Err: errors.New("not now")},
		{Item: item(7, 4), Err: &Steer{Retry, time.Hour, errors.New("cut short")}, Released: true},
		{Item: item(8, 5)},
	})
	var lines []string
	for _, st := range got {
		line := fmt.Sprint(st.claim, ": ", st.finished)
		for i, it := range st.failed {
			line += fmt.Sprintf(" %d %s %t", it.Seq, st.outcomes[i].Kind, st.outcomes[i].After != nil)
		}
		lines = append(lines, line)
	}
	want := []string{"7: [1] 3 retry false 4 release false", "8: [5] 2 discard false"}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", lines, want)
	}
}
