package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/tenant"
)

func newInbound(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inbound", Short: "List, show and retry what people wrote to us",
		Long: `Messages that platforms sent to a relay's public address, and what became of them: executed, denied, or failed. One that
has failed ten times is held, and waits for you.`,
		Example: "  deed inbound list --held\n  deed inbound show 01a1fe76-14ee-7f1b-b119-532699ab7d4c",
	}
	cmd.AddCommand(newInboundList(a), newInboundShow(a), newInboundRetry(a))
	return cmd
}

func newInboundList(a *app) *cobra.Command {
	var f inbound.Filter
	var owner tenantFlag
	var status string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List inbound messages, newest first", Args: cobra.NoArgs,
		Long:    "List inbound messages, newest first. What was written is shown by deed inbound show ID, and by --json.",
		Example: "  deed inbound list --source support --status dispatch_failed\n  deed inbound list --held",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			f.Status = inbound.Status(status)
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := inbound.List(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = cmp.Or(knownTenant(cmd.Context(), pool, f.Tenant), a.knownSource(cmd.Context(), pool, f.Source), knownContact(cmd.Context(), pool, f.Contact))
				}
				if err != nil {
					return err
				}
				header := []string{"ID", "STATUS", "SOURCE", "FROM", "ATTEMPTS", "AT", "ERROR"}
				return printPage(cmd, asJSON, "messages", list, header, func(e inbound.Entry) []string {
					return []string{e.ID, statusOf(e), e.Source, cmp.Or(e.Sender, "-"), fmt.Sprint(e.Attempt), when(e.ReceivedAt), e.Error}
				})
			})
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only these: accepted, executed, dispatch_failed, denied, or denied_ and why")
	cmd.Flags().StringVar(&f.Source, "source", "", "only this source's")
	cmd.Flags().StringVar(&f.Contact, "contact", "", "only this contact's, by its id")
	cmd.Flags().BoolVar(&f.Held, "held", false, "only those that wait for a person")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// statusOf is a message's status, and whether it waits for a person.
func statusOf(e inbound.Entry) string {
	if e.HeldAt != nil {
		return "held"
	}
	return string(e.Status)
}

// theirs refuses messages that are not of owner; nil: whosever they are.
func theirs(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, ids ...string) error {
	if owner == nil {
		return nil
	}
	for _, id := range ids {
		e, err := inbound.Load(ctx, pool, id)
		if err == nil && e.Tenant != *owner {
			err = &deed.Error{Op: "inbound messages", Code: deed.NotFound, Err: fmt.Errorf("there is no inbound message %s of tenant %s", id, owner)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newInboundShow(a *app) *cobra.Command {
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show an inbound message, what happened to it, and its replies", Args: cobra.ExactArgs(1),
		Long: `Show an inbound message, every change of it with who made it, and the deliveries that answer it, with the providers' message
ids: the whole way from the platform's request to the reply.`,
		Example: "  deed inbound show 01a1fe76-14ee-7f1b-b119-532699ab7d4c --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				if err := theirs(cmd.Context(), pool, of, args[0]); err != nil {
					return err
				}
				e, changes, replies, err := inbound.Show(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"message": e, "history": orEmpty(changes), "replies": orEmpty(replies)})
				}
				return showInbound(cmd.OutOrStdout(), e, changes, replies)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only if it is this tenant's, a UUID")
	return cmd
}

func showInbound(w io.Writer, e inbound.Entry, changes []inbound.Change, replies []inbound.Answered) error {
	for _, line := range [][2]string{
		{"id", e.ID},
		{"status", string(e.Status)},
		{"held since", instant(e.HeldAt)},
		{"again at", instant(e.ProcessAfter)},
		{"emptied", instant(e.EmptiedAt)},
		{"source", e.Source},
		{"platform's id", e.PlatformID},
		{"from", strings.TrimSpace(e.Kind + " " + e.Sender)},
		{"contact", e.Contact},
		{"answers go to", e.ReplyTo},
		{"received", when(e.ReceivedAt)},
		{"ended", instant(e.FinishedAt)},
		{"attempts", fmt.Sprint(e.Attempt)},
		{"begun last", strings.TrimSpace(instant(e.ClaimedAt) + " " + e.ClaimedBy)},
		{"last error", e.Error},
		{"correlation id", e.CorrelationID},
		{"tenant", e.Tenant.String()},
		{"text", e.Text},
	} {
		detail(w, 16, line[0], line[1])
	}
	rows := make([][]string, len(changes))
	for i, c := range changes {
		rows[i] = []string{when(c.At), c.Actor, c.Action, cmp.Or(string(c.From), "-"), cmp.Or(string(c.To), "-"), c.Reason}
	}
	fmt.Fprintln(w)
	err := table(w, []string{"AT", "BY", "ACTION", "FROM", "TO", "REASON"}, rows)
	if len(replies) == 0 || err != nil {
		return err
	}
	rows = make([][]string, len(replies))
	for i, r := range replies {
		rows[i] = []string{r.ID, r.Status, r.Channel, r.Provider, instant(r.FinishedAt), r.LastError}
	}
	fmt.Fprintln(w)
	if err := table(w, []string{"REPLY", "STATUS", "CHANNEL", "PROVIDER", "ENDED", "ERROR"}, rows); err != nil {
		return err
	}
	for _, r := range replies { // a column of the table it would not fit into
		text := cmp.Or(r.ProviderMessageID, "-")
		if len(replies) > 1 && text != "-" {
			text += " of " + r.ID
		}
		detail(w, 16, "message id", text)
	}
	return nil
}

func newInboundRetry(a *app) *cobra.Command {
	var who operator
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "retry ID… --reason TEXT", Short: "Run failed inbound messages again", Args: cobra.MinimumNArgs(1),
		Long: `Run failed inbound messages again, also those that are held, with their attempts at 0: a relay that serves their source
does. Others are left as they are: the exit status is then 3, or 1 if that were all.`,
		Example: "  deed inbound retry 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'the executor is mended'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if who.reason == "" {
				return usagef("why? Give --reason")
			}
			of, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				if err := theirs(cmd.Context(), pool, of, args...); err != nil {
					return err
				}
				n, err := inbound.Retry(cmd.Context(), pool, args, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), map[string]int{"given": len(args), "retried": n})
				} else if n > 0 {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s will be run again\n", many(n, "message", "messages"))
				}
				switch {
				case err != nil || n == len(args):
					return err
				case n == 0 && len(args) == 1:
					return errors.New("nothing was changed: the message has not failed, or has been emptied; deed inbound show says")
				case n == 0:
					return errors.New("nothing was changed: none of these messages has failed, or they have been emptied; deed inbound show says")
				}
				return &exitError{exitPartly, fmt.Errorf("%d of %d messages have not failed, or have been emptied", len(args)-n, len(args))}
			})
		},
	}
	who.add(cmd, "why (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only if all are this tenant's, a UUID")
	return cmd
}
