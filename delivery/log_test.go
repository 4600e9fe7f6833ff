package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// lines collects what a ledger logs, down to debug.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// line is what the test looks at of one.
type line struct {
	Level, Msg, Delivery, Tenant, From, To, Request string
	Deliveries                                      []string
	Correlation                                     string `json:"correlation_id"`
	Actor                                           string // of a person's act
	Destination                                     string // of a pause
	Count                                           int    // of the deliveries that it concerned
}

func (l *lines) all(t *testing.T) []line {
	t.Helper()
	var list []line
	for text := range strings.Lines(l.text()) {
		var v line
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		list = append(list, v)
	}
	return list
}

// stages is a database, and providers of which each case brings one of its own.
type stages struct {
	*testing.T
	db   *pgtest.DB
	said lines
	opts delivery.Options
	made map[string]string // by case, the delivery's id
}

const secretText = "canary-in-the-payload"

// stage has a delivery of its own provider go through what the case says.
func (s *stages) stage(name string, p *fake, change func(*delivery.Delivery, *delivery.ProviderOptions)) string {
	s.Helper()
	d := email(name + "-canary@example.com")
	d.Provider, d.CorrelationID = name, "corr-"+name
	d.Payload = json.RawMessage(`{"subject":"` + secretText + `"}`)
	o := delivery.ProviderOptions{Provider: p, Defer: time.Millisecond}
	if change != nil {
		change(&d, &o)
	}
	s.opts.Providers[name] = o
	s.made[name] = reserve(s.T, s.db, d)[0].ID
	return s.made[name]
}

// answers is a provider that answers so, in turn; the last for ever.
func answers(list ...delivery.Outcome) *fake {
	f := newFake()
	f.caps.Channels = append(f.caps.Channels, delivery.SMS)
	f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
		return list[min(n, len(list))-1], true
	}
	return f
}

// lookUp is a provider that can look deliveries up.
type lookUp struct {
	*fake
	found bool
}

func (l *lookUp) Find(context.Context, delivery.Reservation) (delivery.Finding, error) {
	return delivery.Finding{Found: l.found, MessageID: "found"}, nil
}

