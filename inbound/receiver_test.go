package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// A message is answered once, however often and by whatever request it comes; and what
// is not the platform's leaves nothing.
func TestContract_D8_OneReply(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var got []inbound.Message
	var mu sync.Mutex
	url, _ := one(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m)
		if m.Text == "spam" {
			return inbound.Deny("spam"), nil
		}
		if c := deed.TraceFrom(ctx).CorrelationID; c != m.CorrelationID || c == "" {
			t.Errorf("correlation id %q, the message's is %q", c, m.CorrelationID)
		}
		return inbound.Result{Replies: []inbound.Reply{{Text: "one"}, {Payload: []byte(`{"n": 2}`)}}}, nil
	})
	for _, bad := range []struct {
		method, url, signature, body string
		want                         int
	}{
		{"POST", url, "theirs", "1 ann hello", 401},
		{"POST", url, "", "", 401},
		{"POST", url, "ours", "nonsense", 400},
		{"PUT", url, "ours", "1 ann hello", 405},
		{"POST", url + "x", "ours", "1 ann hello", 404},
		{"POST", strings.TrimSuffix(url, "in/plain"), "ours", "1 ann hello", 404},
		{"POST", url, "ours", strings.Repeat("x", 1<<20+1), 413},
		{"POST", url, "ours", strings.Repeat("i", 300) + " ann hello", 400},
	} {
		if code, _ := request(t, bad.method, bad.url, bad.signature, bad.body); code != bad.want {
			t.Errorf("%s %s: %d, want %d", bad.method, bad.url, code, bad.want)
		}
	}
	want(t, "after bad requests", state(t, db), "")
	for range 2 {
		want(t, "answered", post(t, url, "1 ann hello\n2 bob spam\n"), 200)
	}
	want(t, "answered", post(t, url, "2 bob spam\n3 ann hello"), 200)
	want(t, "messages", state(t, db), "1 executed x1 r2, 2 denied_spam x1 r0, 3 executed x1 r2")
	want(t, "attempts", len(got), 3)
	replies := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', c.recipient, c.payload, c.guarantee, c.correlation_id = m.correlation_id, c.contact_id = m.contact_id), ', ' order by c.payload::text desc)
		from deed.channel_outbox c join deed.channel_messages m on m.id = c.channel_message_id where m.platform_message_id = '1'`)
	want(t, "replies", replies, `https://example.com/ann {"text": "one"} at_least_once t t, https://example.com/ann {"n": 2} at_least_once t t`)
	contacts := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(type || ' ' || value, ', ' order by value) from deed.contact_identities`)
	want(t, "contacts", contacts, "telegram ann, telegram bob")
	verified(t, db)
}

// What nothing can be made of is counted, and holds up nothing: 200, or the platform
// would bring it again before all that comes later.
func TestReceiver_WhatCannotBeReadHoldsUpNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(echo)}}))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serveIn(t, r)
	url += "/in/plain"
	want(t, "one of three", post(t, url, "1 ann hello\nunreadable\n2 bob hello"), 200)
	want(t, "nothing else", post(t, url, "unreadable\nunreadable"), 200)
	want(t, "messages", state(t, db), "1 executed x1 r1, 2 executed x1 r1")
	for _, c := range r.Counts() {
		if c.Outcome == "unreadable" {
			want(t, "counted", c.N, 3)
			return
		}
	}
	t.Error("they are not counted")
}

// Who fills the places of one source leaves the others theirs: by requests that never
// end, or by an executor that does not.
func TestReceiver_PlacesAreASourcesOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	stuck := source(func(ctx context.Context, _ inbound.Message) (inbound.Result, error) {
		<-ctx.Done()
		return inbound.Result{}, ctx.Err()
	})
	stuck.Concurrency = 1
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{
		Sources: map[string]inbound.SourceOptions{"plain": source(echo), "other": source(echo), "stuck": stuck}, Wait: 20 * time.Second, Grace: time.Second,
	}))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serveIn(t, r)
	address := strings.TrimPrefix(url, "http://")
	var endless []net.Conn
	leave := func() {
		for _, c := range endless {
			_ = c.Close()
		}
		endless = nil
	}
	t.Cleanup(leave)
	var came time.Time
	eventually(t, "the places of one to be taken", func() bool {
		if time.Since(came) > 5*time.Second { // who sends nothing more is sent away after ten
			leave()
			came = time.Now()
			for range 300 {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				endless = append(endless, c)
				fmt.Fprintf(c, "POST /in/other HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n1")
			}
		}
		return post(t, url+"/in/other", "1 ann hello") == 503
	})
	ctx, stop := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer stop()
	for i := range 300 {
		waiting.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/in/stuck", strings.NewReader(fmt.Sprintf("%d ann%d hello", i, i))) // who have the source alone in common
			if err != nil {
				panic(err) // a constant is wrong
			}
			req.Header.Set("Signature", "ours")
			if answer, err := http.DefaultClient.Do(req); err == nil {
				_ = answer.Body.Close()
			}
		})
	}
	eventually(t, "the waiting places of another to be taken", func() bool {
		for _, c := range r.Counts() {
			if c.Source == "stuck" && c.Outcome == "busy" {
				return true
			}
		}
		return false
	})
	want(t, "the third", post(t, url+"/in/plain", "1 ann hello"), 200)
}

// What failed is told to the platform, and executed when that repeats it; with nothing
// of the first attempt left, whatever part of it failed.
func TestContract_D8_WhatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, inbound.Message) (inbound.Result, error){
		"executor": func(context.Context, inbound.Message) (inbound.Result, error) {
			return inbound.Say("never"), errors.New("canary")
		},
		"panic": func(context.Context, inbound.Message) (inbound.Result, error) { panic("canary") },
		"reply": func(context.Context, inbound.Message) (inbound.Result, error) {
			return inbound.Result{Replies: []inbound.Reply{{Text: "never"}, {Provider: "none"}}}, nil
		},
		"publish": func(context.Context, inbound.Message) (inbound.Result, error) {
			return inbound.Result{Replies: []inbound.Reply{{Text: "never"}}, Publish: []deed.Message{{Topic: ""}}}, nil
		},
		"denial": func(context.Context, inbound.Message) (inbound.Result, error) { return inbound.Deny("No Word"), nil },
		"in tx": func(context.Context, inbound.Message) (inbound.Result, error) {
			return inbound.Result{Replies: []inbound.Reply{{Text: "never"}}, InTx: func(context.Context, pgx.Tx) error { return errors.New("no") }}, nil
		},
		"in tx, swallowed": func(context.Context, inbound.Message) (inbound.Result, error) {
			return inbound.Result{Replies: []inbound.Reply{{Text: "never"}}, InTx: func(ctx context.Context, tx pgx.Tx) error {
				_, _ = tx.Exec(ctx, `select 1 / 0`)
				return nil
			}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			url, _ := one(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
				if m.Attempt == 1 && m.PlatformID == "1" {
					return fail(ctx, m)
				}
				return echo(ctx, m)
			})
			want(t, "at first", post(t, url, "1 ann hello\n2 bob hello"), 500)
			want(t, "messages", state(t, db), "1 dispatch_failed x1 r0, 2 executed x1 r1")
			want(t, "repeated", post(t, url, "1 ann hello"), 200)
			want(t, "messages", state(t, db), "1 executed x2 r1, 2 executed x1 r1")
			verified(t, db)
		})
	}
}

// Where the platform is told at once that all is well, what fails is run again here.
func TestContract_D8_AcceptedAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	began, let := make(chan struct{}, 9), make(chan struct{})
	s := source(func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		began <- struct{}{}
		<-let
		if m.Attempt == 1 {
			return inbound.Result{}, errors.New("no")
		}
		return echo(ctx, m)
	})
	s.At = inbound.AfterAccepted
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "answered", post(t, url, "1 ann hello"), 200)
	<-began
	close(let)
	eventually(t, "the second attempt", func() bool { return state(t, db) == "1 executed x2 r1" })
	verified(t, db)
}

// After ten attempts a message is held, and its platform told that all is well; a person
// has it run again.
func TestContract_D8_HeldAfterTenAttempts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	broken := true
	var mu sync.Mutex
	url, _ := one(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if broken && m.PlatformID == "1" {
			return inbound.Result{}, errors.New("broken")
		}
		return echo(ctx, m)
	})
	for n := range 12 {
		code := 500
		if n >= 9 {
			code = 200
		}
		want(t, fmt.Sprintf("attempt %d", n+1), post(t, url, "1 ann hello"), code)
	}
	want(t, "the sender's next", post(t, url, "2 ann hello"), 200)
	want(t, "messages", state(t, db), "1 dispatch_failed x10 r0, 2 executed x1 r1")
	list, err := inbound.List(t.Context(), db.Pool(pgtest.App), inbound.Filter{Held: true})
	if err != nil || len(list.Items) != 1 || list.Items[0].Error != "broken" {
		t.Fatalf("held: %+v, %v", list, err)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	if n, err := inbound.Retry(t.Context(), db.Pool(pgtest.Admin), []string{list.Items[0].ID}, act("mended")); n != 1 || err != nil {
		t.Errorf("retried: %d, %v", n, err)
	}
	eventually(t, "it to be executed", func() bool { return state(t, db) == "1 executed x1 r1, 2 executed x1 r1" })
	e, changes, replies, err := inbound.Show(t.Context(), db.Pool(pgtest.App), list.Items[0].ID)
	if err != nil || e.Status != inbound.Executed || len(replies) != 1 || len(changes) < 4 {
		t.Errorf("shown: %+v %+v %+v %v", e, changes, replies, err)
	}
	verified(t, db)
}

// Messages of one sender run one at a time, in the order in which they came; of two
// senders at the same time; whichever process takes them.
func TestContract_D8_OneAfterTheOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	const senders, each = 6, 12
	var mu sync.Mutex
	ran, running, most := map[string][]string{}, map[string]int{}, 0
	do := func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		mu.Lock()
		running[m.Sender]++
		most = max(most, len(running))
		if running[m.Sender] > 1 {
			t.Errorf("two messages of %s at once", m.Sender)
		}
		ran[m.Sender] = append(ran[m.Sender], m.PlatformID)
		mu.Unlock()
		time.Sleep(2 * time.Millisecond)
		mu.Lock()
		if running[m.Sender]--; running[m.Sender] == 0 {
			delete(running, m.Sender)
		}
		mu.Unlock()
		return echo(ctx, m)
	}
	s := source(do)
	s.At = inbound.AfterAccepted
	var urls []string
	for range 2 {
		url, _ := receive(t, db, db.NewPool(pgtest.Worker, 6), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
		urls = append(urls, url)
	}
	var all sync.WaitGroup
	for n := range senders {
		all.Go(func() {
			for i := range each {
				bring(t, urls[(n+i)%2], fmt.Sprintf("%d-%02d sender%d hello", n, i, n))
			}
		})
	}
	all.Wait()
	eventually(t, "all to be executed", func() bool { return strings.Count(state(t, db), "executed x1 r1") == senders*each })
	for sender, ids := range ran {
		if !slices.IsSorted(ids) || len(ids) != each {
			t.Errorf("%s: %v", sender, ids)
		}
	}
	if most < 2 {
		t.Errorf("never two senders at once")
	}
	verified(t, db)
}

// An executor that comes back after its lease records nothing, and its replies are not
// reserved; what another process did stands.
func TestContract_D8_AFrozenExecutor(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"batch", "in tx"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			frozen, thaw := make(chan struct{}), make(chan struct{})
			receiver, url, _ := logged(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
				if m.Attempt > 1 {
					return inbound.Say("second"), nil
				}
				close(frozen)
				<-thaw
				result := inbound.Say("first")
				if how == "in tx" {
					result.InTx = func(context.Context, pgx.Tx) error { return nil }
				}
				return result, nil
			})
			answered := make(chan int, 1)
			go func() { answered <- post(t, url, "1 ann hello") }()
			<-frozen
			// Its lease runs out, and another process takes the message, which nobody renews in between, and ends it.
			var claim int64
			if err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.Owner), func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `update deed.channel_messages set lease_until = clock_timestamp() - interval '1 second'`)
				claim = pgtest.One[int64](t, tx, `select claim from deed.claim_messages('plain', 1, '1 hour', 10, 'other')`)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			id := pgtest.One[string](t, db.Pool(pgtest.Worker), `
				select id::text from deed.finish_messages(array[(select id from deed.channel_messages)], array[$1::bigint], array['denied_other'], array[null], array[null]::float8[], 10, 'other')`, claim)
			close(thaw)
			want(t, "answered", <-answered, 200)
			eventually(t, "what it would record to be late", func() bool {
				return slices.ContainsFunc(receiver.Counts(), func(c inbound.Count) bool { return c.Outcome == "late" && c.N > 0 })
			})
			want(t, "messages", state(t, db), "1 denied_other x2 r0")
			if id == "" {
				t.Error("the other recorded nothing")
			}
			verified(t, db)
		})
	}
}

// What becomes of a message goes through the table of transitions, the owner's statements,
// too: what has ended is never accepted again, and what has not is not deleted.
func TestContract_D8_OnlyTheTransitions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url, stop := one(t, db, func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		switch m.Text {
		case "denied":
			return inbound.Deny("no"), nil
		case "failed":
			return inbound.Result{}, errors.New("no")
		}
		return echo(ctx, m)
	})
	post(t, url, "1 ann executed\n2 bob denied\n3 cem failed")
	owner := db.Pool(pgtest.Owner)
	for what, sql := range map[string]string{
		"executed becomes accepted":  `update deed.channel_messages set status = 'accepted', lease_until = now(), finished_at = null where platform_message_id = '1'`,
		"executed becomes failed":    `update deed.channel_messages set status = 'dispatch_failed' where platform_message_id = '1'`,
		"denied becomes executed":    `update deed.channel_messages set status = 'executed' where platform_message_id = '2'`,
		"failed becomes executed":    `update deed.channel_messages set status = 'executed' where platform_message_id = '3'`,
		"a new one that is executed": `insert into deed.channel_messages (id, tenant_id, source, platform_message_id, kind, sender, status, correlation_id, received_at, finished_at) select gen_random_uuid(), tenant_id, 's', 'x', 'telegram', 'x', 'executed', '', now(), now() from deed.channel_messages limit 1`,
		"all gone":                   `truncate deed.channel_messages cascade`,
	} {
		if _, err := owner.Exec(t.Context(), sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := owner.Exec(t.Context(), `update deed.channel_messages set status = 'done' where platform_message_id = '3'`); err == nil {
		t.Error("a status that there is not")
	}
	stop()
	want(t, "accepted again", pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select did from deed.accept_messages('plain', array['3'], array['telegram'], array['cem'], array[''], array[''], array['{}'], '', 'link', '00000000-0000-0000-0000-000000000000', 'w')`), "again")
	if _, err := owner.Exec(t.Context(), `delete from deed.channel_messages where status = 'accepted'`); sqlState(err) != "DDCON" {
		t.Errorf("one that has not ended is deleted: %v", err)
	}
	verified(t, db)
}

