package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/idempotency"
	"github.com/deedhq/deed/internal/sqlstate"
)

func newDead(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "List, show, redrive and discard dead letters",
		Long: `Dead letters are messages that have used up their attempts, or that the sink refused for good. They are kept until you
redrive or discard them. The audit log records who did so, when and why: deed audit.`,
		Example: "  deed dead list --topic orders\n  deed dead redrive --topic orders --dry-run\n  deed dead discard 17 --reason 'order was cancelled'",
	}
	cmd.AddCommand(newDeadList(a), newDeadShow(a), newDeadRedrive(a), newDeadRequests(a), newDeadCancel(a), newDeadDiscard(a))
	return cmd
}

// deadFlags are what selects dead letters, the same for every command.
type deadFlags struct {
	admin.DeadFilter
	owner tenantFlag
	refs  []string
}

func (f *deadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Topic, "topic", "", "only this topic")
	flags.StringVar(&f.Subscription, "subscription", "", "only this subscription")
	flags.StringVar(&f.Type, "type", "", "only this type of message")
	flags.StringVar(&f.Error, "error", "", "only those whose last error contains this text, in any case of letters")
	durationVar(cmd, &f.OlderThan, "older-than", 0, "only those that have been dead for at least this long")
	durationVar(cmd, &f.NewerThan, "newer-than", 0, "only those that have been dead for at most this long")
	flags.StringArrayVar(&f.refs, "id", nil, "only this message, by its id or number; may be repeated")
	f.owner.add(cmd, "only this tenant's, a UUID")
}

func (f *deadFlags) read() (err error) {
	if f.Tenant, err = f.owner.id(); err != nil {
		return err
	}
	f.Seqs = nil
	for _, ref := range f.refs {
		seq, _, err := admin.ParseRef(ref)
		if err != nil {
			return err
		}
		f.Seqs = append(f.Seqs, seq)
	}
	return nil
}