// sameAsAudit compares a ledger's log with the audit log, and returns how often
// that has each change: the delivery, from and to. What a worker called gone
// did is not the ledger's.
func sameAsAudit(t *testing.T, db *pgtest.DB, l *lines, names map[string]string) (inAudit map[string]int) {
	t.Helper()
	inLog, putBack := map[string]int{}, 0
	claimed, begun := 0, map[string]bool{}
	for _, v := range l.all(t) {
		if v.Msg == "deliveries claimed" {
			claimed += v.Count
			if v.Level != "DEBUG" {
				t.Errorf("a claim is told as %s", v.Level)
			}
		}
		if v.Actor != "" {
			putBack += v.Count
		}
		if v.From == "" && v.To == "" {
			continue
		}
		ids := v.Deliveries
		if v.Delivery != "" {
			ids = append(ids, v.Delivery)
			if v.Actor == "" && (v.Tenant == "" || !strings.HasPrefix(v.Correlation, "corr-")) {
				t.Errorf("a line without all ids: %+v", v)
			}
		}
		if v.To == "sending" && v.From == "queued" && v.Level != "DEBUG" {
			t.Errorf("the claim of every delivery is told: %+v", v)
		}
		for _, id := range ids {
			inLog[id+" "+v.From+" "+v.To]++
			if v.From == "queued" && v.To == "sending" {
				begun[id] = true
			}
		}
	}
	if claimed < len(begun) {
		t.Errorf("claims of %d deliveries are told, and %d were begun to be called", claimed, len(begun))
	}
	inAudit = map[string]int{}
	rows, err := db.Pool(pgtest.Owner).Query(context.Background(), `
		select i.id, a.from_status, a.to_status, count(*)
		from deed.audit_log a
		cross join lateral (
		  select a.subject_id as id where a.subject_id is not null
		  union all
		  select jsonb_array_elements_text(a.details -> 'ids')
		) i
		where a.subject_type = 'delivery' and a.from_status is not null and a.to_status is not null and a.actor <> 'gone' and a.action <> 'retry'
		group by i.id, a.from_status, a.to_status`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, from, to string
		var n int
		if err := rows.Scan(&id, &from, &to, &n); err != nil {
			t.Fatal(err)
		}
		inAudit[id+" "+from+" "+to] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select coalesce(sum(affected), 0) from deed.audit_log where subject_type = 'delivery' and action = 'retry'`); putBack != n {
		t.Errorf("persons put %d back by the log, and %d by the audit log", putBack, n)
	}
	said := func(change string) string {
		id, what, _ := strings.Cut(change, " ")
		return fmt.Sprintf("%s: %s", names[id], what)
	}
	for change, n := range inAudit {
		if inLog[change] != n {
			t.Errorf("%s: %d lines, and %d in the audit log", said(change), inLog[change], n)
		}
	}
	for change, n := range inLog {
		if inAudit[change] == 0 {
			t.Errorf("%s: %d lines, and none in the audit log", said(change), n)
		}
	}
	return inAudit
}

// Every change of a delivery's status that the ledger makes has one log line,
// with the delivery, from and to, and so has every doubt: the log and the audit
// log say the same. What is about to be called is told by the batch, at debug.
// No line has a recipient or a payload.
func TestLog_EveryChangeHasOneLine(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	s := &stages{T: t, db: db, made: map[string]string{}}
	s.opts = fast(newFake())
	s.opts.Logger, s.opts.Worker, s.opts.Providers = s.said.logger(), "the-ledger", map[string]delivery.ProviderOptions{}
	broken, ok := errors.New("broken"), delivery.Accepted("m")

	s.stage("sent", answers(ok), nil)
	s.stage("called", answers(ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) {
		d.Channel, d.Recipient = delivery.Voice, "+4915112345"
	})
	s.stage("posted", answers(ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.Channel = delivery.Social })
	s.stage("failed", answers(delivery.Refused(broken)), nil)
	s.stage("dead", answers(delivery.NotNow(broken, 0)), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.MaxAttempts = 3 })
	s.stage("deferred", answers(delivery.Deferred(broken, 0), ok), nil)
	s.stage("outage", answers(delivery.Outage(broken, 0), ok), nil)
	s.stage("held", answers(delivery.Unknown(broken)), nil)
	s.stage("again", answers(delivery.Unknown(broken), ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.Guarantee = delivery.AtLeastOnce })
	s.stage("repeated", answers(delivery.Unknown(broken), delivery.Unknown(broken), ok).withKey(time.Hour), nil)
	s.stage("repeated-refused", answers(delivery.Unknown(broken), delivery.Refused(broken)).withKey(time.Hour), nil)
	s.stage("sandboxed", answers(ok), func(_ *delivery.Delivery, o *delivery.ProviderOptions) { o.Sandbox = "box@example.org" })
	s.stage("found", nil, func(_ *delivery.Delivery, o *delivery.ProviderOptions) {
		o.Provider = &lookUp{answers(delivery.Unknown(broken)), true}
	})
	s.stage("not-found", nil, func(_ *delivery.Delivery, o *delivery.ProviderOptions) {
		o.Provider = &lookUp{answers(delivery.Unknown(broken)), false}
	})
	f := answers(ok)
	f.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) { panic("a bug") }
	s.stage("panic", f, nil)
	f = answers(ok)
	f.render = func(delivery.Draft) ([]byte, error) { return nil, broken }
	s.stage("unusable", f, nil)
	// What is proved afterwards: by an event of the delivery, by one that came before its message, and by an answer that
	// comes when a person has decided.
	told := s.stage("told", answers(delivery.Unknown(broken)), nil)
	toldOtherwise := s.stage("told-otherwise", answers(delivery.Refused(broken)), nil)
	matched := s.stage("matched", answers(delivery.Unknown(broken)), nil)
	answer := make(chan struct{})
	slow := answers(ok)
	slow.send = func(ctx context.Context, _ int, _ delivery.Reservation) (delivery.Outcome, bool) {
		select {
		case <-answer:
		case <-ctx.Done():
		}
		return ok, true
	}
	answered := s.stage("answered-late", slow, func(_ *delivery.Delivery, o *delivery.ProviderOptions) { o.Timeout = 10 * time.Minute })
	s.stage("suppressed", answers(ok), nil)
	if _, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{"suppressed-canary@example.com"}, audit.Act{By: "ann", Reason: "asked to"}); err != nil {
		t.Fatal(err)
	}
	expired := s.stage("expired", answers(ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.ExpiresAt = time.Now().Add(time.Hour) })
	paused := s.stage("expired-while-paused", answers(ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.ExpiresAt = time.Now().Add(time.Hour) })
	f = answers(ok)
	f.caps.Lanes = delivery.LanePerHost
	away := s.stage("given-up", f, nil)
	spent := s.stage("spent", answers(ok), nil)
	lost := s.stage("lost", answers(ok), nil)
	late := s.stage("late", answers(ok), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.Guarantee = delivery.AtLeastOnce })
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set expires_at = clock_timestamp() - interval '1 second' where id in ($1::text::uuid, $2::text::uuid)`, expired, paused)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = clock_timestamp() - interval '25 hours' where id = $1::text::uuid`, away)
	db.Exec(t, pgtest.Owner, `
		insert into deed.pauses (provider, destination, since, until, failures, why)
		values ('given-up', 'example.com', clock_timestamp() - interval '25 hours', clock_timestamp() + interval '1 hour', 9, 'gone'),
		  ('expired-while-paused', '', clock_timestamp(), clock_timestamp() + interval '1 hour', 1, 'gone')`)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox
		set lost_claims = 30, claim = 1, claimed_at = clock_timestamp(), claimed_by = 'gone', lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid`, spent)
	worker := db.Pool(pgtest.Worker)
	for id, provider := range map[string]string{lost: "lost", late: "late"} {
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries($1::text, 'gone', 1, '1 minute') where id = $2::text::uuid`, provider, id)
		pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['{}'::bytea], null, '1 minute', 'gone')`, id, claim)
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid`, id)
	}

	l, stop := run(t, db, s.opts)
	for name, want := range map[string]delivery.Status{
		"sent": delivery.Sent, "called": delivery.Called, "posted": delivery.Posted, "failed": delivery.Failed, "dead": delivery.Dead, "deferred": delivery.Sent,
		"outage": delivery.Sent, "again": delivery.Sent, "repeated": delivery.Sent, "sandboxed": delivery.Skipped, "found": delivery.Sent, "unusable": delivery.Failed,
		"suppressed": delivery.Skipped, "expired": delivery.Skipped, "expired-while-paused": delivery.Skipped, "given-up": delivery.Dead, "spent": delivery.Dead, "late": delivery.Sent,
		"told-otherwise": delivery.Failed,
	} {
		until(t, db, s.made[name], want)
	}
	for _, name := range []string{"held", "repeated-refused", "not-found", "panic", "lost", "told", "matched"} {
		held(t, db, s.made[name])
	}
	// What persons and proofs do through a ledger that has a logger, such as a
	// server's.
	act := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	admin := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{Logger: s.opts.Logger, Worker: "the-ledger"})
	_, err := admin.Settle(ctx, s.made["held"], delivery.WasSent, "", audit.Act{By: "ann", Reason: "it is there"})
	act(err)
	_, err = admin.Settle(ctx, s.made["repeated-refused"], delivery.HasFailed, "", audit.Act{By: "ann", Reason: "it is not"})
	act(err)
	_, err = admin.Settle(ctx, s.made["panic"], delivery.SendAgain, "", audit.Act{By: "ann", Reason: "come what may"})
	act(err)
	held(t, db, s.made["panic"])
	_, err = admin.Retry(ctx, []string{s.made["failed"]}, audit.Act{By: "ann", Reason: "again"})
	act(err)
	until(t, db, s.made["failed"], delivery.Failed)
	_, err = admin.Redrive(ctx, delivery.Redrive{Act: audit.Act{By: "ann", Reason: "again"}, Provider: "dead", Request: "redrive-x"})
	act(err)
	until(t, db, s.made["dead"], delivery.Dead)
	for _, name := range []string{"lost", "dead", "dead"} {
		_, err = l.Prove(ctx, s.made[name], "proof", "the-ledger")
		act(err)
	}
	for name, event := range map[string]delivery.StatusEvent{"told": {Delivery: told}, "told-otherwise": {Delivery: toldOtherwise}, "matched": {MessageID: "m-matched"}} {
		event.Said, event.ID = delivery.SaidDelivered, "ev"
		_, err = l.Record(ctx, name, event)
		act(err)
	}
	eventually(t, "the call that is answered late", func() bool { return slow.called(answered) == 1 })
	eventually(t, "a person's decision", func() bool {
		// Again and again: it is renewed, unless somebody finds first that it is over.
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid and lease_until is not null`, answered)
		_, err := admin.Settle(ctx, answered, delivery.HasFailed, "", audit.Act{By: "ann", Reason: "no trace of it"})
		return err == nil
	})
	close(answer)
	eventually(t, "the late answer", func() bool { return entry(t, db, answered).ProvedAt != nil })
	stop()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set provider_message_id = 'm-matched' where id = $1::text::uuid`, matched)
	db.Exec(t, pgtest.Owner, `update deed.unmatched_events set tried_at = tried_at - interval '1 minute'`)
	_, stop = run(t, db, s.opts) // which looks at events at once, and again every minute
	until(t, db, matched, delivery.Sent)
	stop()

	names := map[string]string{}
	for name, id := range s.made {
		names[id] = name
	}
	inAudit := sameAsAudit(t, db, &s.said, names)
	for _, need := range []string{
		"sent queued sending", "dead sending queued", "dead sending dead", "dead dead dead", "unusable queued failed",
		"suppressed queued skipped", "sandboxed sending skipped", "given-up queued dead", "spent queued dead", "lost sending sending", "lost sending sent", "late sending queued",
		"held sending sent", "repeated-refused sending failed", "panic sending queued", "failed sending failed",
		"told sending sent", "told-otherwise failed failed", "matched sending sent", "answered-late failed failed",
	} {
		name, what, _ := strings.Cut(need, " ")
		if inAudit[s.made[name]+" "+what] == 0 {
			t.Errorf("the test has no %s", need)
		}
	}
	for _, never := range []string{secretText, "canary@", "+49151", "Bearer"} {
		if strings.Contains(s.said.text(), never) {
			t.Errorf("the log has %q", never)
		}
	}
	if t.Failed() && testing.Verbose() {
		t.Log(s.said.text())
	}
}

// The end of a pause names whose it was, as its beginning does: a chat's is not its provider's.
func TestLog_TheEndOfAPauseNamesIt(t *testing.T) {
	t.Parallel()
	for name, out := range map[string]delivery.Outcome{"chat": delivery.LaneOutage(errors.New("too many"), time.Millisecond), "all": delivery.Outage(errors.New("down"), time.Millisecond)} {
		db := pgtest.New(t)
		var said lines
		f := answers(out, delivery.Accepted("m"))
		f.caps.Lanes = delivery.LanePerRecipient
		opts := fast(f)
		opts.Logger = said.logger()
		registered(t, db, opts) // a delivery has its lane from the beginning
		d := email("42")
		d.Channel = delivery.Chat
		id := reserve(t, db, d)[0].ID
		_, stop := run(t, db, opts)
		until(t, db, id, delivery.Sent)
		stop()
		var begun, over []string
		for _, v := range said.all(t) {
			switch {
			case strings.HasPrefix(v.Msg, "paused: "):
				begun = append(begun, v.Destination)
			case strings.HasPrefix(v.Msg, "no longer paused"):
				over = append(over, v.Destination)
			}
		}
		if len(begun) != 1 || (begun[0] != "") != (name == "chat") || !slices.Equal(over, begun) {
			t.Errorf("%s: pauses began of %q, and ended of %q", name, begun, over)
		}
	}
}

// Services repeat whom they refuse; neither the log nor the row of a pause, which
// no tenant has to itself, does. The delivery has the text as it came.
func TestLog_NoRecipientInAnError(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := &stages{T: t, db: db, made: map[string]string{}}
	s.opts = fast(nil)
	s.opts.Providers, s.opts.Logger = map[string]delivery.ProviderOptions{}, s.said.logger()
	said := errors.New("550 5.1.1 <Somebody+X@Example.com>: recipient address rejected: somebody+x@example.com")
	for name, out := range map[string]delivery.Outcome{
		"failed": delivery.Refused(said), "deferred": delivery.Deferred(said, time.Hour), "paused": delivery.Outage(said, time.Hour), "doubtful": delivery.Unknown(said),
	} {
		s.stage(name, answers(out), func(d *delivery.Delivery, _ *delivery.ProviderOptions) { d.Recipient = "somebody+x@example.com" })
	}
	_, stop := run(t, db, s.opts)
	if e := until(t, db, s.made["failed"], delivery.Failed); !strings.Contains(e.LastError, "<Somebody+X@Example.com>") {
		t.Errorf("the delivery says %q", e.LastError)
	}
	eventually(t, "the others to be called", func() bool { // a pause has a line of its own
		return strings.Count(s.said.text(), "550 5.1.1") >= 5 && pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.pauses where provider = 'paused')`)
	})
	stop()
	why := pgtest.One[string](t, db.Pool(pgtest.Owner), `select why from deed.pauses where provider = 'paused'`)
	for _, text := range []string{s.said.text(), why} {
		if strings.Contains(strings.ToLower(text), "somebody+x") || !strings.Contains(text, "(recipient)") {
			t.Errorf("names the recipient, or does not say that it does not: %s", text)
		}
	}
}

