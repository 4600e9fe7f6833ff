package sinktest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

func keyWaitsForTooLarge(t *testing.T, f *fixture) {
	large := append(append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), f.TooLarge)...), `"}`...)
	keyWaits(t, f, large)
}

func keyWaitsForRefused(t *testing.T, f *fixture) {
	f.Refuse(func(payload []byte) Verdict {
		if fate(payload) == "never" {
			return ForGood
		}
		return Accept
	})
	keyWaits(t, f, []byte(`{"fate":"never"}`))
}

// keyWaits gives the sink one call in which a key's second message cannot be
// delivered: those of the key after it may not be either, and cost no attempt;
// all others are.
func keyWaits(t *testing.T, f *fixture, bad []byte) {
	var ms []deed.Message
	for i, m := range []struct {
		key  string
		want string
	}{
		{"a", "delivered"},
		{"b", "delivered"},
		{"b", "bad"},
		{"b", "held"},
		{"", "delivered"},
		{"a", "delivered"},
		{"b", "held"},
		{"c", "delivered"},
	} {
		payload := fmt.Appendf(nil, `{"n":%d}`, i)
		if m.want == "bad" {
			payload = bad
		}
		ms = append(ms, deed.Message{
			Topic: topic, Key: m.key, Type: m.want, Payload: payload, ContentType: "application/json",
			ID: deed.NewID(time.Now(), int64(i+1)), CreatedAt: time.Now(), Attempt: 1,
		})
	}
	outcomes := f.Sink.Deliver(t.Context(), ms)
	if len(outcomes) != len(ms) {
		t.Fatalf("%d outcomes for %d messages, of which one cannot be delivered", len(outcomes), len(ms))
	}
	arrived := f.arrivedByID()
	for i, m := range ms {
		err := outcomes[i]
		n := arrived[m.ID.String()]
		switch m.Type {
		case "delivered":
			if err != nil || n != 1 {
				t.Errorf("message %d of key %q: %v, arrived %d times", i, m.Key, err, n)
			}
		case "bad":
			if err == nil || n != 0 {
				t.Errorf("message %d, which cannot be delivered: %v, arrived %d times", i, err, n)
			}
		case "held":
			if !deed.IsUnavailable(err) || n != 0 {
				t.Errorf("message %d, behind one of its key that was not delivered: %v, arrived %d times; want it held back", i, err, n)
			}
		}
	}
}
