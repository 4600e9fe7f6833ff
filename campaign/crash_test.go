package campaign_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// A run to 3,376 people whose relays are killed every second: by the service's own file
// everybody has got it once and nobody twice, and the run has ended.
func TestContract_C4_RelaysKilledEverySecond(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/campaigner")
	db := pgtest.New(t)
	const members = 3376
	file := filepath.Join(t.TempDir(), "accepted")
	box := &catcher.Mailbox{Accepted: func(m catcher.Mail) {
		out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(out, strings.Join(m.To, ","))
		}
		if err == nil {
			err = out.Close()
		}
		if err != nil {
			t.Errorf("an acceptance was not written down: %v", err)
		}
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := &http.Server{Handler: &catcher.Resend{Mailbox: box}, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- service.Serve(l) }()
	t.Cleanup(func() {
		_ = service.Close()
		<-done
	})

	db.Providers(t, "resend", "p")
	run := deploy(t, db, campaign.Request{
		Campaign: put(t, db, "spring", spring).ID, Audience: people(t, db, "airports", campaign.Email, members).ID,
		ID: "1", Channel: campaign.Email, Provider: "p", Transactional: true, From: "shop@example.com",
	})
	env := []string{"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_ADDRESS=" + l.Addr().String()}
	ended := func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select finished_at is not null from deed.campaign_runs where id = $1::text::uuid`, run)
	}
	progress := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', (select count(*) from deed.job_queue where expanded_at is not null), (select count(*) from deed.channel_outbox where finished_at is not null))`)
	}
	kills := 0
	for !ended() {
		before := progress()
		victim := program.Start(t, "", env...)
		waitFor(t, "the victim to run, or to end", func() bool { return strings.Contains(victim.Output(), "victim: runs") || !victim.Running() })
		select { // a second of work, or until the run has ended
		case <-time.After(time.Second):
		case <-wait(t.Context(), ended):
		}
		// On a machine that is busy it may have done nothing by then.
		waitFor(t, "the victim to do something", func() bool { return progress() != before || ended() })
		victim.Kill()
		kills++
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		times[strings.TrimSpace(line)]++
	}
	for i := range members {
		if n := times[address(campaign.Email, i)]; n != 1 {
			t.Errorf("%s got it %d times", address(campaign.Email, i), n)
		}
	}
	want(t, "people who got it", len(times), members)
	want(t, "the run", states(t, db, run), "completed: completed 1000/0/0/0/0, completed 1000/0/0/0/0, completed 1000/0/0/0/0, completed 376/0/0/0/0")
	want(t, "bytes that were kept of what was sent", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where request is not null or request_sha256 is null`), 0)
	t.Logf("%d members, %d relays killed", members, kills)
	if kills < 2 {
		t.Errorf("%d relays were killed, want some", kills)
	}
}

// wait is closed when cond holds or ctx has ended.
func wait(ctx context.Context, cond func() bool) <-chan struct{} {
	held := make(chan struct{})
	go func() {
		defer close(held)
		for ctx.Err() == nil && !pgtest.Wait(100*time.Millisecond, cond) {
			continue
		}
	}()
	return held
}