// found reports a message that is named by its id and is not there: its number may be another's now. A request that is known already had them when it
// was made: their content may be gone since.
func (f *deadFlags) found(ctx context.Context, c *admin.Client, request string) error {
	for _, ref := range f.refs {
		if _, id, err := admin.ParseRef(ref); err != nil || id == (deed.ID{}) {
			continue
		}
		_, err := c.Message(ctx, ref, false)
		if deed.CodeOf(err) == deed.NotFound && request != "" {
			known, lookErr := c.KnowsRedrive(ctx, request)
			if known || lookErr != nil {
				return lookErr
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newDeadList(a *app) *cobra.Command {
	var f deadFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: cobra.NoArgs,
		Long:    "List dead letters with their last error, newest first. Their contents are shown by deed dead show ID --payload.",
		Example: "  deed dead list --topic orders\n  deed dead list --error 'status 503' --older-than 1h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				if err := f.found(cmd.Context(), c, ""); err != nil {
					return err
				}
				page, err := c.Dead(cmd.Context(), f.DeadFilter)
				if err == nil && len(page.Items) == 0 {
					err = cmp.Or(knownTopic(cmd.Context(), c, f.Topic), knownSubscription(cmd.Context(), c, f.Topic, f.Subscription))
				}
				if err != nil {
					return err
				}
				header := []string{"SEQ", "ID", "TOPIC", "SUBSCRIPTION", "KEY", "ATTEMPTS", "DEAD SINCE", "LAST ERROR"}
				return printPage(cmd, asJSON, "dead", page, header, func(d admin.DeadMessage) []string {
					return []string{fmt.Sprint(d.Seq), d.ID.String(), d.Topic, d.Subscription, d.Key, fmt.Sprint(d.Attempts), when(d.DeadAt), d.LastError}
				})
			})
		},
	}
	f.add(cmd)
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeadShow(a *app) *cobra.Command {
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter", Args: cobra.ExactArgs(1),
		Long:    "Show a message, by its id or its number, and how each subscription stands with it. Its content only with --payload.",
		Example: "  deed dead show 17 --payload",
		RunE:    func(cmd *cobra.Command, args []string) error { return showMessage(cmd, a, args[0], payload, asJSON) },
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the content")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeadRedrive(a *app) *cobra.Command {
	var f deadFlags
	var who operator
	var r admin.Redrive
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "redrive", Short: "Put dead letters back, oldest first", Args: cobra.NoArgs,
		Annotations: map[string]string{takesLong: ""},
		Long: `Put dead letters back, so that they are tried anew: those that the flags select, oldest first, with their attempts at 0.
--dry-run changes nothing and prints how many there are. What dies again meanwhile stays dead.

A redrive is a request with a name, which it prints, and works in short steps. If it is stopped or killed, give the same
command again with --request NAME, and it goes on where it was; a request that is done does nothing. deed dead cancel ends
a redrive from elsewhere.`,
		Example: `  deed dead redrive --topic orders --limit 100 --dry-run
  deed dead redrive --topic orders --error 'status 503' --rate 50 --reason 'INC-211 is over'
  deed dead redrive --topic orders --request inc-211`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.read(); err != nil {
				return err
			}
			if f.Limit < 0 || (cmd.Flags().Changed("limit") && f.Limit == 0) {
				return usagef("--limit %d is below 1", f.Limit)
			}
			if r.Rate < 0 || (cmd.Flags().Changed("rate") && r.Rate == 0) {
				return usagef("--rate %d is below 1", r.Rate)
			}
			chosen := f.Topic != "" || f.Subscription != "" || f.Type != "" || f.Error != "" || f.OlderThan > 0 || f.NewerThan > 0 || f.owner.given() || f.Seqs != nil
			if !chosen && !all {
				return usagef("which dead letters? Give --topic or another flag that selects, or --all")
			}
			r.DeadFilter, r.Act = f.DeadFilter, who.act(a)
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				if err := f.found(cmd.Context(), c, r.Request); err != nil {
					return err
				}
				if r.DryRun {
					return countDead(cmd, c, f.DeadFilter, asJSON)
				}
				return redrive(cmd, c, r, asJSON)
			})
		},
	}
	f.add(cmd)
	who.add(cmd, "why, for the audit log")
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters")
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "how many at the most (default: all)")
	cmd.Flags().IntVar(&r.Rate, "rate", 0, "how many a second at the most (default: no cap)")
	cmd.Flags().StringVar(&r.Request, "request", "", "the request's name, to go on with it (default: a new one)")
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only count")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func countDead(cmd *cobra.Command, c *admin.Client, f admin.DeadFilter, asJSON bool) error {
	counts, err := c.CountDead(cmd.Context(), f)
	if err == nil && len(counts) == 0 {
		err = knownTopic(cmd.Context(), c, f.Topic)
	}
	if err != nil {
		return err
	}
	var sum int64
	rows := make([][]string, len(counts))
	for i, n := range counts {
		sum += n.Dead
		rows[i] = []string{n.Topic, n.Subscription, fmt.Sprint(n.Dead), when(n.First), when(n.Last)}
	}
	if f.Limit > 0 {
		sum = min(sum, int64(f.Limit))
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"redriven": sum, "dry_run": true, "counts": orEmpty(counts)})
	}
	if len(rows) > 0 {
		if err := table(cmd.OutOrStdout(), []string{"TOPIC", "SUBSCRIPTION", "DEAD", "FIRST", "LAST"}, rows); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s would be redriven\n", many(sum, "message", "messages"))
	return err
}

// follow runs a request that works in steps: once there is one it prints its
// name, and how far it is; when it is cut off, or may have been, how to go on.
func follow(cmd *cobra.Command, request *string, progress *func(redriven, chosen int64), run func() (int64, error)) (int64, error) {
	if *request == "" {
		*request = idempotency.NewRequest()
	}
	var told time.Time
	*progress = func(redriven, chosen int64) {
		if told.IsZero() {
			fmt.Fprintf(cmd.ErrOrStderr(), "request %s\n", *request)
			told = time.Now()
		}
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d\n", redriven, chosen)
		}
	}
	n, err := run()
	cutOff := cmd.Context().Err() != nil || deed.CodeOf(err) == deed.Internal && sqlstate.Passing(err)
	if err != nil && cutOff {
		err = fmt.Errorf("%w; go on with the same command and --request %s", err, *request)
	}
	return n, err
}

func redrive(cmd *cobra.Command, c *admin.Client, r admin.Redrive, asJSON bool) error {
	n, err := follow(cmd, &r.Request, &r.Progress, func() (int64, error) { return c.Redrive(cmd.Context(), r) })
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"redriven": n, "dry_run": false, "request": r.Request})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s redriven\n", many(n, "message", "messages"))
	return err
}

