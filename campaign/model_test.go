package campaign_test

import (
	"fmt"
	"strings"

	"github.com/deedhq/deed/campaign"
)

// modelAttempts is how often a delivery of the model is tried.
const modelAttempts = 2

// modelPerson is somebody in the audience, and what the provider has got for them.
type modelPerson struct {
	contact    string
	suppressed bool
	took       int // how many messages the provider has taken
	allowed    int // one, and one more each time a person has decided that it was not, or may be, done
}

// modelItem is what the model knows of a member and their delivery.
type modelItem struct {
	person    *modelPerson
	n         int
	id        string // "": their job is not expanded
	status    string
	was       string // at the last look
	reason    string // why it was skipped, and ! where an earlier call may have been accepted
	attempts  int
	lost      int
	claim     int64
	leased    bool
	lapsed    bool // the lease is over
	doubt     bool
	held      bool
	unsettled bool // put back in doubt
	called    bool
	deferred  bool
	calls     int  // repeats, too
	bad       bool // refused as an address
	proved    bool
	took      bool // the provider has its request
	message   string
	byCall    bool             // it went out by the call of the claim that it has, and not by what was said of it
	late      map[int64]string // what was accepted too late, by the claim
}

// modelJob is a part of the audience.
type modelJob struct {
	id       string
	from     int
	status   string
	attempts int
	expanded bool
	claim    int64
	lapsed   bool
	items    []*modelItem
}

// modelRun is a run, or a retry of the one before it.
type modelRun struct {
	id                         string
	status                     string
	paused, cancelled, expired bool
	before                     *modelRun
	jobs                       []*modelJob
}

func (r *modelRun) ended() bool { return r.status != "queued" && r.status != "running" }

// late reports why a delivery of the run does not go any more, where it has begun or not; "": it goes on.
func (r *modelRun) late(begun bool) string {
	switch {
	case r.cancelled:
		return "cancelled"
	case r.expired && !r.paused && !begun:
		return "expired"
	}
	return ""
}

func (r *modelRun) items() (list []*modelItem) {
	for _, j := range r.jobs {
		list = append(list, j.items...)
	}
	return list
}

// String is as the tables have it.
func (r *modelRun) String() string {
	lines := []string{fmt.Sprintf("run %s paused %t cancelled %t", r.status, r.paused, r.cancelled)}
	for _, j := range r.jobs {
		lines = append(lines, fmt.Sprintf("job %d %s attempts %d expanded %t", j.from, j.status, j.attempts, j.expanded))
	}
	for _, i := range r.items() {
		if i.id != "" {
			lines = append(lines, fmt.Sprintf("member %d %s %s attempts %d leased %t doubt %t held %t proved %t", i.n, i.status, i.reason, i.attempts, i.leased, i.doubt, i.held, i.proved))
		}
	}
	return strings.Join(lines, "\n")
}

func (i *modelItem) done() bool {
	return i.status == "sent" || i.status == "called" || i.status == "posted"
}

// begun reports whether it goes on when the run expires.
func (i *modelItem) begun() bool { return i.attempts > 0 || i.deferred || i.unsettled }

func (i *modelItem) open() bool { return i.status == "queued" || i.status == "sending" }

// free reports whether nobody has it.
func (i *modelItem) free() bool { return !i.leased || i.lapsed }

func (i *modelItem) end(status, reason string) {
	i.status, i.reason = status, reason
	if reason != "" && i.unsettled {
		i.reason += "!"
	}
	i.leased, i.lapsed, i.doubt, i.held = false, false, false, false
}

// back queues it again.
func (i *modelItem) back() {
	i.end("queued", "")
	i.claim = 0
}

// reached reports whether an earlier run has reached this person, or may still.
func (r *modelRun) reached(p *modelPerson) bool {
	for ; r != nil; r = r.before {
		for _, i := range r.items() {
			if i.person == p && i.id != "" && (i.done() || i.open() || i.proved) {
				return true
			}
		}
	}
	return false
}

// expand gives each of a job's members a row that has none.
func (r *modelRun) expand(j *modelJob) {
	j.expanded, j.claim, j.lapsed = true, 0, false
	for _, i := range j.items {
		switch {
		case i.id != "": // again makes none twice
		case r.before.reached(i.person):
			i.end("skipped", "sent before")
		case r.late(false) != "":
			i.end("skipped", r.late(false))
		case i.person.suppressed:
			i.end("skipped", "suppressed")
		default:
			i.status = "queued"
		}
	}
}

// fail is an expansion that came to nothing.
func (r *modelRun) fail(j *modelJob) {
	j.attempts++
	j.status, j.claim, j.lapsed = "queued", 0, false
	if j.attempts >= 5 {
		j.status = "dead"
		r.roll()
	}
}

// attempt is what becomes of one that is about to be called.
func (r *modelRun) attempt(i *modelItem) {
	switch {
	case r.late(i.begun()) != "":
		i.end("skipped", r.late(i.begun()))
	case i.person.suppressed:
		i.end("skipped", "suppressed")
	case r.paused:
		i.back()
	default:
		i.status, i.called = "sending", true
		i.attempts++
		i.calls++
		i.lapsed = false
	}
}

// settle is what a call's outcome makes of a delivery, if the claim is still the caller's.
func (i *modelItem) settle(claim int64, kind, message string, done string) {
	if i.claim != claim || !i.open() {
		return
	}
	if i.status == "queued" {
		if kind == "unusable" {
			i.end("failed", "")
		} else if kind == "release" || kind == "outage" {
			i.back()
		}
		return
	}
	if kind == "bad_address" {
		i.person.suppressed = true
	}
	refused := kind == "refused" || kind == "bad_address" || kind == "opted_out"
	surely := refused && i.calls == 1 && !i.unsettled
	spent := kind == "later" && i.attempts >= modelAttempts
	putOff := kind == "deferred" || kind == "outage" || kind == "unrepeated"
	if putOff && (!i.doubt || i.leased) || kind == "release" && !i.doubt { // of one in doubt the repeat, once
		i.attempts--
	}
	switch {
	case kind == "accepted":
		i.end(done, "")
		i.message = message
	case i.doubt && (refused && !surely || kind == "undecided"), i.unsettled && !i.doubt && (refused || spent):
		i.leased, i.lapsed, i.doubt, i.held = false, false, true, true
	case i.doubt && !surely, kind == "unknown":
		i.leased, i.lapsed, i.doubt = false, false, true
	case spent:
		i.end("dead", "")
	case kind == "opted_out":
		i.end("skipped", "they have opted out")
	case refused:
		i.end("failed", "")
	default:
		i.deferred = i.deferred || kind == "deferred"
		i.back()
	}
}

// prove is what a delivery becomes of which the provider says that it has accepted it.
func (i *modelItem) prove(message, done string) {
	switch {
	case !i.called || i.done():
	case i.open():
		i.end(done, "")
		i.message = message
	default:
		i.proved = true
	}
}

// roll ends the jobs all of whose members have ended, of those that are looked at, and then the run (C3).
func (r *modelRun) roll(looked ...*modelJob) {
	for _, j := range looked {
		var sent, missed, failed, dead, open int
		for _, i := range j.items {
			switch why := strings.TrimSuffix(i.reason, "!"); {
			case i.open():
				open++
			case i.done():
				sent++
			case i.status == "failed":
				failed++
			case i.status == "dead":
				dead++
			case why == "cancelled" || why == "expired":
				missed++
			}
		}
		switch {
		case open > 0:
		case sent > 0 || missed+failed+dead == 0:
			j.status = "completed"
		case dead > 0:
			j.status = "dead"
		default:
			j.status = "failed"
		}
	}
	whole, some := true, false
	for _, j := range r.jobs {
		if j.status == "queued" || j.status == "locked" {
			return
		}
		some = some || j.status == "completed"
		whole = whole && j.status == "completed"
		for _, i := range j.items {
			whole = whole && (i.done() || i.status == "skipped" && !strings.HasPrefix(i.reason, "cancelled") && !strings.HasPrefix(i.reason, "expired"))
		}
	}
	r.status = map[bool]string{true: "completed", false: map[bool]string{true: "partial", false: "failed"}[some]}[whole]
}

// again are those of a run that has ended whom a retry is for (C7).
func (r *modelRun) again(missed bool) (list []*modelPerson) {
	for _, i := range r.items() {
		switch {
		case i.proved || i.unsettled:
		case i.id == "", i.status == "dead", i.status == "failed" && !i.bad,
			missed && i.status == "skipped" && (i.reason == "cancelled" || i.reason == "expired"):
			list = append(list, i.person)
		}
	}
	return list
}

// doneOf is what a delivery is called that went out.
var doneOf = map[campaign.Channel]string{campaign.Email: "sent", campaign.Voice: "called", campaign.Social: "posted"}
