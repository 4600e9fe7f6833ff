package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/work"
)

// watchCampaign tells on standard error how a run fares until it has ended. It looks once a
// second, and less often where a look takes long.
func watchCampaign(cmd *cobra.Command, pool *pgxpool.Pool, run string) (campaign.Shown, error) {
	ctx, out := cmd.Context(), unescaped(cmd.ErrOrStderr())
	live := terminalWidth(cmd.ErrOrStderr()) > 0
	var first, told time.Time
	var before int64
	for {
		begun := time.Now()
		s, err := campaign.Show(ctx, pool, run)
		if err != nil {
			return s, err
		}
		if first.IsZero() {
			first, before = begun, overOf(s)
		}
		over := s.FinishedAt != nil
		line := fares(s, overOf(s)-before, begun.Sub(first))
		switch {
		case live && over:
			line = "\r\x1b[K" + line + "\n"
		case live:
			line = "\r\x1b[K" + line
		case over || begun.Sub(told) >= quietProgress:
			told, line = begun, line+"\n"
		default:
			line = ""
		}
		if _, err := io.WriteString(out, line); err != nil || over {
			return s, err
		}
		if !work.Sleep(ctx, max(time.Second, 10*time.Since(begun))) {
			return s, context.Cause(ctx)
		}
	}
}

// overOf is of how many members it is known what became of them.
func overOf(s campaign.Shown) int64 {
	p := s.Progress
	return p.Sent + p.Skipped + p.Missed + p.Failed + p.Dead + p.Lost
}

// fares is a line about a run of which n members ended in a time.
func fares(s campaign.Shown, n int64, in time.Duration) string {
	const cells = 20
	over := overOf(s)
	full := int(min(over*cells/s.Members, cells))
	text := fmt.Sprintf("[%s%s] %d of %d, %s", strings.Repeat("#", full), strings.Repeat(".", cells-full), over, s.Members, statusOfCampaign(s.Run))
	if rate := float64(n) / in.Seconds(); n > 0 && in > 0 && s.FinishedAt == nil {
		text += fmt.Sprintf(", %.0f/s", rate)
		if s.PausedAt == nil {
			text += fmt.Sprintf(", %s to go", time.Duration(float64(s.Members-over)/rate*float64(time.Second)).Round(time.Second))
		}
	}
	if why := unbegun(s.Run); why != "" {
		text += ", " + why
	}
	if s.PausedWhy != "" && s.FinishedAt == nil {
		text += ": " + s.PausedWhy
	}
	if len(s.Waits) > 0 && s.PausedAt == nil && s.FinishedAt == nil && (s.Waits[0].Why == "winner" || s.Waits[0].Until != nil && (n == 0 || s.Waits[0].Why == "quiet hours")) {
		text += ", " + waits(s.Waits[0])
	}
	for _, extra := range []struct {
		n    int64
		what string
	}{{s.Progress.Failed + s.Progress.Dead, "failed"}, {s.Progress.InDoubt, "in doubt"}, {s.Progress.Held, "for a person"}} {
		if extra.n > 0 {
			text += fmt.Sprintf(", %d %s", extra.n, extra.what)
		}
	}
	return text
}

// judgeCampaign is how a command ends that has waited for a run.
func judgeCampaign(r campaign.Run) error {
	switch r.Status {
	case campaign.Completed:
		return nil
	case campaign.Partial:
		return &exitError{exitPartly, fmt.Errorf("the run is partial: deed campaign report %s says why", r.ID)}
	}
	return fmt.Errorf("the run has failed: deed campaign report %s says why", r.ID)
}