func newDeadRequests(a *app) *cobra.Command {
	var cursor string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "requests", Short: "List requests to redrive, newest first", Args: cobra.NoArgs,
		Long: `List requests to redrive messages or deliveries, and how far they are, newest first. A request that is running and makes
no progress was cut off: give its command again with its --request, or cancel it.`,
		Example: "  deed dead requests --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				page, err := c.Redrives(cmd.Context(), cursor, limit)
				if err != nil {
					return err
				}
				header := []string{"REQUEST", "STATE", "REDRIVEN", "SINCE", "BY", "REASON", "ASKED"}
				return printPage(cmd, asJSON, "requests", page, header, func(r admin.RedriveStatus) []string {
					return []string{r.Request, r.State, fmt.Sprintf("%d of %d", r.Redriven, r.Chosen), when(r.StartedAt), r.By, r.Reason, string(r.Asked)}
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeadCancel(a *app) *cobra.Command {
	var who operator
	var asJSON bool
	cmd := &cobra.Command{
		Use: "cancel REQUEST", Short: "End a redrive that is not done", Args: cobra.ExactArgs(1),
		Long:    "End a redrive after the step that is under way, wherever it runs. What it has put back already stays put back.",
		Example: "  deed dead cancel inc-211 --reason 'the sink is down again'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				n, err := c.CancelRedrive(cmd.Context(), args[0], who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"request": args[0], "redriven": n, "state": "cancelled"})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "cancelled after %d of them\n", n)
				return err
			})
		},
	}
	who.add(cmd, "why, for the audit log")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newDeadDiscard(a *app) *cobra.Command {
	var who operator
	var subscription string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "discard ID --reason TEXT", Short: "Give up a message that is dead or waits, for a reason", Args: cobra.ExactArgs(1),
		Long: `Give up a message that is dead or waits, by its id or its number: it is never delivered. deed show and the audit log
say so, and by whom and why. Where several subscriptions have not finished it, say which: --subscription, or --all. A
message that a worker has in hand is refused until its lease has run out; one that its stream has not read yet is not
found.`,
		Example: "  deed dead discard 17 --reason 'order was cancelled'",
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, _, err := admin.ParseRef(args[0])
			if err != nil {
				return err
			}
			if who.reason == "" {
				return usagef("why? Give --reason: nothing is discarded silently")
			}
			if all && subscription != "" {
				return usagef("--all and --subscription %s contradict each other", subscription)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				// By its id the message must be the one that has this number now.
				detail, err := c.Message(cmd.Context(), args[0], false)
				if err != nil {
					return err
				}
				if subscription == "" && !all {
					if subscription, err = onlyOwed(detail); err != nil {
						return err
					}
				}
				n, err := c.Discard(cmd.Context(), seq, subscription, who.act(a))
				if all && deed.CodeOf(err) == deed.Conflict {
					err = cmp.Or(stillOwed(cmd.Context(), c, args[0]), err)
				}
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), map[string]any{"seq": fmt.Sprint(seq), "id": detail.ID, "subscriptions": n})
				} else {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "message %d is discarded, for %s\n", seq, many(n, "subscription", "subscriptions"))
				}
				if err != nil || !all {
					return err
				}
				return stillOwed(cmd.Context(), c, args[0])
			})
		},
	}
	who.add(cmd, "why (required)")
	cmd.Flags().StringVar(&subscription, "subscription", "", "only for this subscription")
	cmd.Flags().BoolVar(&all, "all", false, "for all that have not finished it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// open lists the subscriptions that have a message open, and how each stands.
func open(m admin.MessageDetail) (names, stand []string) {
	for _, s := range m.States {
		switch s.State {
		case "due", "scheduled", "claimed", "parked", "dead", "waiting":
			names, stand = append(names, s.Subscription), append(stand, s.Subscription+" ("+s.State+")")
		}
	}
	return names, stand
}

// stillOwed fails where some subscription has a message open that was to be discarded
// for all: a worker has it in hand, or its stream has not read it yet.
func stillOwed(ctx context.Context, c *admin.Client, ref string) error {
	detail, err := c.Message(ctx, ref, false)
	if err != nil {
		return err
	}
	if _, stand := open(detail); len(stand) > 0 {
		return &exitError{exitPartly, fmt.Errorf("it is not discarded for %s: try again once the call has ended or its lease has run out, or its stream has read it", strings.Join(stand, ", "))}
	}
	return nil
}

// onlyOwed names the subscription that has not finished a message. Where several have
// it open it is not guessed which.
func onlyOwed(m admin.MessageDetail) (string, error) {
	names, stand := open(m)
	switch len(names) {
	case 0:
		return "", &deed.Error{Op: "discard", Code: deed.NotFound, Err: fmt.Errorf("no message %d waits or is dead", m.Seq)}
	case 1:
		if strings.HasSuffix(stand[0], "(waiting)") {
			return "", &deed.Error{Op: "discard", Code: deed.NotFound, Err: fmt.Errorf("the stream of %s has not read message %d yet: until then there is nothing to discard", names[0], m.Seq)}
		}
		return names[0], nil
	}
	return "", usagef("message %d is owed to several subscriptions: %s; give --subscription NAME, or --all to give it up for each", m.Seq, strings.Join(stand, ", "))
}
