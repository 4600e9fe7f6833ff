package inbound_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// Killed at every step, two processes at once, each message sent to both at the same time
// and again until one has said that all is well: one reply for each, and none lost.
func TestContract_D8_KilledAtEveryStep(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/receiver")
	for _, answer := range []string{"executed", "accepted"} {
		for _, step := range []string{"accepting", "accepted", "claiming", "executing", "executed", "settling", "settled"} {
			t.Run(answer+" "+step, func(t *testing.T) {
				t.Parallel()
				killedAt(t, program, answer, "inbound "+step+":3")
			})
		}
	}
}

func killedAt(t *testing.T, program harness.Program, answer, point string) {
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	addresses := []string{freeAddress(t), freeAddress(t)}
	start := func(n int, point string) *harness.Victim {
		return program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_ADDRESS="+addresses[n], "VICTIM_ANSWER="+answer)
	}
	victim := start(0, point)
	other := start(1, "")
	ctx, cancel := context.WithTimeout(t.Context(), 2*pgtest.Patience)
	defer cancel()
	var all sync.WaitGroup
	sent, room := 0, make(chan struct{}, 8)
	for victim.Running() && ctx.Err() == nil { // the other one takes its share
		select {
		case room <- struct{}{}:
		case <-time.After(50 * time.Millisecond): // it may have died with all of them
			continue
		}
		body := fmt.Sprintf("%d sender%d hello", sent, sent%5)
		sent++
		all.Go(func() {
			defer func() { <-room }()
			var both sync.WaitGroup
			for _, address := range addresses {
				both.Go(func() { untilDone(ctx, t, address, body) })
			}
			both.Wait()
		})
	}
	victim.Crashed(t, strings.Split(point, ":")[0], pgtest.Patience)
	again := start(0, "")
	all.Wait()
	eventually(t, "all to be executed", func() bool { return strings.Count(state(t, db), " executed ") == sent })
	other.Stop()
	again.Stop()
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != sent {
		t.Errorf("%d replies to %d messages: %s", n, sent, state(t, db))
	}
	verified(t, db)
}

// A process that is frozen while it runs messages, past its lease, and comes back after
// their senders were erased, writes nothing of them; what others wrote is answered once.
func TestContract_D12_AFrozenExecutorWritesNothing(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/receiver")
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	db.Exec(t, pgtest.Owner, `create table public.said (text text)`)
	db.Exec(t, pgtest.Owner, `grant insert on public.said to deed_worker`)
	began, let := make(chan struct{}, 8), make(chan struct{})
	gate := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		select {
		case <-let:
		case <-r.Context().Done():
		}
	}))
	defer gate.Close()
	start := func(env ...string) (*harness.Victim, string) {
		address := freeAddress(t)
		// Who is not frozen keeps what it runs, however seldom it has a processor.
		return program.Start(t, "", append(env, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_ADDRESS="+address, "VICTIM_ANSWER=accepted", "VICTIM_LEASE=6s")...), address
	}
	frozen, address := start("VICTIM_GATE=" + gate.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 2*pgtest.Patience)
	defer cancel()
	words := []string{"say canary", "publish canary", "write canary", "hello"}
	for i, text := range words {
		untilDone(ctx, t, address, fmt.Sprintf("%d sender%d %s", i, i, text))
		<-began
	}
	frozen.Freeze()
	for i := range words[:3] {
		of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'sender' || $1::int`, i)
		if _, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, of, act("asked for on paper"), contact.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other, _ := start()
	const ended = "0 denied_erased x1 r0, 1 denied_erased x1 r0, 2 denied_erased x1 r0, 3 executed x2 r1"
	eventually(t, "the other one to have taken them over", func() bool { return state(t, db) == ended })
	close(let)
	frozen.Thaw()
	untilDone(ctx, t, address, "4 sender3 again")
	eventually(t, "what comes after", func() bool { return strings.HasSuffix(state(t, db), "4 executed x1 r1") })
	for _, v := range []*harness.Victim{frozen, other} {
		v.Stop()
		if err := v.Wait(t, pgtest.Patience); err != nil {
			t.Errorf("%v:\n%s", err, v.Output())
		}
	}
	want(t, "messages", state(t, db), ended+", 4 executed x1 r1")
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	want(t, "rows of the service", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.said`), 0)
	for _, v := range []*harness.Victim{frozen, other} {
		if strings.Contains(v.Output(), "canary") {
			t.Errorf("a log has what was written:\n%s", v.Output())
		}
	}
	verified(t, db)
}

// untilDone sends a message as a platform does, until it hears that all is well.
func untilDone(ctx context.Context, t *testing.T, address, body string) {
	for ctx.Err() == nil {
		if code := post(t, "http://"+address+"/in/plain", body); code == http.StatusOK {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%q was never done", body)
}

// freeAddress is one where nobody comes to listen before a process does, and while one that was killed is started anew: other tests
// take ports of another host's.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil { // not every system has more than one
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