// A message whose processes die of it is not begun for ever: after ten times it is held, and
// the sender's next has its turn.
func TestContract_D8_AMessageThatKills(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	for _, id := range []string{"1", "2"} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array[$1], array['telegram'], array['ann'], array[''], array[''], array['{}'], '', 'link',
			'00000000-0000-0000-0000-000000000000', 'w')`, id)
	}
	claim := func() string {
		got := pgtest.One[string](t, worker, `select coalesce(string_agg(platform_message_id || ' ' || attempts || ' ' || held, ', '), '') from deed.claim_messages('plain', 10, '1 minute', 10, 'w')`)
		db.Exec(t, pgtest.Owner, `update deed.channel_messages set lease_until = clock_timestamp() - interval '1 second' where lease_until < 'infinity' and claim > 0`)
		return got
	}
	for n := range 10 {
		want(t, "claimed", claim(), fmt.Sprintf("1 %d false", n+1))
	}
	want(t, "once more", claim(), "1 10 true")
	want(t, "the next", claim(), "2 1 false")
	want(t, "messages", state(t, db), "1 dispatch_failed x10 r0, 2 accepted x1 r0")
	verified(t, db)
}

// While a result writes for long, who wrote it may write again: the next message is stored at
// once, and waits for its turn; and the lease is renewed.
func TestContract_D8_ALongTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	began, let := make(chan struct{}), make(chan struct{})
	s := source(func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		result := inbound.Say(m.Text)
		if m.PlatformID == "1" {
			result.InTx = func(ctx context.Context, tx pgx.Tx) error {
				close(began)
				<-let
				_, err := tx.Exec(ctx, `select set_config('app.written', 'x', true)`)
				return err
			}
		}
		return result, nil
	})
	s.At = inbound.AfterAccepted
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 6), inbound.Options{Lease: 15 * time.Second, Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "the first", post(t, url, "1 ann hello"), 200)
	<-began
	const until = `select lease_until from deed.channel_messages where platform_message_id = '1'`
	first, least := pgtest.One[time.Time](t, db.Pool(pgtest.Owner), until), time.Hour
	for i := range 20 {
		started := time.Now()
		want(t, "the next", post(t, url, fmt.Sprintf("%d ann hello", i+2)), 200)
		least = min(least, time.Since(started)) // of the others the machine's other work is a part
	}
	if least > time.Second {
		t.Errorf("storing the next took %s at the least", least)
	}
	eventually(t, "the lease to be renewed", func() bool { return pgtest.One[time.Time](t, db.Pool(pgtest.Owner), until).After(first) })
	close(let)
	eventually(t, "all to be executed once", func() bool { return strings.Count(state(t, db), "executed x1 r1") == 21 })
	verified(t, db)
}

// A renewal passes over a message that somebody has locked, and renews the others; and one whose lease is over by then is the caller's still when it
// is asked for once more and was let go. Its executor is not cancelled, and nobody runs it again.
func TestReceiver_AMessageThatIsLockedWhenItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	under, goOn := make(chan struct{}, 2), make(chan struct{})
	s := source(func(ctx context.Context, m inbound.Message) (inbound.Result, error) {
		under <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
			t.Errorf("message %s was cut short: %v", m.PlatformID, context.Cause(ctx))
		}
		return inbound.Say(m.Text), nil
	})
	s.At = inbound.AfterAccepted
	hold := db.Hold(t, pgtest.Worker, 8, "extend_messages")
	url, _ := receive(t, db, hold.Pool, inbound.Options{Lease: 15 * time.Second, PollInterval: time.Hour, Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "the first", post(t, url, "1 ann hello"), 200)
	want(t, "another's", post(t, url, "2 ben hello"), 200)
	<-under
	<-under
	owner := db.Pool(pgtest.Owner)
	lasts := `select lease_until > clock_timestamp() from deed.channel_messages where platform_message_id = $1`
	letGo := hold.Lock(`select from deed.channel_messages where platform_message_id = $1 for update`, `select lease_until - clock_timestamp() from deed.channel_messages where platform_message_id = $1`, "1", func() {
		want(t, "whether the other is renewed beside it", pgtest.One[bool](t, owner, lasts, "2"), true)
	})
	<-letGo
	eventually(t, "it to be renewed", func() bool { return pgtest.One[bool](t, owner, lasts, "1") })
	close(goOn)
	eventually(t, "both to be executed once", func() bool { return strings.Count(state(t, db), "executed x1 r1") == 2 })
	verified(t, db)
}

// What became of messages of ours is recorded once its request is verified; where that
// fails, the platform brings all of the request again, and nothing of it is lost or twice. What
// people wrote in the same request does not wait for it.
func TestReceiver_StatusesAreRecorded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	var mu sync.Mutex
	var got []string
	away := errors.New("the database is away")
	s := inbound.SourceOptions{Source: whatsAppSource(t), Executor: echo, Reply: inbound.ReplyBy{Provider: "hook", Channel: delivery.Webhook, To: "https://example.com/"}}
	s.Statuses = func(_ context.Context, events []delivery.StatusEvent) error {
		mu.Lock()
		defer mu.Unlock()
		if away != nil {
			return away
		}
		for _, e := range events {
			got = append(got, string(e.Said)+" "+e.Delivery)
		}
		return nil
	}
	r, err := inbound.New(t.Context(), db.NewPool(pgtest.Worker, 8), patient(inbound.Options{Sources: map[string]inbound.SourceOptions{"phone": s}}))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serveIn(t, r)
	body := whatsAppBody(`"messages":[{"id":"wamid.1","from":"4930123456","type":"text","text":{"body":"hello"}}],"statuses":[{"id":"wamid.7","status":"delivered","biz_opaque_callback_data":"d-7"}]`)
	send := func() int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/in/phone", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = signWhatsApp(body)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	eventually(t, "the receiver to run, and the database to be away", func() bool { return send() == 503 && r.Ready() == nil })
	eventually(t, "the message to run", func() bool { send(); return state(t, db) == "wamid.1 executed x1 r1" })
	mu.Lock()
	away = nil
	mu.Unlock()
	eventually(t, "the repeat to be taken", func() bool { return send() == 200 })
	want(t, "said", strings.Join(got, ", "), "delivered d-7")
	want(t, "messages", state(t, db), "wamid.1 executed x1 r1")
}
