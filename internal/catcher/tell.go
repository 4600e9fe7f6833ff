package catcher

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"
)

// When is when a fake says what becomes of what it took, and in which order.
type When string

// The ways. Whoever is told must come to one end by all of them.
const (
	Late    When = "late"    // after the answer: what services mostly do
	Early   When = "early"   // before the answer
	Twice   When = "twice"   // after the answer, each thing twice
	Reverse When = "reverse" // after the answer, the last thing first
)

// End is what becomes of a message.
type End string

// The ends. A service that has no such thing says what is next to it.
const (
	Delivered    End = "delivered"
	Bounced      End = "bounce"
	SoftBounced  End = "soft"
	Complained   End = "complaint"
	Unsubscribed End = "unsubscribe"
	Silent       End = "silent" // nothing is ever said
)

// EndOf is what becomes of a message to somebody: what the local part of an address is
// called (bounce@example.com, bounce+7@example.com), or the last four digits of a number
// say: 0101 for a bounce, 0102 for a soft one, 0103 for a complaint, 0104 for an
// unsubscription, 0105 for silence. Any other is delivered.
func EndOf(to string) End {
	if a, err := mail.ParseAddress(to); err == nil {
		local, _, _ := strings.Cut(a.Address, "@")
		local, _, _ = strings.Cut(local, "+")
		if end := End(strings.ToLower(local)); slices.Contains([]End{Bounced, SoftBounced, Complained, Unsubscribed, Silent}, end) {
			return end
		}
		return Delivered
	}
	for digits, end := range map[string]End{"0101": Bounced, "0102": SoftBounced, "0103": Complained, "0104": Unsubscribed, "0105": Silent} {
		if strings.HasSuffix(to, digits) {
			return end
		}
	}
	return Delivered
}

// Teller posts what services say later. One may serve several fakes. Close ends it.
type Teller struct {
	// Base is where it posts to, such as http://127.0.0.1:8427; "" for nowhere yet.
	Base func() string
	When When // default Late
	// Delay is between the answer and the first thing, and between things. Default 200 ms.
	Delay  time.Duration
	Logger *slog.Logger // nil: none

	mu        sync.Mutex
	ctx       context.Context // guarded by mu; nil: none yet
	stop      context.CancelFunc
	transport *http.Transport
	running   sync.WaitGroup // what is said late; nothing is added after Close
}

// said is one thing that a service says.
type said struct {
	url         string // or the path on the teller's base
	contentType string
	body        []byte
	// sign signs a request, each time that it is posted.
	sign func(r *http.Request, body []byte, at time.Time)
	// before, if not nil, is done before it; false: it is not said.
	before func(ctx context.Context) bool
	// again, if not nil, reports whether it is said again after so many tries, of which the last had
	// this answer, 0 for none. Else it is as long as the other side is in trouble.
	again func(status, tries int) bool
}

func (one said) isSaidAgain(status, tries int) bool {
	if one.again != nil {
		return one.again(status, tries)
	}
	return tries < 6 && (status == 0 || status >= 500)
}

// Close ends what is still to be said, and waits for it.
func (t *Teller) Close() {
	t.start()
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.running.Wait()
	t.transport.CloseIdleConnections()
}

func (t *Teller) start() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.stop = context.WithCancel(context.Background())
		t.transport = &http.Transport{}
	}
	return t.ctx
}

// tell says things in the order of When.
func (t *Teller) tell(list []said) {
	ctx := t.start()
	switch t.When {
	case Early:
		for _, one := range list {
			t.post(ctx, one)
		}
		return
	case Reverse:
		slices.Reverse(list)
	case Twice:
		list = slices.Concat(list, list)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	t.running.Go(func() {
		for _, one := range list {
			if !t.wait(ctx, 1) {
				return
			}
			t.post(ctx, one)
		}
	})
}

// wait waits for some delays, and reports whether there is anybody to go on for.
func (t *Teller) wait(ctx context.Context, times int) bool {
	delay := t.Delay
	if delay == 0 {
		delay = 200 * time.Millisecond
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Duration(times) * delay):
		return true
	}
}

// post says one thing. While nobody answers, or the other side is in trouble, it does so
// again, as services do.
func (t *Teller) post(ctx context.Context, one said) (taken bool) {
	if one.before != nil && !one.before(ctx) {
		return false
	}
	for tries := 1; ; tries++ {
		status, err := t.once(ctx, one)
		if status >= 200 && status < 300 {
			return true
		}
		if one.isSaidAgain(status, tries) && t.wait(ctx, 1<<(tries-1)) {
			continue
		}
		if t.Logger != nil && ctx.Err() == nil {
			t.Logger.Warn("what a fake says was not taken", "url", one.url, "status", status, "error", err)
		}
		return false
	}
}

func (t *Teller) once(ctx context.Context, one said) (status int, err error) {
	target := one.url
	if strings.HasPrefix(target, "/") {
		target = t.Base() + target
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(one.body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", one.contentType)
	one.sign(r, one.body, time.Now())
	answer, err := (&http.Client{Transport: t.transport}).Do(r)
	if err != nil {
		return 0, err
	}
	_ = answer.Body.Close()
	return answer.StatusCode, nil
}

// Events is how a fake says what becomes of what it took.
type Events struct {
	Teller *Teller // nil: it says nothing
	Path   string  // where on the teller's base
}

func (e Events) tell(says func() []said) {
	if e.Teller == nil {
		return
	}
	if list := says(); len(list) > 0 {
		e.Teller.tell(list)
	}
}

// instant is a time as most services write it.
func instant(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }
