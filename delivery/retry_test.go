package delivery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// What was certainly not sent is tried again, max_attempts times in all, then
// dead; what no retry can cure has failed at once; what cannot be rendered too.
func TestContract_D6_RetriesDeadAndFailed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch r.Recipient() {
		case "twice@example.com":
			if n == 3 {
				return delivery.Accepted("m"), true
			}
			return delivery.NotNow(errors.New("busy"), 0), false
		case "bad@example.com":
			return delivery.Refused(errors.New("no such mailbox")), false
		}
		return delivery.NotNow(errors.New("always busy"), 0), false
	}
	f.render = func(d delivery.Draft) ([]byte, error) {
		switch d.Recipient {
		case "broken@example.com":
			return nil, errors.New("subject is empty")
		case "panic@example.com":
			panic("a bug")
		case "goexit@example.com":
			runtime.Goexit() // as t.FailNow does
		}
		return d.Payload, nil
	}
	three := email("three@example.com")
	three.MaxAttempts = 3
	made := reserve(t, db, email("twice@example.com"), email("bad@example.com"), email("five@example.com"), three, email("broken@example.com"), email("panic@example.com"), email("goexit@example.com"), email("composed@example.com"))
	ofRun(t, db, made[7].ID, "00000000-0000-4000-8000-000000000001")
	opts := fast(f)
	opts.Composer = goesAway{}
	run(t, db, opts)
	const noReturn = "making its request did not return, as of a call of runtime.Goexit"
	want := []struct {
		status   delivery.Status
		attempts int
		err      string
	}{
		{delivery.Sent, 3, "busy"},
		{delivery.Failed, 1, "no such mailbox"},
		{delivery.Dead, 5, "always busy"},
		{delivery.Dead, 3, "always busy"},
		{delivery.Failed, 0, "subject is empty"},
		{delivery.Failed, 0, "render: panic: a bug"},
		{delivery.Failed, 0, noReturn},
		{delivery.Failed, 0, noReturn},
	}
	for i, w := range want {
		e := until(t, db, made[i].ID, w.status)
		if e.Attempts != w.attempts || f.called(e.ID) != w.attempts || e.LastError != w.err {
			t.Errorf("%s: %d attempts, %d calls, %q; want %d, %q", e.Recipient, e.Attempts, f.called(e.ID), e.LastError, w.attempts, w.err)
		}
	}
}

// goesAway is a composer that ends its goroutine.
type goesAway struct{}

func (goesAway) Compose(context.Context, delivery.Draft) (json.RawMessage, error) {
	runtime.Goexit()
	return nil, nil
}

// The pause doubles, its jitter is bounded, and what the provider asks for is
// the least.
func TestContract_D6_BackOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	for attempts, base := range []float64{4, 8, 16} {
		for _, after := range []any{nil, 100.0} {
			var d []delivery.Delivery
			for i := range 30 {
				d = append(d, email(fmt.Sprintf("%d@example.com", i), fmt.Sprint(attempts, after)))
			}
			reserve(t, db, d...)
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set attempts = $1 where status = 'queued' and process_after is null`, attempts)
			var least, most float64
			var n int
			err := worker.QueryRow(context.Background(), `
				with claimed as (select * from deed.claim_deliveries('fake', 'w', 100, '1 minute')),
				gone as (select a.* from (select array_agg(id) as ids, array_agg(claim) as claims from claimed) c,
				  lateral deed.attempt(c.ids, c.claims, array_fill('x'::bytea, array[30]), null, '1 minute', 'w') a)
				select count(*) from gone`).Scan(&n)
			if err != nil || n != 30 {
				t.Fatal(n, err)
			}
			db.Exec(t, pgtest.Worker, `
				select from (select array_agg(id) as ids, array_agg(claim) as claims from deed.channel_outbox where status = 'sending') c,
				  lateral deed.settle(c.ids, c.claims, array_fill('later'::text, array[30]), array_fill(null::text, array[30]), array_fill('e'::text, array[30]),
				    array_fill($1::float8, array[30]), 'w', '4 seconds', '{0.5,1}') s`, after)
			// From when they were settled, all in one statement.
			err = db.Pool(pgtest.Owner).QueryRow(context.Background(), `
				select min(extract(epoch from c.process_after - c.updated_at))::float8, max(extract(epoch from c.process_after - c.updated_at))::float8
				from deed.channel_outbox c where c.updated_at = (select max(updated_at) from deed.channel_outbox)`).Scan(&least, &most)
			if err != nil {
				t.Fatal(err)
			}
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() + interval '1 day'`) // out of the next ones' way
			if after != nil {
				if least < 99.9 || most > 100.1 {
					t.Errorf("asked for 100s: from %.1f to %.1f", least, most)
				}
			} else if least < base/2-0.1 || most > base+0.1 || most-least < base/10 {
				t.Errorf("after %d attempts the pause is from %.1fs to %.1fs, want between %.0f and %.0f, spread", attempts+1, least, most, base/2, base)
			}
		}
	}
}

