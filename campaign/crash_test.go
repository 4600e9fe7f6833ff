package campaign_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// airports is how many people a launch of full size has, fewOf how many one has that is no part of
// the torture.
const (
	airports = 3376
	fewOf    = 300
)

// sizeOf is how many members a launch has that is of full size in torture only.
func sizeOf() int {
	if os.Getenv("DEED_TORTURE") != "" {
		return airports
	}
	return fewOf
}

// Runs to everybody whose relays are killed every second: by the services' own files everybody
// has got it once and nobody twice, and the run has ended.
func TestContract_C4_RelaysKilledEverySecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		channel campaign.Channel
		members int
	}{{campaign.Email, airports}, {campaign.Voice, sizeOf()}, {campaign.Social, sizeOf()}} {
		t.Run(string(c.channel), func(t *testing.T) {
			t.Parallel()
			l := newLaunch(t, pgtest.New(t), c.channel, c.members)
			for !l.ended() {
				victim := l.relay()
				l.await("the victim to have worked for a second", l.worked(time.Now()))
				victim.Kill()
				if l.kills.Add(1) == 2 {
					l.forgetExpansions()
				}
			}
			l.judge()
			t.Logf("%d members, %d relays killed", c.members, l.kills.Load())
			if l.kills.Load() < 2 {
				t.Errorf("%d relays were killed, want some", l.kills.Load())
			}
		})
	}
}

// The server is killed in the middle of runs, and comes back: the same.
func TestContract_C4_ServerKilled(t *testing.T) {
	t.Parallel()
	for _, channel := range []campaign.Channel{campaign.Email, campaign.Voice, campaign.Social} {
		if channel != campaign.Email && os.Getenv("DEED_TORTURE") == "" {
			continue
		}
		t.Run(string(channel), func(t *testing.T) {
			t.Parallel()
			server := pgtest.Private(t, pgembed.Options{})
			l := newLaunch(t, server.DB(t), channel, sizeOf())
			relay := l.relay()
			for range 3 {
				l.await("the relay to have worked for a second", l.worked(time.Now()))
				server.Kill()
				if err := server.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				l.owner = l.db.Conn(t, pgtest.Owner)
				l.kills.Add(1)
			}
			l.kills.Add(2) // nothing more is waited for
			l.await("the run to end", l.ended)
			relay.Stop()
			if err := relay.Wait(t, pgtest.Patience); err != nil {
				t.Errorf("the relay ended with %v", err)
			}
			l.db.Pool(pgtest.App).Reset()
			l.db.Pool(pgtest.Owner).Reset()
			l.judge()
			t.Logf("%d members, the server killed three times", l.members)
		})
	}
}

// A relay is killed when it has decided a test, before anything of the rest is expanded: the next one brings the
// rest the winner that was written, whatever has been clicked by then.
func TestContract_C5_RelayKilledBetweenDecisionAndExpansion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, tested(t, db, 60, campaign.ByClicks))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	clicked(t, db, "clicked_at", "B", 3)
	anHourAgo(t, db)
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/campaigner")
	l := &launch{T: t, db: db, owner: db.Conn(t, pgtest.Owner), channel: campaign.Email, run: run}
	env := []string{"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_CHANNEL=email", "VICTIM_ADDRESS=127.0.0.1:9"}
	program.Start(t, "decided", env...).Crashed(t, "decided", pgtest.Patience)
	rest := `select coalesce(string_agg(distinct coalesce(c.payload ->> 'variant', 'none'), ', '), '') from deed.channel_outbox c join deed.job_queue j on j.id = c.job_id where j.part = 'rest'`
	want(t, "the rest after the kill", pgtest.One[string](t, l.owner, rest), "")
	want(t, "the winner after the kill", winnerOf(t, db, run), "B")
	clicked(t, db, "clicked_at", "A", 30)
	next := program.Start(t, "", env...)
	l.await("the rest to be expanded", func() bool {
		return pgtest.One[bool](t, l.owner, `select not exists (select from deed.job_queue where expanded_at is null)`)
	})
	next.Kill()
	want(t, "the rest", pgtest.One[string](t, l.owner, rest), "B")
	want(t, "decisions", pgtest.One[int](t, l.owner, `select count(*) from deed.audit_log where action = 'decide'`), 1)
}

// launch is a run in the middle of trouble.
type launch struct {
	*testing.T
	db       *pgtest.DB
	owner    *pgx.Conn
	channel  campaign.Channel
	members  int
	run      string
	program  harness.Program
	env      []string
	file     string // what the service has accepted
	accepted atomic.Int64
	kills    atomic.Int64
}

// said is what each channel has said.
var said = map[campaign.Channel]campaign.Content{
	campaign.Email:  spring,
	campaign.Voice:  {Script: "Hello {{ contact.name }} & all", ScriptVersion: "1"},
	campaign.Social: {Post: "spring", Text: "{{ contact.name }}: spring is here"},
}

// newLaunch deploys a run whose channel's service takes a moment for each.
func newLaunch(t *testing.T, db *pgtest.DB, channel campaign.Channel, members int) *launch {
	l := &launch{
		T: t, db: db, owner: db.Conn(t, pgtest.Owner), channel: channel, members: members,
		program: harness.Build(t, "github.com/deedhq/deed/internal/crash/campaigner"), file: filepath.Join(t.TempDir(), "accepted"),
	}
	kind := map[campaign.Channel]string{campaign.Email: "resend", campaign.Voice: "twilio", campaign.Social: "mastodon"}[channel]
	db.Providers(t, kind, "p")
	request := campaign.Request{
		Campaign: put(t, db, "spring", said[channel]).ID, Audience: people(t, db, "airports", channel, members).ID,
		ID: "1", Channel: channel, Provider: "p", Transactional: true,
	}
	if channel == campaign.Email {
		request.From = "shop@example.com"
	}
	l.run = deploy(t, db, request)
	l.env = []string{"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_CHANNEL=" + string(channel), "VICTIM_ADDRESS=" + l.serve()}
	return l
}

