package inbound_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
	victim.Crashed(t, strings.Split(point, ":")[0], 30*time.Second)
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

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
