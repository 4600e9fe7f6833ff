package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/sqlstate"
)

func newCampaignPause(a *app) *cobra.Command {
	return newCampaignHold(a, "pause", "Let nothing of a run begin until it is resumed", `Let nothing of a run begin until it is resumed: when this has returned, nothing does but what is being sent. A run does not
expire while it is paused.

With --wait it returns when that, too, is over: nothing of the run is being sent any more but what is in doubt and held for
a person, which is named and not waited for. What else is in doubt may take as long as its provider needs to know; --timeout
bounds it. However the wait ends, by ^C too, the run stays paused.`, stillness{"paused", "deed campaign resume lets it go on"}, campaign.Pause)
}

func newCampaignCancel(a *app) *cobra.Command {
	return newCampaignHold(a, "cancel", "End a run for good", `End a run for good: what is queued, and who was not reached, is skipped as cancelled by a relay, and what is being sent
ends by itself. There is no way back.

With --wait it returns when nothing of the run is being sent any more but what is in doubt and held for a person, which is
named and not waited for, as the relay's skipping is not. What else is in doubt may take as long as its provider needs to
know; --timeout bounds it. However the wait ends, by ^C too, the run stays cancelled.`, stillness{"cancelled", "what is being sent ends by itself"}, campaign.Cancel)
}

// stillness is what a run is of which nothing begins, and what becomes of it.
type stillness struct{ is, then string }

// newCampaignHold is a command after which nothing of a run begins, and which may wait until nothing
// is being sent.
func newCampaignHold(a *app, use, short, long string, h stillness, hold func(context.Context, deed.DB, campaign.Scope, string, audit.Act) (int64, error)) *cobra.Command {
	var wait bool
	cmd := newCampaignAct(a, use, short, long, h.is,
		func(cmd *cobra.Command, pool *pgxpool.Pool, scope campaign.Scope, run string, by audit.Act) (campaign.UnderWay, error) {
			n, err := hold(cmd.Context(), pool, scope, run, by)
			for wait && sqlstate.Locked(err) { // attempts that began before have not ended
				stands := errors.Is(err, campaign.ErrUnconfirmed)
				if n, err = hold(cmd.Context(), pool, scope, run, by); cmd.Context().Err() != nil {
					if stands {
						return campaign.UnderWay{}, h.stays(cmd.Context(), run, "attempts that began before it had not ended: "+use+" it again, and nothing begins once that succeeds")
					}
					return campaign.UnderWay{}, fmt.Errorf("it was not confirmed that run %s is %s, since its row was locked: %s it again", run, h.is, use)
				}
			}
			if err != nil || !wait {
				return campaign.UnderWay{Sending: n}, err
			}
			return awaitHeld(cmd, pool, run, h)
		})
	cmd.Example += "\n  deed campaign " + use + " 01a1fe76-14ee-7f1b-b119-532699ab7d4c --wait --timeout 1m"
	cmd.Flags().BoolVar(&wait, "wait", false, "return when nothing of it is being sent any more")
	return cmd
}

// awaitHeld tells on standard error what of a run of which nothing begins is still being sent, until
// nothing is.
func awaitHeld(cmd *cobra.Command, pool *pgxpool.Pool, run string, h stillness) (campaign.UnderWay, error) {
	out := unescaped(cmd.ErrOrStderr())
	live := terminalWidth(cmd.ErrOrStderr()) > 0
	var told time.Time
	shown := false
	left, err := campaign.AwaitPaused(cmd.Context(), pool, run, func(u campaign.UnderWay) {
		line := fmt.Sprintf("%s; %s being sent", h.is, many(u.Sending, "delivery is", "deliveries are"))
		if u.InDoubt > 0 {
			line += fmt.Sprintf(", %d of them in doubt", u.InDoubt)
		}
		switch {
		case live && (u.Sending > 0 || shown):
			_, _ = io.WriteString(out, "\r\x1b[K"+line)
			shown = true
		case !live && u.Sending > 0 && time.Since(told) >= quietProgress:
			_, _ = io.WriteString(out, line+"\n")
			told = time.Now()
		}
	})
	if shown {
		_, _ = io.WriteString(out, "\n")
	}
	if err != nil && cmd.Context().Err() != nil {
		err = h.stays(cmd.Context(), run, "at the last look "+many(left.Sending, "delivery was", "deliveries were")+" being sent")
	}
	return left, err
}

// stays says what becomes of a run that is no longer waited for.
func (h stillness) stays(ctx context.Context, run, rest string) error {
	why := ""
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // of which its --timeout is named
		why = "interrupted: "
	}
	return fmt.Errorf("%srun %s stays %s; %s; %s", why, run, h.is, rest, h.then)
}

// heldOf names what is held for a person.
func heldOf(left campaign.UnderWay) string {
	if left.Held == 0 {
		return ""
	}
	text := fmt.Sprintf("; %s in doubt, and held for a person: %s", many(left.Held, "delivery is", "deliveries are"), strings.Join(left.HeldIDs, ", "))
	if more := left.Held - int64(len(left.HeldIDs)); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
