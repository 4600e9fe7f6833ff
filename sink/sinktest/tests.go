package sinktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

// variety gives messages that a careless sink would change on the way.
func variety(i int, m *deed.Message) {
	m.Type = fmt.Sprintf("type-%d", i%3)
	switch i % 8 {
	case 1:
		m.Payload = fmt.Appendf(nil, "{\n\t\"n\" : %d.00, \"n\": \"\\u00e9 é <&>\" }\n", i)
	case 2:
		m.Key, m.Payload = "ключ 100% ☃", fmt.Appendf(nil, `"%d"`, i)
	case 3:
		m.ContentType, m.Payload = "application/octet-stream", everyByte(i)
	case 4:
		m.ContentType, m.Payload = "text/plain; charset=utf-8", []byte{}
	case 5:
		m.Key, m.Type = "", ""
	case 6:
		m.Payload = fmt.Appendf(nil, `{"n":%d,"pad":"%s"}`, i, strings.Repeat("x", 10*i))
	}
}

func everyByte(i int) []byte {
	b := make([]byte, 256)
	for k := range b {
		b[k] = byte(k + i)
	}
	return b
}

func everyMessageArrivesOnce(t *testing.T, f *fixture) {
	want := f.publish(500, variety)
	f.start(f.subscription())
	for id, m := range f.publish(500, variety) {
		want[id] = m
	}
	f.waitDrained()
	f.compare(want, 1)
	if n, highest := f.spy.attempts(); n != 1000 || highest != 1 {
		t.Errorf("%d messages were tried up to %d times, want 1000 once", n, highest)
	}
}

func severalRelaysShare(_ *testing.T, f *fixture) {
	want := f.publish(500, nil)
	f.start(f.subscription())
	f.start(f.subscription())
	f.waitDrained()
	f.compare(want, 1)
}

func headersAndIdentity(t *testing.T, f *fixture) {
	headers := map[string]string{
		"traceparent":    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate":     "vendor=value",
		"correlation-id": "order 7",
		"x-anything":     "a=1; b=\"2\", 50%",
	}
	want := f.publish(1, func(_ int, m *deed.Message) {
		m.Key, m.Type, m.Headers = "k", "t", headers
	})
	f.start(f.subscription())
	f.waitDrained()
	f.compare(want, 1)
	if !f.Features.Headers {
		return
	}
	for _, a := range f.Arrived() {
		for name, value := range headers {
			if a.Headers[name] != value {
				t.Errorf("header %s = %q, want %q", name, a.Headers[name], value)
			}
		}
	}
}

func batch(t *testing.T, f *fixture) {
	want := f.publish(500, variety)
	f.start(f.subscription())
	f.waitDrained()
	f.compare(want, 1)
	size := f.batchSize()
	if largest := f.spy.read(&f.spy.largest); largest > size || size > 1 && largest == 1 {
		t.Errorf("the largest call had %d messages, want more than 1 and at most %d", largest, size)
	}
}

func ownOutcomes(t *testing.T, f *fixture) {
	var mu sync.Mutex
	refusedOnce := map[string]bool{}
	f.Refuse(func(payload []byte) Verdict {
		switch fate(payload) {
		case "never":
			return ForGood
		case "not-now":
			return ForNow
		case "later":
			mu.Lock()
			defer mu.Unlock()
			if !refusedOnce[string(payload)] {
				refusedOnce[string(payload)] = true
				return ForNow
			}
		}
		return Accept
	})
	const maxAttempts = 2
	accepted := map[string]deed.Message{}
	refused := map[int64]string{} // seq to fate
	fates := []string{"fine", "fine", "later", "fine", "never", "fine", "fine", "not-now", "fine", "fine"}
	for id, m := range f.publish(60, func(i int, m *deed.Message) {
		m.Payload = fmt.Appendf(nil, `{"n":%d,"fate":"%s","private":"do not log this text"}`, i, fates[i%len(fates)])
	}) {
		switch word := fate(m.Payload); word {
		case "fine", "later":
			accepted[id] = m
		default:
			refused[m.Seq] = word
		}
	}
	f.start(f.subscription(func(s *deed.Subscription) { s.MaxAttempts = maxAttempts }))
	f.waitDrained()
	f.compare(accepted, 1)
	rows := f.pending()
	if len(rows) != len(refused) {
		t.Errorf("%d messages are dead, want %d", len(rows), len(refused))
	}
	for _, p := range rows {
		word := refused[p.ID]
		if !p.Dead || p.Attempts != maxAttempts && (word != "never" || p.Attempts != 1) {
			t.Errorf("message %d, refused %q: dead %v after %d attempts", p.ID, word, p.Dead, p.Attempts)
		}
		if p.LastError == "" || strings.Contains(p.LastError, "do not log this text") {
			t.Errorf("message %d: last error %q, want a reason without the payload", p.ID, p.LastError)
		}
	}
}

func poison(t *testing.T, f *fixture) {
	f.Refuse(func(payload []byte) Verdict {
		if fate(payload) == "poison" {
			return ForNow
		}
		return Accept
	})
	var bad int64
	good := f.publish(200, func(i int, m *deed.Message) {
		if m.Key = "one"; i == 0 {
			m.Payload = []byte(`{"fate":"poison"}`)
		}
	})
	for id, m := range good {
		if fate(m.Payload) == "poison" {
			bad = m.Seq
			delete(good, id)
		}
	}
	f.start(f.subscription(func(s *deed.Subscription) { s.MaxAttempts, s.Concurrency = 3, 1 }))
	f.wait("all others to be finished", func() bool {
		return len(f.arrivedByID()) >= len(good) && f.count(func(p pendingRow) bool { return p.ID != bad }) == 0
	})
	f.compare(good, 1)
	f.waitDrained()
	if rows := f.pending(); len(rows) != 1 || rows[0].ID != bad || rows[0].Attempts != 3 {
		t.Errorf("left: %+v, want the poisonous message, dead after 3 attempts", rows)
	}
}

