package inbound_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// leftOpen does what it is told in a transaction that stays open until end.
func leftOpen(t testing.TB, db *pgtest.DB, do func(pgx.Tx) error) (end func()) {
	t.Helper()
	tx, err := db.NewPool(pgtest.App, 1).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if err := do(tx); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// moody fails what says fail, and waits for let with what says wait.
func moody(began, let chan struct{}) inbound.Executor {
	return func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		switch {
		case m.Text == "wait":
			began <- struct{}{}
			<-let
		case m.Text == "fail":
			return inbound.Result{}, errors.New("no")
		}
		return inbound.Say(m.Text), nil
	}
}

// An erasure that is left open holds up nobody but whom it is of: not who writes in the same
// request, nor whose messages end with one of theirs; and of them only what the erasure would
// change. Once it has ended, it is as if it had been short.
func TestContract_D12_AnErasureLeftOpenHoldsUpNoMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	began, let := make(chan struct{}, 4), make(chan struct{})
	url, _ := one(t, db, moody(began, let))
	want(t, "what ended", post(t, url, "1 canary canary-text"), 200)
	done := make(chan int, 2)
	go func() { done <- post(t, url, "2 canary wait") }()
	go func() { done <- post(t, url, "3 bob wait") }()
	<-began
	<-began
	of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'canary'`)
	end := leftOpen(t, db, func(tx pgx.Tx) error {
		_, err := contact.Erase(t.Context(), tx, nil, of, act("asked for on paper"), contact.EraseOptions{})
		return err
	})
	want(t, "a repeat of what ended", post(t, url, "1 canary canary-text"), 200)
	want(t, "another's, in one request with theirs", post(t, url, "5 canary canary-text\n6 dan hello"), 503)
	close(let)
	for _, id := range []string{"3", "6"} { // beside 2, which cannot end
		eventually(t, "another's to end: "+id, func() bool { return strings.Contains(state(t, db), id+" executed x1 r1") })
	}
	want(t, "another's, alone", post(t, url, "7 eve hello"), 200)
	if got := state(t, db); !strings.Contains(got, "2 accepted x1 r0") || strings.Contains(got, "5 ") {
		t.Errorf("beside the open erasure: %s", got)
	}
	end()
	want(t, "one of the two that waited", <-done, 200)
	want(t, "the other", <-done, 200)
	want(t, "brought again", post(t, url, "5 canary canary-text\n6 dan hello"), 200)
	for _, ended := range []string{"1 executed x1 r1", "2 denied_erased x1 r0", "3 executed x1 r1", "5 executed x1 r1", "6 executed x1 r1", "7 executed x1 r1"} {
		if got := state(t, db); !strings.Contains(got, ended) {
			t.Errorf("%s, want %s", got, ended)
		}
	}
	verified(t, db)
}

// Who takes contacts apart and leaves the transaction open holds up no repeat but of what
// would be run again.
func TestUnmerge_LeftOpenHoldsUpNoRepeat(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url, _ := one(t, db, moody(nil, nil))
	for body, code := range map[string]int{"1 canary hello": 200, "2 bob hello": 200, "3 canary fail": 500} {
		want(t, body, post(t, url, body), code)
	}
	of := func(who string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = $1`, who)
	}
	if _, err := contact.Merge(t.Context(), db.Pool(pgtest.App), nil, of("canary"), of("bob"), act("one person")); err != nil {
		t.Fatal(err)
	}
	want(t, "while they are one", post(t, url, "4 canary fail"), 500)
	end := leftOpen(t, db, func(tx pgx.Tx) error {
		_, err := contact.Unmerge(t.Context(), tx, nil, of("canary"), act("two persons"))
		return err
	})
	want(t, "what ended", post(t, url, "1 canary hello"), 200)
	want(t, "what would be run again, and another's", post(t, url, "4 canary fail\n5 dan hello"), 503)
	eventually(t, "another's to end", func() bool { return strings.Contains(state(t, db), "5 executed x1 r1") })
	end()
	want(t, "brought again", post(t, url, "4 canary fail\n5 dan hello"), 500)
	if got := state(t, db); !strings.Contains(got, "4 dispatch_failed x2 r0") {
		t.Errorf("brought again: %s", got)
	}
	verified(t, db)
}

// Platforms that go away before their messages are stored, as many do at once where the process was
// frozen, fill no log.
func TestHandler_WhoHasGoneFillsNoLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	var log lines
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(echo)}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	want(t, "before", post(t, url, "1 canary hello"), 200)
	of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'canary'`)
	end := leftOpen(t, db, func(tx pgx.Tx) error {
		_, err := contact.Erase(t.Context(), tx, nil, of, act("asked for on paper"), contact.EraseOptions{})
		return err
	})
	const many = 20
	begun := time.Now()
	goes := func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf("%d canary hello", i+2)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Signature", "ours")
		if answer, err := http.DefaultClient.Do(req); err == nil {
			answer.Body.Close()
			if answer.StatusCode != http.StatusServiceUnavailable { // it has waited for longer than it was to
				t.Errorf("it was answered: %d", answer.StatusCode)
			}
		}
	}
	for i := range many {
		goes(i)
	}
	told := func() int { return len(log.with("has gone before its messages were stored")) }
	more := many
	eventually(t, "it to be said", func() bool {
		if told() == 0 { // none has come so far that it could be missed
			goes(more)
			more++
		}
		return told() > 0
	})
	if most := 2 + int(time.Since(begun)/time.Second); told() > most || len(log.with("level=ERROR")) > 0 {
		t.Errorf("%d lines of those who have gone, at most %d; errors: %v", told(), most, log.with("level=ERROR"))
	}
	end()
	want(t, "brought again", post(t, url, "2 canary hello"), 200)
	verified(t, db)
}

// Messages of one whom somebody has locked take few connections, however many come at once and come again: not those of
// another source, nor the places of others who write to theirs.
func TestContract_D12_MessagesOfALockedSenderHoldUpNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": source(echo), "second": source(echo)}})
	second := strings.TrimSuffix(url, "plain") + "second"
	want(t, "before", post(t, url, "1 canary hello"), 200)
	of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'canary'`)
	end := leftOpen(t, db, func(tx pgx.Tx) error {
		_, err := contact.Erase(t.Context(), tx, nil, of, act("asked for on paper"), contact.EraseOptions{})
		return err
	})
	ctx, enough := context.WithCancel(t.Context())
	var platform sync.WaitGroup
	defer platform.Wait()
	defer enough()
	for i := range 64 {
		platform.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(fmt.Sprintf("%d canary hello", 100+i)))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Signature", "ours")
				if answer, err := http.DefaultClient.Do(req); err == nil { // else it has been enough
					answer.Body.Close()
					if answer.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("one whom somebody has locked: %d", answer.StatusCode)
					}
				}
			}
		})
	}
	most := 0
	waiting := func() int {
		n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from pg_locks l join pg_stat_activity a on a.pid = l.pid where a.datname = current_database() and not l.granted`)
		most = max(most, n)
		return n
	}
	eventually(t, "messages to wait", func() bool { return waiting() > 0 })
	begun := time.Now()
	for i := range 10 {
		want(t, "of another source", post(t, second, fmt.Sprintf("%d bob hello", i)), 200)
		want(t, "of another who writes there", post(t, url, fmt.Sprintf("%d dan hello", 10+i)), 200)
		waiting()
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("twenty messages of others took %s", took)
	}
	if most > 2 {
		t.Errorf("%d connections waited for the lock", most)
	}
	enough()
	platform.Wait()
	end()
	bring(t, url, "2 canary hello")
	verified(t, db)
}