// serve has the channel's service answer, which writes down whom it has reached.
func (l *launch) serve() string {
	out, err := os.OpenFile(l.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		l.Fatal(err)
	}
	box := &catcher.Mailbox{Accepted: func(m catcher.Mail) {
		if _, err := fmt.Fprintln(out, strings.Join(m.To, ",")); err != nil {
			l.Errorf("an acceptance was not written down: %v", err)
		}
		n := l.accepted.Add(1)
		if l.members < airports { // so that kills come in the middle, however busy the machine is
			pgtest.Wait(pgtest.Patience, func() bool { return n < (l.kills.Load()+1)*int64(l.members)/5 })
		}
	}}
	var service http.Handler
	switch l.channel {
	case campaign.Email:
		service = &catcher.Resend{Mailbox: box}
	case campaign.Voice:
		service = &catcher.Twilio{Mailbox: box}
	default:
		tokens := map[string]string{}
		for i := range l.members {
			account := address(l.channel, i)
			tokens[account] = strings.TrimSuffix(strings.TrimPrefix(account, "@"), "@localhost")
		}
		service = &catcher.Mastodon{Mailbox: box, Tokens: tokens}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.Fatal(err)
	}
	server := &http.Server{Handler: service, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	l.Cleanup(func() {
		_ = server.Close()
		<-done
		_ = out.Close()
	})
	return listener.Addr().String()
}

// relay starts one, and returns when it runs.
func (l *launch) relay() *harness.Victim {
	victim := l.program.Start(l, "", l.env...)
	l.await("the relay to run, or to end", func() bool { return strings.Contains(victim.Output(), "victim: runs") || !victim.Running() })
	return victim
}

func (l *launch) await(what string, cond func() bool) {
	l.Helper()
	if !pgtest.Wait(pgtest.Patience, cond) {
		l.Fatalf("waited for %s", what)
	}
}

// worked reports whether a relay has worked for a second, or for a good part of a small launch; on a
// machine that is busy it may have done nothing by then. It has, too, when the run has ended.
func (l *launch) worked(since time.Time) func() bool {
	at, before := l.accepted.Load(), l.progress()
	return func() bool {
		if l.members < airports && l.accepted.Load()-at >= int64(l.members)/5 {
			return true
		}
		return time.Since(since) >= time.Second && l.progress() != before || l.ended()
	}
}

func (l *launch) progress() string {
	return pgtest.One[string](l, l.owner, `select concat_ws(' ', (select count(*) from deed.job_queue where expanded_at is not null), (select count(*) from deed.channel_outbox where finished_at is not null))`)
}

func (l *launch) ended() bool {
	l.decide()
	return pgtest.One[bool](l, l.owner, `select finished_at is not null from deed.campaign_runs where id = $1::text::uuid`, l.run)
}

// forgetExpansions is what a relay that is killed never does, as expanding is one transaction: jobs are there that are
// expanded and not marked so. What keeps them from reaching people twice is the key alone.
func (l *launch) forgetExpansions() {
	l.db.Exec(l, pgtest.Owner, `update deed.job_queue set status = 'queued', expanded_at = null, process_after = now() where status = 'locked' and expanded_at is not null`)
}

// decide is the person who looks at the service's own file for what is in doubt, since a call that is not
// found there proves nothing to deed.
func (l *launch) decide() {
	ctx := context.Background()
	rows, err := l.owner.Query(ctx, `select id::text, recipient from deed.channel_outbox where held_at is not null and finished_at is null`)
	if err != nil {
		l.Fatal(err)
	}
	held, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ ID, To string }])
	if err != nil {
		l.Fatal(err)
	}
	for _, h := range held {
		decision := "send_again"
		if l.times()[h.To] > 0 {
			decision = "sent"
		}
		if _, err := l.owner.Exec(ctx, `select deed.settle_delivery($1::text::uuid, $2, 'looked', 'ann')`, h.ID, decision); err != nil {
			l.Errorf("decide %s about %s: %v", decision, h.To, err)
		}
	}
}

// times is how often the service has reached each, by its file.
func (l *launch) times() map[string]int {
	text, err := os.ReadFile(l.file)
	if err != nil {
		l.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		times[strings.TrimSpace(line)]++
	}
	return times
}

// judge holds the service's file, and deed's rows, against who was to be reached.
func (l *launch) judge() {
	l.Helper()
	times := l.times()
	for i := range l.members {
		if n := times[address(l.channel, i)]; n != 1 {
			l.Errorf("%s got it %d times", address(l.channel, i), n)
		}
	}
	want(l, "who got it", len(times), l.members)
	var jobs []string
	for from := 0; from < l.members; from += 1000 {
		jobs = append(jobs, fmt.Sprintf(" completed %d/0/0/0/0", min(1000, l.members-from)))
	}
	want(l, "the run", states(l, l.db, l.run), "completed:"+strings.Join(jobs, ","))
	want(l, "bytes that were kept of what was sent", pgtest.One[int](l, l.owner, `
		select count(*) from deed.channel_outbox where request_sha256 is null or request is not null`), 0)
	p, err := campaign.Verify(l.Context(), l.db.Pool(pgtest.App), l.run, 3)
	if err != nil || !p.Launched() {
		l.Errorf("not launched: %+v, %v", p.Findings, err)
	}
}
