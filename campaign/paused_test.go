package campaign_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
)

// call is one that a service was asked for: which run's, by its subject, and for whom.
type call struct{ subject, to string }

// witness is a service of e-mails that writes down each call when it comes, before it is looked at, and whom
// it has accepted.
type witness struct {
	service catcher.Resend

	mu    sync.Mutex // whoever has it, no call is written down or answered
	calls []call     // guarded by mu

	boxed sync.Mutex
	box   map[call]int // guarded by boxed
}

func (w *witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var list []struct {
		To      []string
		Subject string
	}
	if err == nil && len(body) > 0 {
		if body[0] != '[' {
			err = json.Unmarshal(slices.Concat([]byte("["), body, []byte("]")), &list)
		} else {
			err = json.Unmarshal(body, &list)
		}
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	for _, m := range list {
		w.calls = append(w.calls, call{m.Subject, strings.Join(m.To, ",")})
	}
	w.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.service.ServeHTTP(out, r)
}

// seen is how many calls of a subject there have been.
func (w *witness) seen(subject string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls {
		if c.subject == subject {
			n++
		}
	}
	return n
}

// after are for whom there have been calls of a subject since so many of all.
func (w *witness) after(mark int, subject string) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.calls[mark:] {
		if c.subject == subject {
			list = append(list, c.to)
		}
	}
	return list
}

