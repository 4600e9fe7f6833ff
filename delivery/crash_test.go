package delivery_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/postmark"
	"github.com/deedhq/deed/provider/sendgrid"
	"github.com/deedhq/deed/provider/ses"
)

// crashSteps are where a worker dies. Those with a colon are its own crash
// points; at the others the provider has it killed.
var crashSteps = map[string]string{
	"before reserve":   "reserving:2",
	"after reserve":    "reserved:2",
	"before attempt":   "writing:2",
	"after attempt":    "written:2",
	"before the call":  "calling:3",
	"in the call":      "",
	"after acceptance": "",
	"after the call":   "called:3",
	"before settle":    "settling:2",
	"after settle":     "settled:2",
}

const crashDeliveries = 20

// far is a provider's server: it writes down in a file what it has accepted.
type far struct {
	t       *testing.T
	file    string
	address string

	mu     sync.Mutex
	step   string // of the crash that it is to cause
	taken  int
	victim *harness.Victim // guarded by mu
	begun  func()          // called with every call; closes calls once
	calls  chan struct{}
}

// which is what a request says of which delivery it is.
var which = regexp.MustCompile(`delivery-([0-9]+)-`)

// kill ends the victim at the third time that a step is reached.
func (f *far) kill(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.step != step || f.victim == nil {
		return
	}
	if f.taken++; f.taken == 3 {
		f.victim.Kill()
	}
}

func (f *far) accepted(m catcher.Mail) {
	id := which.FindString(string(m.Raw))
	out, err := os.OpenFile(f.file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(out, id)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil || id == "" {
		f.t.Errorf("acceptance of %q not written down: %v", m.Key, err)
	}
	f.kill("after acceptance")
}

// times reads how often each delivery was accepted, by what it says.
func (f *far) times() map[string]int {
	text, err := os.ReadFile(f.file)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(text)) {
		times[strings.TrimSpace(line)]++
	}
	return times
}

// farService is a fake of a service.
type farService interface {
	http.Handler
	SetFaults(decide func(n int) catcher.Fault)
	Close()
}

// newFar begins the service of a kind, which says later what became of things, if it does
// such, at told.
func newFar(t *testing.T, kind string, db *pgtest.DB) *far {
	t.Helper()
	f := &far{t: t, file: filepath.Join(t.TempDir(), "accepted")}
	f.calls = make(chan struct{})
	f.begun = sync.OnceFunc(func() { close(f.calls) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	box := &catcher.Mailbox{Accepted: f.accepted}
	inTheCall := func(n int) catcher.Fault {
		f.begun()
		<-time.After(20 * time.Millisecond) // calls take their time, so that two workers share them
		f.kill("in the call")
		f.mu.Lock()
		defer f.mu.Unlock()
		if n == 1 && repeatSteps[f.step] != "" {
			return catcher.ResetAccepted
		}
		return catcher.None
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	if kind == "smtp" {
		s := &catcher.SMTP{Mailbox: box}
		s.Faults.Set(inTheCall)
		go func() { done <- s.Serve(ctx, l) }()
	} else {
		h := fakeOf(t, kind, box, db, f.address)
		h.SetFaults(inTheCall)
		s := &http.Server{Handler: h}
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() {
			h.Close()
			_ = s.Close()
		})
	}
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-done
	})
	return f
}

// fakeOf is the service of a kind at address. What it says later a relay takes that serves
// the same database.
func fakeOf(t *testing.T, kind string, box *catcher.Mailbox, db *pgtest.DB, address string) farService {
	t.Helper()
	tells := func(provider delivery.Provider, err error) catcher.Events {
		if err != nil {
			t.Fatal(err)
		}
		l := ledger(t, db, delivery.Options{Providers: map[string]delivery.ProviderOptions{"p": {Provider: provider}}})
		relay := httptest.NewServer(l.EventsHandler(map[string]delivery.EventReader{"p": provider.(delivery.EventReader)}))
		teller := &catcher.Teller{Base: func() string { return relay.URL }, Delay: time.Millisecond}
		t.Cleanup(func() {
			teller.Close()
			relay.Close()
			_ = provider.(io.Closer).Close()
		})
		return catcher.Events{Teller: teller, Path: "/events/p"}
	}
	switch kind {
	case "resend", "resend-batch":
		return &catcher.Resend{Mailbox: box}
	case "webhook":
		return &catcher.Receiver{Mailbox: box}
	case "telegram":
		return &catcher.Telegram{Mailbox: box}
	case "whatsapp":
		return &catcher.WhatsApp{Mailbox: box}
	case "slack":
		return &catcher.Slack{Mailbox: box, Page: 100}
	case "twilio":
		return &catcher.Twilio{Mailbox: box}
	case "mastodon":
		return &catcher.Mastodon{Mailbox: box}
	case "bluesky":
		return &catcher.Bluesky{Mailbox: box}
	case "ses":
		const topic = "arn:aws:sns:eu-central-1:000000000000:events"
		s := &catcher.SES{Mailbox: box, AccessKeyID: "AKIA", SecretAccessKey: "secret", Topic: topic}
		s.Events = tells(ses.New(ses.Options{Region: "eu-central-1", AccessKeyID: "AKIA", SecretAccessKey: "secret", EventTopic: topic, EventsEndpoint: "http://" + address}))
		return s
	case "sendgrid":
		s := &catcher.SendGrid{Mailbox: box}
		s.Events = tells(sendgrid.New(sendgrid.Options{APIKey: "SG.x", EventKey: s.EventKey()}))
		return s
	case "postmark":
		s := &catcher.Postmark{Mailbox: box, EventUser: "deed", EventPassword: "a secret of the tests"}
		s.Events = tells(postmark.New(postmark.Options{ServerToken: "token", EventUser: s.EventUser, EventPassword: s.EventPassword}))
		return s
	}
	t.Fatalf("there is no fake of %s", kind)
	return nil
}

