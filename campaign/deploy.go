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
}

// Deployed is the run of a request.
type Deployed struct {
	Run string
	// New is false for a request that had made it before.
	New bool
}

// Deploy makes the run that req asks for and its jobs, or finds the run that it has made, in
// db's transaction (C1). What would make it fail is in the error, each by its name (C8):
// no_provider, no_purpose, no_content, no_sender, no_unsubscribe_url, empty_audience,
// expired. Errors: [deed.Invalid]; [deed.Conflict] for the same request with anything else
// in it, and an audience that is not ready or of another channel; [deed.NotFound];
// [deed.Forbidden].
func Deploy(ctx context.Context, db deed.DB, scope Scope, req Request) (d Deployed, err error) {
	const op = "deploy campaign"
	if err := errors.Join(checkID("campaign", req.Campaign), checkID("audience", req.Audience)); err != nil {
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
		options["expires_after"] = fmt.Sprintf("%d microseconds", req.ExpiresAfter.Microseconds())
	}
	text, err := json.Marshal(options)
	if err != nil {
		return d, invalidf(op, "%w", err)
	}
	var begins *time.Time
	if !req.ScheduledFor.IsZero() {
		begins = &req.ScheduledFor
	}
	rows, err := db.Query(ctx, query.Deploy, req.Campaign, req.Audience, req.ID, string(req.Channel), begins, string(text), scope.tenant())
	if err == nil {
		d, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Deployed])
	}
	return d, wrap(op, err)
}