// What was written to be called, and was not since the database took too long,
// is put back or found in doubt: either is told.
func TestLog_WhatIsPutBackUncalled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	var said lines
	f := newFake()
	of := email("a@example.com")
	of.CorrelationID = "corr-a"
	made := reserve(t, db, of)
	var once sync.Once
	f.render = func(d delivery.Draft) ([]byte, error) {
		once.Do(func() {
			tx, err := db.Pool(pgtest.Owner).Begin(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, `select from deed.channel_outbox for update`)
			}
			if err != nil {
				t.Error(err)
				return
			}
			go func() {
				_, err := tx.Exec(ctx, `select pg_sleep(1.2)`)
				if err = errors.Join(err, tx.Commit(ctx)); err != nil {
					t.Error(err)
				}
			}()
		})
		return d.Payload, nil
	}
	opts := fast(f)
	opts.Logger, opts.Worker, opts.Lease = said.logger(), "the-ledger", time.Second
	_, stop := run(t, db, opts)
	eventually(t, "the first attempt to be put back or in doubt", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `
			select count(*) from deed.audit_log a join deed.channel_outbox c on a.subject_id = c.id::text
			where a.from_status = 'sending' and (c.status = 'sent' or c.held_at is not null)`) > 0
	})
	stop()
	if n := f.called(made[0].ID); n > 1 {
		t.Errorf("called %d times", n)
	}
	sameAsAudit(t, db, &said, map[string]string{made[0].ID: "it"})
}