// A provider that says when to come back is left alone so long, by everything
// that is for it.
func TestContract_D6_RetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	const pause = 500 * time.Millisecond
	f.send = func(_ context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		if len(f.all()) == 1 {
			return delivery.Outage(errors.New("429"), pause), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	p := opts.Providers["fake"]
	p.Concurrency = 1
	opts.Providers["fake"] = p
	reserve(t, db, email("a@example.com"), email("b@example.com"), email("c@example.com"))
	l, _ := run(t, db, opts)
	drained(t, l)
	calls := f.all()
	if len(calls) != 4 || calls[1].at.Sub(calls[0].at) < pause-5*time.Millisecond {
		t.Errorf("%d calls, the second %s after the first", len(calls), calls[1].at.Sub(calls[0].at))
	}
}

// An outage costs no attempt, however long it lasts, and all goes on by itself
// when it is over.
func TestContract_D6_AnOutageKillsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	var down atomic.Bool
	down.Store(true)
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
		if down.Load() {
			return delivery.Outage(errors.New("connection refused"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	var list []delivery.Delivery
	for i := range 20 {
		list = append(list, email(fmt.Sprintf("%d@example.com", i)))
	}
	reserve(t, db, list...)
	var log logs
	opts := fast(f)
	opts.Logger = log.logger()
	p := opts.Providers["fake"]
	p.Concurrency = 2
	opts.Providers["fake"] = p
	l, _ := run(t, db, opts)
	eventually(t, "some probes", func() bool { return len(f.all()) >= 8 })
	down.Store(false)
	drained(t, l)
	sent := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`)
	most := pgtest.One[int](t, db.Pool(pgtest.Owner), `select max(attempts) from deed.channel_outbox`)
	if sent != 20 || most != 1 {
		t.Errorf("%d sent, up to %d attempts", sent, most)
	}
	for _, want := range []string{"paused: ", "still paused", "no longer paused"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
}

// The correlation id and the channel's message id are in the row, in every log
// line about the delivery, and in the context of the call; contents are not in
// the log.
func TestContract_D9_IDsTravel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	traced := make(chan string, 2)
	f.send = func(ctx context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		traced <- deed.TraceFrom(ctx).CorrelationID + " " + r.CorrelationID()
		if n == 1 {
			return delivery.NotNow(errors.New("busy"), 0), false
		}
		return delivery.Accepted("m"), true
	}
	d := email("person@example.com")
	d.CorrelationID, d.ChannelMessageID = "corr-17", channelMessage(t, db)
	f.render = func(draft delivery.Draft) ([]byte, error) {
		if draft.Recipient == d.Recipient && (draft.CorrelationID != "corr-17" || draft.ChannelMessageID != d.ChannelMessageID) {
			t.Errorf("the request is made of %+v", draft)
		}
		return draft.Payload, nil
	}
	made := reserve(t, db, d)
	other, err := delivery.Reserve(deed.WithTrace(context.Background(), deed.Trace{CorrelationID: "from-context"}), db.Pool(pgtest.App), email("later@example.com"))
	if err != nil || entry(t, db, other[0].ID).CorrelationID != "from-context" {
		t.Errorf("the context's correlation id was not taken: %v", err)
	}
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() + interval '1 hour' where id = $1::text::uuid`, other[0].ID)
	var log logs
	opts := fast(f)
	opts.Logger = log.logger()
	_, stop := run(t, db, opts)
	e := until(t, db, made[0].ID, delivery.Sent)
	stop()
	if e.CorrelationID != "corr-17" || e.ChannelMessageID != d.ChannelMessageID {
		t.Errorf("%+v", e)
	}
	for range 2 {
		if got := <-traced; got != "corr-17 corr-17" {
			t.Errorf("the call's context has %q", got)
		}
	}
	lines := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "delivery="+e.ID) {
			lines++
			if !strings.Contains(line, "correlation_id=corr-17") || !strings.Contains(line, "channel_message_id="+d.ChannelMessageID) {
				t.Errorf("a line without the ids: %s", line)
			}
		}
	}
	if lines < 2 || strings.Contains(log.String(), "hello") || strings.Contains(log.String(), "person@") {
		t.Errorf("%d lines about the delivery, or contents in them:\n%s", lines, log.String())
	}
}

// Options are checked all at once, and a provider's capabilities with them.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps = delivery.Capabilities{}
	_, err := delivery.New(context.Background(), db.Pool(pgtest.Worker), delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"a": {Provider: f}, "b": {}, "c": {Provider: newFake(), Rate: -1}},
		Lease:     time.Millisecond, ClaimBatch: -1, JitterMin: 1, JitterMax: 0.5,
	})
	for _, want := range []string{"Lease", "ClaimBatch", "JitterMin", "no kind", "no channel", "HasKey or NoKey", "no Provider", "Rate"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}
