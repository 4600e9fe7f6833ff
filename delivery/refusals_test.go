package delivery_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// suppressed are the addresses that nobody is to write to, with why.
func suppressed(t testing.TB, db *pgtest.DB) []string {
	t.Helper()
	return rowsOf(t, db.Pool(pgtest.Worker), `select address || ' ' || purpose || ' ' || reason || ' ' || actor from deed.suppressions order by address`)
}

// A hard bounce that is said at once stops everything to that address, for its tenant
// and channel, and names the delivery that it is from; whoever has opted out at the
// provider is skipped, and nothing else is concluded.
func TestContract_D11_ABadAddressIsSuppressed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		switch {
		case strings.EqualFold(r.Recipient(), "nobody@example.com"):
			return delivery.BadAddress(errors.New("5.1.1 no such user")).WithCode("550"), false
		case r.Recipient() == "stop@example.com":
			return delivery.OptedOut(errors.New("they said stop")).WithCode("21610"), false
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Worker = "worker-1"
	first := reserve(t, db, email("Nobody@example.com"), email("nobody@example.com", "at once"), email("stop@example.com"), email("well@example.com"))
	run(t, db, opts)
	// Whichever is called first; the other one is called as well, or finds the address suppressed.
	eventually(t, "those to the address to end", func() bool {
		return entry(t, db, first[0].ID).FinishedAt != nil && entry(t, db, first[1].ID).FinishedAt != nil
	})
	bad := entry(t, db, first[0].ID)
	if bad.Status == delivery.Skipped {
		bad = entry(t, db, first[1].ID)
	}
	if bad.Status != delivery.Failed {
		t.Errorf("neither of those to the address has failed: %+v", bad)
	}
	out := until(t, db, first[2].ID, delivery.Skipped)
	until(t, db, first[3].ID, delivery.Sent)
	if bad.LastError != "5.1.1 no such user" || bad.Attempts != 1 || !slices.Equal(outcomes(t, db, bad.ID), []string{"bad address"}) {
		t.Errorf("%+v, %q", bad, outcomes(t, db, bad.ID))
	}
	if out.SkipReason != "they have opted out, says fake" || out.LastError != "they said stop" || !slices.Equal(outcomes(t, db, out.ID), []string{"opted out"}) {
		t.Errorf("%+v, %q", out, outcomes(t, db, out.ID))
	}
	got := suppressed(t, db)
	if len(got) != 1 || !strings.HasPrefix(got[0], "nobody@example.com  a bad address, says fake: delivery ") || !strings.HasSuffix(got[0], " worker-1") ||
		!strings.Contains(got[0], first[0].ID) && !strings.Contains(got[0], first[1].ID) {
		t.Errorf("suppressed: %q", got)
	}
	then := reserve(t, db, email("nobody@example.com", "again"), email("stop@example.com", "again"))
	if e := entry(t, db, then[0].ID); e.Status != delivery.Skipped || !strings.HasPrefix(e.SkipReason, "suppressed: a bad address") {
		t.Errorf("%+v", e)
	}
	until(t, db, then[1].ID, delivery.Skipped)
	if f.called(then[0].ID) != 0 || f.called(then[1].ID) != 1 {
		t.Errorf("%d and %d calls", f.called(then[0].ID), f.called(then[1].ID))
	}
	if list := rowsOf(t, db.Pool(pgtest.Worker), `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}

// What a repeated call says of itself says nothing of the first one, whose outcome is
// unknown: it has neither failed nor is it skipped.
func TestContract_D5_ARepeatThatIsRefusedSettlesNothing(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]delivery.Outcome{
		"bad address": delivery.BadAddress(errors.New("no such user")), "opted out": delivery.OptedOut(errors.New("they said stop")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			f := newFake().withKey(time.Hour)
			f.send = func(_ context.Context, n int, _ delivery.Reservation) (delivery.Outcome, bool) {
				if n == 1 {
					return delivery.Unknown(errCut), true
				}
				return refusal, false
			}
			made := reserve(t, db, email("a@example.com"))
			run(t, db, fast(f))
			eventually(t, "the delivery to be held", func() bool { return entry(t, db, made[0].ID).HeldAt != nil })
			if e := entry(t, db, made[0].ID); e.Status != delivery.Sending || e.DoubtSince == nil {
				t.Errorf("%+v", e)
			}
		})
	}
}

// What an event is called may be made of the address that it is about: WhatsApp's ids have the
// number in them, and a bounce may name itself after who was not reached.
func TestContract_D12_EventsBringNoAddressIntoTheAuditLog(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	chat := func(to string, part int) delivery.StatusEvent {
		d := email(to, fmt.Sprint(part))
		d.Channel, d.Payload = delivery.Chat, json.RawMessage(`{"text":"hello"}`)
		id := "wamid." + base64.StdEncoding.EncodeToString([]byte(to[1:]+fmt.Sprint(part))) + ":failed"
		return delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: sent(t, db, d)[0], ID: id}
	}
	mail := func(to, id string) delivery.StatusEvent {
		return delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: sent(t, db, email(to))[0], ID: id}
	}
	left := chat("+4917012345001", 0)
	left.Said = delivery.SaidUnsubscribed
	record(t, l, left)
	for i := range 5 {
		record(t, l, chat("+4917012345002", i))
	}
	record(t, l, mail("Canary.one@example.com", "<bounce-CANARY.One@example.com@mx.example.org>"), mail("canary.two@example.com", "<canary.two=example.com-5@mx.example.org>"),
		mail("canary.three@example.com", "<canary.three%40example.com-5@mx.example.org>"), mail("plain@example.com", "<7@mx.example.org>"))
	var hashed int
	reasons := rowsOf(t, db.Pool(pgtest.Owner), `select reason from deed.audit_log where subject_type = 'suppression'`)
	for _, reason := range reasons {
		if low := strings.ToLower(reason); strings.Contains(low, "wamid") || strings.Contains(low, "canary") {
			t.Errorf("the audit log says %q", reason)
		}
		if strings.Contains(reason, ": event sha256:") {
			hashed++
		}
	}
	if len(reasons) != 6 || hashed != 5 || !strings.Contains(strings.Join(reasons, "\n"), "event <7@mx.example.org>, delivery ") {
		t.Errorf("%d reasons, %d of them with a hash: %q", len(reasons), hashed, reasons)
	}
}

// What the sandbox says of its own address is said of nobody.
func TestSandbox_ItsRefusalsAreAboutNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.SandboxFor() == "stop@example.com" {
			return delivery.OptedOut(errors.New("they said stop")), false
		}
		return delivery.BadAddress(errors.New("no such user")), false
	}
	made := reserve(t, db, email("a@example.com"), email("stop@example.com"))
	run(t, db, boxed(f))
	for _, m := range made {
		until(t, db, m.ID, delivery.Failed)
	}
	if got := suppressed(t, db); len(got) > 0 {
		t.Errorf("suppressed: %q", got)
	}
}