func outage(t *testing.T, f *fixture) {
	f.Down()
	var mu sync.Mutex
	others := map[deed.ID]bool{}
	other := deed.Subscription{Topic: topic, Name: "other", From: deed.FromBeginning, Sink: deed.SinkFunc(
		func(_ context.Context, m deed.Message) error {
			mu.Lock()
			defer mu.Unlock()
			others[m.ID] = true
			return nil
		},
	)}
	want := f.publish(100, nil)
	f.start(f.subscription(), other)
	f.wait("the outage to be noticed twice", func() bool { return f.spy.read(&f.spy.unavailable) >= 2 })
	f.wait("the other subscription to finish", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(others) == len(want)
	})
	rows := f.pending()
	if len(rows) != len(want) {
		t.Errorf("%d messages are pending during the outage, want %d", len(rows), len(want))
	}
	for _, p := range rows {
		if p.Attempts != 0 || p.Dead {
			t.Errorf("message %d has %d attempts (dead: %v): %s", p.ID, p.Attempts, p.Dead, p.LastError)
		}
	}
	f.Up()
	f.waitDrained()
	f.compare(want, 1)
	if _, highest := f.spy.attempts(); highest != 1 {
		t.Errorf("a message needed attempt %d", highest)
	}
}

// outageInTheMiddle breaks connections in use, so that some outcomes are
// unknown: those messages may count an attempt and come twice.
func outageInTheMiddle(t *testing.T, f *fixture) {
	open := f.spy.holdAfter(100)
	defer open()
	want := f.publish(400, nil)
	f.start(f.subscription())
	f.wait("some to arrive", func() bool { return len(f.Arrived()) >= 100 && f.spy.read(&f.spy.held) > 0 })
	f.Down()
	open()
	f.wait("the outage to be noticed", func() bool { return f.spy.read(&f.spy.unavailable) >= 1 })
	if n := len(f.arrivedByID()); n == len(want) {
		t.Error("everything had arrived before the outage")
	}
	f.Up()
	f.waitDrained()
	f.compare(want, 2)
	if rows := f.pending(); len(rows) != 0 {
		t.Errorf("dead after an outage: %+v", rows)
	}
}

// slow gives a claim three chances to be kept: one that nobody has given up runs out on a machine that
// stands still for longer than the lease.
func slow(t *testing.T, f *fixture) {
	const lease = time.Second
	f.Slow(5 * lease / 2)
	want := f.publish(2, nil)
	f.start(f.subscription(func(s *deed.Subscription) { s.Lease = lease }))
	f.start(f.subscription(func(s *deed.Subscription) { s.Lease = lease })) // waits for a claim to run out
	for again := 2; ; again-- {
		f.waitDrained()
		if f.triedOnce(want) {
			return
		}
		if again == 0 {
			t.Fatalf("%d messages came, and were tried: %v, want each once", len(want), f.arrivedByID())
		}
		want = f.publish(2, nil)
	}
}

// triedOnce reports whether each of these messages has come once, and was tried once.
func (f *fixture) triedOnce(want map[string]deed.Message) bool {
	counts := f.arrivedByID()
	f.spy.mu.Lock()
	defer f.spy.mu.Unlock()
	for id, m := range want {
		if counts[id] != 1 || f.spy.seen[m.ID] != 1 {
			return false
		}
	}
	return true
}

func stopInTheMiddle(t *testing.T, f *fixture) {
	open := f.spy.holdAfter(50)
	defer open()
	want := f.publish(300+8*f.batchSize(), nil) // more than is in hand at once
	few := func(s *deed.Subscription) { s.Concurrency = 4 }
	r := f.start(f.subscription(few))
	f.wait("the drain to be in the middle", func() bool { return f.spy.read(&f.spy.held) > 0 })
	r.cancel()
	claimed := func(p pendingRow) bool { return p.Claimed }
	f.wait("what has not started to be given back", func() bool {
		return f.count(claimed) <= f.spy.read(&f.spy.held)
	})
	select {
	case <-r.done:
		t.Error("the relay stopped before its work in hand was finished")
	default:
	}
	open()
	f.stop(r)
	left := f.pending()
	if len(left) == 0 {
		t.Error("the stop waited for more than the work in hand")
	}
	for _, p := range left {
		if p.Claimed || p.Attempts != 0 || p.Dead {
			t.Errorf("after the stop: %+v, want it as it was", p)
		}
	}
	f.start(f.subscription(few))
	f.waitDrained()
	f.compare(want, 1)
	if _, highest := f.spy.attempts(); highest != 1 {
		t.Errorf("a message needed attempt %d", highest)
	}
}

// endedContext asks the sink itself: what it cannot do any more is the
// context's error for each message, whatever else the outcome says.
func endedContext(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := f.batchSize()
	ms := make([]deed.Message, n)
	for i := range ms {
		ms[i] = deed.Message{Topic: topic, Payload: []byte(`{}`), ContentType: "application/json", ID: deed.NewID(time.Now(), int64(i+1)), Attempt: 1}
	}
	outcomes := f.Sink.Deliver(ctx, ms)
	if outcomes != nil && len(outcomes) != n {
		t.Fatalf("%d outcomes for %d messages", len(outcomes), n)
	}
	arrived := f.arrivedByID()
	for i, m := range ms {
		var err error
		if outcomes != nil {
			err = outcomes[i]
		}
		if err == nil && arrived[m.ID.String()] == 0 {
			t.Errorf("message %d is said to be delivered and did not arrive", i)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("outcome %d = %v, want the context's error", i, err)
		}
	}
}