// repeatSteps are those of a call in doubt, whose answer the provider loses.
var repeatSteps = map[string]string{"before the repeat": "repeating:1", "after the repeat": "repeated:1"}

// figures are what the suite has seen, for docs/guarantees.md.
type figures struct {
	mu   sync.Mutex
	rows map[string]*figure
}

type figure struct{ deliveries, once, repeated, none, sent, held int }

// settlement is how what is in doubt is settled at a provider.
type settlement int

const (
	byGuarantee settlement = iota
	byKey                  // called again under its key: never accepted twice, never held
	byLook                 // found: what was accepted is never called again, nor held
	byEvent                // told: what was accepted is not held
)

// crashKinds are the providers, and which of them are killed at the steps about calls in every run: of
// each settlement one at least. The others are killed at two of them, and at all with DEED_TORTURE.
var crashKinds = map[string]struct {
	settlement settlement
	always     bool
}{
	"smtp": {byGuarantee, true}, "webhook": {byGuarantee, true}, "telegram": {byGuarantee, false}, "whatsapp": {byGuarantee, false}, // whose events come by a source
	"resend": {byKey, true}, "resend-batch": {byKey, true}, "mastodon": {byKey, true}, "bluesky": {byKey, true},
	"slack": {byLook, true}, "twilio": {byLook, true}, // by looks
	"ses": {byEvent, true}, "sendgrid": {byEvent, false}, "postmark": {byEvent, false},
}

// everyStep are the providers of which every step is tried in every run. At the others'
// nothing else happens before their calls and after their outcomes.
var (
	everyStep  = []string{"smtp", "resend", "resend-batch", "webhook"}
	aboutCalls = []string{"before the call", "in the call", "after acceptance", "before settle"}
)

// inShort are the steps of providers that are settled as another one is: those at which nobody but the
// provider knows what was done.
var inShort = map[string]delivery.Guarantee{"in the call": delivery.AtMostOnce, "after acceptance": delivery.AtLeastOnce}

// isTried reports whether a step is tried in every run.
func isTried(kind, step string, g delivery.Guarantee) bool {
	switch {
	case slices.Contains(everyStep, kind):
		return true
	case crashKinds[kind].always:
		return slices.Contains(aboutCalls, step)
	}
	return inShort[step] == g
}

// SIGKILL at every step, for all providers and both guarantees, beside a second worker: at
// most one acceptance wherever the contract says so, nothing lost without a trace, and every
// doubt listed.
func TestContract_D5_KilledAtEveryStep(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/deliverer")
	seen := &figures{rows: map[string]*figure{}}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(seen.rows)) {
			r := seen.rows[name]
			t.Logf("%-24s %4d deliveries: accepted once %4d, more often %3d, never %3d; sent %4d, held for a person %3d", name, r.deliveries, r.once, r.repeated, r.none, r.sent, r.held)
		}
	})
	all := os.Getenv("DEED_TORTURE") != ""
	for kind := range crashKinds {
		for _, guarantee := range []delivery.Guarantee{delivery.AtMostOnce, delivery.AtLeastOnce} {
			steps := maps.Clone(crashSteps)
			if kind == "resend-batch" {
				maps.Copy(steps, repeatSteps)
			}
			for step, point := range steps {
				if !all && !isTried(kind, step, guarantee) {
					continue
				}
				t.Run(kind+"/"+string(guarantee)+"/"+strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
					t.Parallel()
					crashOnce(t, program, seen, kind, guarantee, step, point)
				})
			}
		}
	}
}

// crashOnce tries again where the machine has given the victim so little time that the other worker had made everything
// before it came to its point: that shows nothing.
func crashOnce(t *testing.T, program harness.Program, seen *figures, kind string, guarantee delivery.Guarantee, step, point string) {
	for range 3 {
		if crashed(t, program, seen, kind, guarantee, step, point) {
			return
		}
	}
	t.Errorf("the victim never came to %s", point)
}