// newWitness serves one, each of whose calls of which every is one in so many is accepted and not answered.
func newWitness(t *testing.T, every int) (*witness, string) {
	t.Helper()
	w := &witness{box: map[call]int{}}
	w.service.Mailbox = &catcher.Mailbox{Accepted: func(m catcher.Mail) {
		w.boxed.Lock()
		defer w.boxed.Unlock()
		w.box[call{m.Subject, strings.Join(m.To, ",")}]++
	}}
	w.service.Faults.Set(func(n int) catcher.Fault {
		if n%every == 0 {
			return catcher.ResetAccepted
		}
		return catcher.None
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return w, listener.Addr().String()
}

// A run that four relays send is paused again and again from another connection. By the service's own
// record no call begins once the pause has returned but of what was sending by then, and none at all
// once it was waited for, while another run's go on; resumed, everybody is written to exactly once.
func TestContract_C4_PausedAgainstFourRelays(t *testing.T) {
	t.Parallel()
	members, pauses := 900, 4
	if os.Getenv("DEED_TORTURE") != "" {
		members, pauses = 20_000, 60
	}
	for try := 1; ; try++ { // who pauses has a processor when others let go of it, and the relays may have sent all by then
		stopped := 0
		sound := t.Run(fmt.Sprint("try ", try), func(t *testing.T) { stopped = pausedAgainstFour(t, members, pauses) })
		if !sound || stopped >= 2 {
			return
		} else if try == 5 {
			t.Fatalf("%d pauses came while there was something to stop, want some", stopped)
		}
	}
}

// pausedAgainstFour has four relays send a run that is paused so often, and returns how many pauses stopped something.
func pausedAgainstFour(t *testing.T, members, pauses int) (stopped int) {
	db := pgtest.New(t)
	db.Providers(t, "resend", "p")
	var runs []string
	subjects := []string{"paused", "beside it"}
	for _, subject := range subjects {
		runs = append(runs, deploy(t, db, campaign.Request{
			Campaign: put(t, db, subject, campaign.Content{Asset: "a", Subject: subject, Text: "Hello {{ contact.name }}"}).ID, Audience: people(t, db, subject, campaign.Email, members).ID,
			ID: subject, Channel: campaign.Email, Provider: "p", Transactional: true, From: "shop@example.com",
		}))
	}
	w, at := newWitness(t, 97)
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/campaigner")
	for range 4 {
		// Nobody is killed, and a lease that runs out as its relay has no processor would let that call late for what another has sent.
		program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker), "VICTIM_CHANNEL=email", "VICTIM_ADDRESS="+at, "VICTIM_LEASE=30s")
	}
	owner, app := db.Conn(t, pgtest.Owner), db.Conn(t, pgtest.App)
	for range pauses {
		before := w.seen("paused")
		waitFor(t, "some of the run to be called, or all", func() bool { return w.seen("paused") >= min(before+members/(2*pauses), members) })
		sending, err := pauseAgainst(t, app, runs[0])
		if deed.CodeOf(err) == deed.Conflict {
			break // it has ended
		} else if err != nil {
			t.Fatal(err)
		}
		returned := pgtest.One[time.Time](t, app, `select clock_timestamp()`)
		// Meanwhile no call is written down, and so none that comes after this is answered, and is no more sending.
		w.mu.Lock()
		mark := len(w.calls)
		under := sendingNow(t, owner, runs[0])
		w.mu.Unlock()
		if int64(len(under)) > sending {
			t.Errorf("%d are sending, and the pause had found %d", len(under), sending)
		}
		left, err := campaign.AwaitPaused(t.Context(), app, runs[0], nil)
		if err != nil || left.Sending+left.Held > 0 {
			t.Fatalf("waited for the pause: %+v, %v", left, err)
		}
		w.mu.Lock()
		rest := len(w.calls)
		w.mu.Unlock()
		other := w.seen("beside it")
		waitFor(t, "the other run to go on", func() bool { return w.seen("beside it") >= min(other+members/(2*pauses), members) })
		for _, to := range w.after(mark, "paused") {
			if !slices.Contains(under, to) {
				t.Errorf("a call for %s began after the pause, and it was not sending", to)
			}
		}
		if late := w.after(rest, "paused"); len(late) > 0 {
			t.Errorf("calls for %v after the pause was waited for", late)
		}
		want(t, "begun after the pause, by the database's clock", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where run_id = $1::text::uuid and first_called_at > $2`, runs[0], returned), 0)
		if w.seen("paused") < members {
			stopped++
		}
		if err := campaign.Resume(t.Context(), app, campaign.Scope{}, runs[0], audit.Act{By: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	for i, run := range runs {
		waitFor(t, "the run to end", func() bool {
			return pgtest.One[bool](t, owner, `select finished_at is not null from deed.campaign_runs where id = $1::text::uuid`, run)
		})
		w.boxed.Lock()
		for n := range members {
			want(t, "how often "+subjects[i]+" has reached a member", w.box[call{subjects[i], address(campaign.Email, n)}], 1)
		}
		w.boxed.Unlock()
		if p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 3); err != nil || !p.Launched() {
			t.Errorf("not launched: %+v, %v", p.Findings, err)
		}
	}
	t.Logf("%d pauses stopped something; %d calls for %d e-mails", stopped, w.seen("paused")+w.seen("beside it"), 2*members)
	return stopped
}

// sendingNow are those of a run that are sending.
func sendingNow(t testing.TB, conn *pgx.Conn, run string) []string {
	t.Helper()
	return pgtest.One[[]string](t, conn, `select coalesce(array_agg(recipient), '{}') from deed.channel_outbox where run_id = $1::text::uuid and status = 'sending'`, run)
}

// A pause that is waited for ends when nothing is being sent but what a person has to look at, which it names;
// who resumes the run meanwhile ends it, too, and whoever stops waiting leaves the run paused.
func TestAwaitPaused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	owner, app := db.Pool(pgtest.Owner), db.Pool(pgtest.App)
	run := deploy(t, db, request(t, db, 3))
	expandAll(t, db)
	pause := func() {
		t.Helper()
		if _, err := campaign.Pause(ctx, app, campaign.Scope{}, run, audit.Act{}); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
	db.Exec(t, pgtest.Worker, `select deed.attempt(array_agg(id order by id), array_agg(claim order by id), array['x'::bytea, 'y'::bytea], null, '1 minute', 'w') from (select * from deed.channel_outbox order by id limit 2) c`)
	settle := func(n int, outcome string) {
		t.Helper()
		db.Exec(t, pgtest.Worker, `select deed.settle(array[c.id], array[c.claim], array[$2::text], '{m}', '{null}', '{null}', 'w') from (select * from deed.channel_outbox where status = 'sending' order by id offset $1 limit 1) c`, n, outcome)
	}
	settle(0, "unknown")
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set held_at = now() where doubt_since is not null`)
	held := pgtest.One[string](t, owner, `select id::text from deed.channel_outbox where held_at is not null`)
	pause()
	stopped, stop := context.WithCancelCause(ctx)
	looks := 0
	left, err := campaign.AwaitPaused(stopped, app, run, func(u campaign.UnderWay) {
		if looks++; looks == 2 {
			stop(errors.New("nobody waits"))
		}
		want(t, "sending, held", [2]int64{u.Sending, u.Held}, [2]int64{1, 1})
	})
	if err == nil || err.Error() != "nobody waits" || left.Sending != 1 || !slices.Equal(left.HeldIDs, []string{held}) {
		t.Errorf("stopped: %+v, %v", left, err)
	}
	want(t, "still paused", pgtest.One[bool](t, owner, `select paused_at is not null from deed.campaign_runs`), true)
	_, err = campaign.AwaitPaused(ctx, app, run, func(campaign.UnderWay) {
		if err := campaign.Resume(ctx, app, campaign.Scope{}, run, audit.Act{}); err != nil {
			t.Error(err)
		}
	})
	want(t, "resumed meanwhile", deed.CodeOf(err), deed.Conflict)
	pause()
	looks = 0
	left, err = campaign.AwaitPaused(ctx, app, run, func(u campaign.UnderWay) {
		if looks++; looks == 1 {
			settle(1, "accepted")
		}
	})
	if err != nil || left.Sending != 0 || left.Held != 1 || !slices.Equal(left.HeldIDs, []string{held}) || looks < 2 {
		t.Errorf("waited for: %+v, %v after %d looks", left, err, looks)
	}
	if _, err := campaign.Sending(ctx, app, "01a1fe76-14ee-7f1b-b119-532699ab7d4c"); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("of no run: %v", err)
	}
	db.Broken() // what is held was held by hand
}
