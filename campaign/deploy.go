package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// Request asks for a run of a campaign.
type Request struct {
	// Campaign and Audience are their ids. Required.
	Campaign, Audience string
	// ID is the caller's own for this request: the same one asks for the same run, for the
	// tenant's workspace and the channel. Required.
	ID string
	// Channel is the audience's. Required.
	Channel Channel
	// ScheduledFor is when it begins. Default: now, as of the first call.
	ScheduledFor time.Time
	// Provider is the name of the provider that makes the deliveries. Required.
	Provider string
	// Purpose is what it is for, such as newsletter: who has left that is skipped (D11).
	// Required, unless Transactional.
	Purpose string
	// Transactional says that it has no purpose, and goes to those as well who have left
	// everything that has one.
	Transactional bool
	// From and ReplyTo are of e-mails. From is required of them.
	From, ReplyTo string
	// Content is the id of what is said. Default: the campaign's, if it has but one.
	Content string
	// NeedsConsent skips who has not granted it.
	NeedsConsent bool
	// ExpiresAfter is how long after it was to begin what has not been sent is skipped, so
	// that a copy that is restored does not send last week's. From 1m to 720h. Default: 24h.
	ExpiresAfter time.Duration

	// LocalTime has each member's part begin at this time of their own zone, such as
	// 2026-03-20T09:00, in ScheduledFor's stead. One that clocks skip is an hour later, and of
	// one that comes twice it is the second.
	LocalTime string `json:",omitzero"`
	// IfPassed says what becomes of those for whom LocalTime has passed when the run is made.
	// Default: [NextDay].
	IfPassed IfPassed `json:",omitzero"`
	// QuietHours are two times of members' own zones, such as 22:00-08:00, between which
	// nothing begins. Default: none.
	QuietHours string `json:",omitzero"`
	// Zone is that of members who have none. Default: UTC.
	Zone string `json:",omitzero"`
	// Rate is how many go at the most, such as 10/s, 600/min or 5000/h. Default: as many as
	// the provider takes.
	Rate string `json:",omitzero"`
	// Ramp leads up to Rate. Default: none.
	Ramp *Ramp `json:",omitzero"`
	// PauseOn has the run pause itself when too much of it fails. Default: it never does.
	PauseOn *PauseOn `json:",omitzero"`

	// Variants are contents' ids by their names, in Content's stead: each member gets one of them,
	// by a hash of the request and of who they are. They are of one asset, script version and
	// post. Default: none.
	Variants map[string]string `json:",omitempty"`
	// Test has a part of the members get the variants first, and the rest the one that did best.
	// Default: all are divided among them.
	Test *Test `json:",omitzero"`
}

// Test is a test of variants on a part of the members. It goes with no LocalTime.
type Test struct {
	// Share is the part of the members that takes part in it, from 0.0001 to 0.99, divided among
	// the variants. Required.
	Share float64
	// By is what it is decided by. Required.
	By By
	// Wait is for how long after the last of them was called clicks or complaints are waited for,
	// from 1m to 720h. Required, but for [ByPerson].
	Wait time.Duration `json:",omitzero"`
}

// By is what a test is decided by.
type By string

// What a test is decided by: the most clicks or the fewest complaints for each delivery that
// went out, or what a person says ([Winner]), who may say so in any case.
const (
	ByClicks     By = "clicks"
	ByComplaints By = "complaints"
	ByPerson     By = "person"
)

// option is the test as the database has it.
func (t Test) option() map[string]any {
	o := map[string]any{"share": t.Share, "by": t.By}
	if t.Wait != 0 {
		o["wait"] = interval(t.Wait)
	}
	return o
}

// PauseOn is when a run pauses itself, as [Pause] would: when of at least From deliveries that
// have ended by a call since it was deployed, or resumed, more than a share failed or was complained about.
type PauseOn struct {
	Failed     string `json:"failed,omitempty"`     // such as 5%; what is dead counts as well
	Complained string `json:"complained,omitempty"` // such as 0.3%
	From       int    `json:"from,omitempty"`       // default 200
}

// IfPassed is what becomes of who is late.
type IfPassed string

// What becomes of those for whom the local time has passed.
const (
	NextDay IfPassed = "next_day" // theirs begins at that time of the next day
	AtOnce  IfPassed = "now"
	Skip    IfPassed = "skip"
)

// Ramp is a way to go faster bit by bit: one that doubles, or a table of steps. Its time stands
// still while nothing of the run goes.
type Ramp struct {
	// From is the rate of the beginning, such as 1/s. It doubles after each Every, up to the
	// request's rate.
	From  string        `json:",omitzero"`
	Every time.Duration `json:",omitzero"`
	// Steps are the table: each rate, and for how long. The request's rate comes last.
	Steps []Step `json:",omitempty"`
}

// Step is one of a ramp.
type Step struct {
	Rate string
	For  time.Duration
}

// option is the ramp as the database has it; nil: there is none.
func (r *Ramp) option() any {
	switch {
	case r == nil:
	case len(r.Steps) > 0:
		steps := make([]map[string]string, len(r.Steps))
		for i, s := range r.Steps {
			steps[i] = map[string]string{"rate": s.Rate, "for": interval(s.For)}
		}
		return steps
	case r.From != "" || r.Every != 0:
		return map[string]string{"from": r.From, "every": interval(r.Every)}
	}
	return nil
}

func interval(d time.Duration) string { return fmt.Sprintf("%d microseconds", d.Microseconds()) }

// Deployed is the run of a request.
type Deployed struct {
	Run string
	// New is false for a request that had made it before.
	New bool
}

// Deploy makes the run that req asks for and its jobs, or finds the run that it has made, in
// db's transaction (C1). What would make it fail is in the error, each by its name (C8):
// no_provider, no_purpose, no_content, no_sender, unverified_domain, no_unsubscribe_url, empty_audience,
// expired, window_never_opens, too_many_zones, no_clicks, no_complaints. Errors: [deed.Invalid]; [deed.Conflict] for the same request with anything else
// in it, and an audience that is not ready or of another channel; [deed.NotFound];
// [deed.Forbidden].
func Deploy(ctx context.Context, db deed.DB, scope Scope, req Request) (d Deployed, err error) {
	const op = "deploy campaign"
	var ramps error
	if req.Ramp != nil && len(req.Ramp.Steps) > 0 && (req.Ramp.From != "" || req.Ramp.Every != 0) {
		ramps = errors.New("a ramp doubles, or it is a table of steps")
	}
	if err := errors.Join(checkID("campaign", req.Campaign), checkID("audience", req.Audience), ramps); err != nil {
		return d, invalidf(op, "%w", err)
	}
	options := map[string]any{}
	set := func(name, value string) {
		if value != "" {
			options[name] = value
		}
	}
	set("provider", req.Provider)
	set("purpose", req.Purpose)
	set("from", req.From)
	set("reply_to", req.ReplyTo)
	set("content", req.Content)
	if req.Transactional {
		options["transactional"] = true
	}
	if req.NeedsConsent {
		options["consent"] = "required"
	}
	if req.ExpiresAfter != 0 {
		options["expires_after"] = interval(req.ExpiresAfter)
	}
	set("at", req.LocalTime)
	set("if_passed", string(req.IfPassed))
	set("quiet_hours", req.QuietHours)
	set("zone", req.Zone)
	set("rate", req.Rate)
	if ramp := req.Ramp.option(); ramp != nil {
		options["ramp"] = ramp
	}
	if req.PauseOn != nil {
		options["pause_on"] = req.PauseOn
	}
	if len(req.Variants) > 0 {
		options["variants"] = req.Variants
	}
	if req.Test != nil {
		options["test"] = req.Test.option()
	}
	text, err := json.Marshal(options)
	if err != nil {
		return d, invalidf(op, "%w", err)
	}
	var begins *time.Time
	if !req.ScheduledFor.IsZero() {
		begins = &req.ScheduledFor
	}
	rows, err := db.Query(ctx, query.Deploy, req.Campaign, req.Audience, req.ID, string(req.Channel), begins, string(text), scope.tenant(), scope.by())
	if err == nil {
		d, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Deployed])
	}
	return d, wrap(op, err)
}