// crashed reports whether the victim has crashed.
func crashed(t *testing.T, program harness.Program, seen *figures, kind string, guarantee delivery.Guarantee, step, point string) bool {
	db := pgtest.New(t)
	f := newFar(t, kind, db)
	f.step = step
	env := []string{
		"VICTIM_DATABASE_URL=" + db.URL(pgtest.Worker), "VICTIM_PROVIDER=" + kind, "VICTIM_ADDRESS=" + f.address,
		"VICTIM_GUARANTEE=" + string(guarantee), fmt.Sprintf("VICTIM_DELIVERIES=%d", crashDeliveries),
	}
	// The victim's claims are waited for. Where what is in doubt is looked up, a call that begins after its lease, on a machine that is busy, is one that was looked for in
	// vain; the other's are waited for by nobody.
	lease := "VICTIM_LEASE=1s"
	if crashKinds[kind].settlement == byLook {
		lease = "VICTIM_LEASE=5s"
	}
	f.mu.Lock()
	victim := program.Start(t, point, append(slices.Clip(env), lease)...)
	f.victim = victim
	f.mu.Unlock()
	// The other one comes when the first is at work, or dead; it would repeat, too.
	eventually(t, "the victim's first call, or its end", func() bool {
		select {
		case <-f.calls:
			return repeatSteps[step] == "" || !victim.Running()
		default:
			return !victim.Running()
		}
	})
	other := program.Start(t, "", append(slices.Clip(env), "VICTIM_LEASE=30s")...)
	owner := db.Pool(pgtest.Owner)
	over := func() bool {
		return pgtest.One[bool](t, owner, `select count(*) = $1 from deed.channel_outbox where finished_at is not null or held_at is not null`, crashDeliveries)
	}
	if point != "" {
		eventually(t, "the crash", func() bool { return !victim.Running() || over() })
		if victim.Running() { // nothing is left that it could come to its point by
			victim.Stop()
		}
		if victim.Wait(t, pgtest.Patience) == nil {
			other.Stop()
			return false
		}
		victim.Crashed(t, point, pgtest.Patience)
	} else if err := victim.Wait(t, pgtest.Patience); err == nil {
		t.Fatal("the victim ended by itself")
	}
	eventually(t, "everything to be finished or held", over)
	if crashKinds[kind].settlement == byEvent {
		eventually(t, "what was accepted to be told of", func() bool {
			times := f.times()
			held := rowsOf(t, owner, `select payload ->> 'text' from deed.channel_outbox where held_at is not null`)
			return !slices.ContainsFunc(held, func(text string) bool { return times[text] > 0 })
		})
	}
	other.Stop()
	if err := other.Wait(t, pgtest.Patience); err != nil {
		t.Errorf("the other worker ended with %v", err)
	}
	judgeCrash(t, db, seen, f.times(), kind, guarantee)
	return true
}

func judgeCrash(t *testing.T, db *pgtest.DB, seen *figures, times map[string]int, kind string, guarantee delivery.Guarantee) {
	t.Helper()
	l := ledger(t, db, delivery.Options{})
	all, err := l.List(context.Background(), delivery.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	doubts, err := l.List(context.Background(), delivery.Filter{Limit: 1000, InDoubt: true})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, e := range doubts.Items {
		listed[e.ID] = true
	}
	texts := map[string]string{}
	for _, line := range rowsOf(t, db.Pool(pgtest.Owner), `select id::text || ' ' || (payload ->> 'text') from deed.channel_outbox`) {
		id, text, _ := strings.Cut(line, " ")
		texts[id] = text
	}
	settlement := crashKinds[kind].settlement
	r := figure{}
	known := map[string]bool{}
	for _, e := range all.Items {
		text := texts[e.ID]
		known[text] = true
		n := times[text]
		r.deliveries++
		switch {
		case n > 1:
			r.repeated++
		case n == 1:
			r.once++
		default:
			r.none++
		}
		switch {
		case e.SentAt != nil:
			r.sent++
			if n == 0 {
				t.Errorf("%s is %s and was never accepted", e.ID, e.Status)
			}
		case e.HeldAt != nil:
			r.held++
			if !listed[e.ID] {
				t.Errorf("%s is in doubt and not listed", e.ID)
			}
		default:
			t.Errorf("%s was lost: it is %s with %q", e.ID, e.Status, e.LastError)
		}
		if n > 1 && (guarantee == delivery.AtMostOnce || settlement == byKey || settlement == byLook) {
			t.Errorf("%s was accepted %d times", e.ID, n)
		}
		if e.HeldAt != nil && (guarantee == delivery.AtLeastOnce || settlement == byKey || n > 0 && settlement != byGuarantee) {
			t.Errorf("%s waits for a person though it need not, accepted %d times: %s; %s", e.ID, n, e.DoubtReason, e.LastError)
		}
	}
	for id := range times {
		if !known[id] {
			t.Errorf("%q was accepted and is in no row", id)
		}
	}
	// Two calls at once and two whose outcome was on its way, and where that takes long as much as the victim may have in hand: two claims.
	if r.held > 8 {
		t.Errorf("one crash left %d deliveries in doubt", r.held)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	name := kind + ", " + string(guarantee)
	sum := seen.rows[name]
	if sum == nil {
		sum = &figure{}
		seen.rows[name] = sum
	}
	sum.deliveries, sum.once, sum.repeated, sum.none = sum.deliveries+r.deliveries, sum.once+r.once, sum.repeated+r.repeated, sum.none+r.none
	sum.sent, sum.held = sum.sent+r.sent, sum.held+r.held
}
