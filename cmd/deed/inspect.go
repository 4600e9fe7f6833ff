package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/page"
)

func newStatus(a *app) *cobra.Command {
	var topic string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Count every topic's messages and every provider's deliveries",
		Long: `Count the messages of every topic and subscription: pending (not finished, not dead), and of these due, claimed, and
parked behind another message of their key; dead; delivered. What a stream has still to read is pending and due. Of each
kind up to 10,000 are counted for each subscription, so that looking costs little however many there are: more is shown as
10000+ (in JSON: "at_least", "dead_at_least"). What was delivered is added up every few seconds by the relays. Below the
table stand subscriptions that nobody works on, those that pause and why, and calls that do not return.
Where there are providers, what waits for them and what is paused follows, as deed providers list has it. Where relays
hold, since this is a copy, it says so first (in JSON: "held").`,
		Example: "  deed status --topic orders\n  deed status --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, pool *pgxpool.Pool) error {
				topics, providers, err := owed(cmd.Context(), c, pool, topic)
				if err != nil {
					return err
				}
				why, err := c.NewCluster(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					out := map[string]any{"topics": topics, "providers": orEmpty(providers)}
					if why != "" {
						out["held"] = why
					}
					return printJSON(cmd.OutOrStdout(), out)
				}
				if why != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "held, what is to hold on a new cluster: %s\n  if nobody else sends what is owed here: deed adopt --yes --reason …\n\n", why)
				}
				var rows [][]string
				for _, t := range topics {
					for _, s := range t.Subscriptions {
						rows = append(rows, []string{
							t.Topic, s.Subscription, counted(s.Pending, s.AtLeast), counted(s.Due, s.AtLeast), counted(s.Claimed, s.AtLeast && s.Claimed > 0),
							counted(s.Parked, s.AtLeast && s.Parked > 0), counted(s.Dead, s.DeadAtLeast), counted(s.Delivered, s.DeliveredAtLeast), seconds(s.OldestDue),
						})
					}
				}
				err = printRows(cmd, []string{"TOPIC", "SUBSCRIPTION", "PENDING", "DUE", "CLAIMED", "PARKED", "DEAD", "DELIVERED", "OLDEST DUE"}, rows)
				if err != nil {
					return err
				}
				showTrouble(cmd.OutOrStdout(), topics)
				if len(providers) == 0 {
					return nil
				}
				fmt.Fprintln(cmd.OutOrStdout())
				return showProviders(cmd.OutOrStdout(), providers)
			})
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only this topic, and no provider")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// owed is what topics and providers have to do, or one topic.
func owed(ctx context.Context, c *admin.Client, pool *pgxpool.Pool, topic string) ([]admin.TopicStatus, []delivery.ProviderState, error) {
	if topic != "" {
		topics, err := c.StatusOf(ctx, math.MaxInt32)
		topics = slices.DeleteFunc(topics, func(t admin.TopicStatus) bool { return t.Topic != topic })
		if err == nil && len(topics) == 0 {
			if err = knownTopic(ctx, c, topic); err == nil {
				// Nobody has declared it, and it lies behind more of others than are counted.
				atLeast := admin.Counts{AtLeast: true, DeadAtLeast: true, DeliveredAtLeast: true}
				topics = append(topics, admin.TopicStatus{
					Topic: topic, Counts: atLeast, Subscriptions: []admin.SubscriptionStatus{{Subscription: "default", Counts: atLeast}},
				})
			}
		}
		return topics, nil, err
	}
	topics, err := c.Status(ctx)
	if err != nil {
		return nil, nil, err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{})
	if err != nil {
		return nil, nil, err
	}
	providers, err := l.Providers(ctx)
	return topics, providers, err
}

// showTrouble names the subscriptions that nobody works on, those whose sinks are
// unavailable, and why, and the calls of sinks that have been running for long: what
// has called waits for them, of a stream all of its lane.
func showTrouble(out io.Writer, topics []admin.TopicStatus) {
	for _, t := range topics {
		for _, s := range t.Subscriptions {
			if s.Unattended {
				fmt.Fprintf(out, "\n%s/%s: nobody works on it, and messages have been due for %s: a relay with a sink for it, or a service that works it, is not running\n",
					t.Topic, s.Subscription, seconds(s.OldestDue))
			}
			if p := s.Pause; p != nil {
				others := ""
				if p.Workers > 1 {
					others = " and " + many(p.Workers-1, "other", "others")
				}
				fmt.Fprintf(out, "\n%s/%s: paused for %s, by worker %s%s, since its sink is unavailable: %s\n",
					t.Topic, s.Subscription, seconds(p.Age), p.Worker, others, p.Why)
			}
			if c := s.OldestCall; c != nil {
				fmt.Fprintf(out, "\n%s/%s: a call has been running for %s, with message %d, by worker %s\n",
					t.Topic, s.Subscription, seconds(c.Age), c.Seq, c.Worker)
			}
		}
	}
}

// counted is a number, and whether there may be more.
func counted(n int64, atLeast bool) string {
	if atLeast {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

// lookFor bounds how long [firstFound] goes on looking.
const lookFor = 2 * time.Second

// firstFound is the first page that has something: where a look ended before it had
// found any, it goes on for a while. A topic with a few messages may stand behind very
// many of others.
func firstFound(ctx context.Context, c *admin.Client, f admin.Filter) (page.Of[admin.MessageRecord], error) {
	for began := time.Now(); ; {
		found, err := c.Messages(ctx, f)
		if err != nil || len(found.Items) > 0 || found.Next == "" || time.Since(began) > lookFor {
			return found, err
		}
		f.Cursor = found.Next
	}
}

func newTail(a *app) *cobra.Command {
	var topic string
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use:     "tail",
		Short:   "Show messages as they are published",
		Long:    "Show messages as their transactions commit, until Ctrl-C. Contents only with --payload.",
		Example: "  deed tail --topic orders --payload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				return c.Tail(cmd.Context(), topic, payload, func(l admin.MessageRecord) error {
					if asJSON {
						s, err := show(l, payload)
						if err != nil {
							return err
						}
						return printJSON(cmd.OutOrStdout(), s)
					}
					line := fmt.Sprintf("%s  %s  %s  key=%s type=%s %d bytes", when(l.CreatedAt), l.ID, l.Topic, clip(l.Key, 40), clip(l.Type, 40), l.Size)
					if payload {
						line += "  " + contentLine(l.ContentType, l.Payload)
					}
					_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
					return err
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "only this topic")
	f.BoolVar(&payload, "payload", false, "show contents")
	f.BoolVar(&asJSON, "json", false, "print a JSON object a line")
	return cmd
}

func newMessages(a *app) *cobra.Command {
	var f admin.Filter
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "List published messages, newest first",
		Long: `List messages of the log, newest first. Contents only with --payload. A topic's are found by it; a key or a tenant is
looked for among the newest 20,000, and further back for two seconds as long as none is found; the list says how far back
that was, and how to go on.`,
		Example: "  deed messages --topic orders --key 42 --since 24h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is not from 1 to 10000", f.Limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				page, err := firstFound(cmd.Context(), c, f)
				if err == nil && len(page.Items) == 0 {
					err = knownTopic(cmd.Context(), c, f.Topic)
				}
				if err != nil {
					return err
				}
				if asJSON {
					out := make([]shown, len(page.Items))
					for i, l := range page.Items {
						if out[i], err = show(l, f.Payload); err != nil {
							return err
						}
					}
					return printPageJSON(cmd, "messages", out, page.Next, page.LookedTo)
				}
				return printPage(cmd, false, "messages", page, messageHeader(f.Payload), func(l admin.MessageRecord) []string { return messageRow(l, f.Payload) })
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Topic, "topic", "", "only this topic")
	flags.StringVar(&f.Key, "key", "", "only this key")
	durationVar(cmd, &f.Since, "since", 0, "only those published at most this long ago")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	flags.BoolVar(&f.Payload, "payload", false, "show contents")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func newShow(a *app) *cobra.Command {
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a message and what became of it",
		Long:    "Show a message, by its id or its number, and how each subscription stands with it. Its content only with --payload.",
		Example: "  deed show 01a1fc88-7193-7000-8000-000000000002 --payload",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return showMessage(cmd, a, args[0], payload, asJSON) },
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the content")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showMessage(cmd *cobra.Command, a *app, ref string, payload, asJSON bool) error {
	return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
		detail, err := c.Message(cmd.Context(), ref, payload)
		if err != nil {
			return err
		}
		s, err := show(detail.MessageRecord, payload)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if asJSON {
			return printJSON(out, struct {
				shown
				States []admin.State `json:"subscriptions"`
			}{s, detail.States})
		}
		fmt.Fprintf(out, "id         %s\nseq        %d\ntopic      %s\nkey        %s\ntype       %s\ntenant     %s\npublished  %s\ncontent    %s, %d bytes\n",
			s.ID, s.Seq, s.Topic, s.Key, s.Type, s.Tenant, when(s.CreatedAt), s.ContentType, s.Size)
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			fmt.Fprintf(out, "header     %s: %s\n", name, s.Headers[name])
		}
		if payload {
			fmt.Fprintf(out, "payload    %s\n", contentLine(s.ContentType, detail.Payload))
		}
		fmt.Fprintln(out)
		var rows [][]string
		for _, st := range detail.States {
			at, note := "", st.LastError
			switch {
			case st.DeliveredAt != nil:
				at, note = when(*st.DeliveredAt), "by "+st.Worker
			case st.DiscardedAt != nil:
				at, note = when(*st.DiscardedAt), "by "+st.Worker+": "+st.Reason
			case st.DeadAt != nil:
				at = when(*st.DeadAt)
			case st.LeaseUntil != nil:
				at = when(*st.LeaseUntil)
			case st.DueAt != nil:
				at = when(*st.DueAt)
			case st.State == "waiting":
				note = "the stream has not come to it yet"
			case st.State == "passed":
				note = "the stream has gone past it; its record is no longer kept"
			case st.State == "lost":
				note = fmt.Sprintf("page %d of lane %d put it aside, and nothing is left of it: deed verify", st.Page, st.Lane)
			}
			rows = append(rows, []string{st.Subscription, st.State, fmt.Sprint(st.Attempts), fmt.Sprint(st.LostClaims), at, note})
		}
		return table(out, []string{"SUBSCRIPTION", "STATE", "ATTEMPTS", "LOST CLAIMS", "AT", "NOTE"}, rows)
	})
}

func newVerify(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every invariant of the message store",
		Long: `Check every invariant: no unfinished message without a due time or a live claim, no finished message still pending,
no two live claims on one, no message lost between content and state, counts that add up; no event of a run missing,
runs and their snapshots as their events say. Prints one row per violation and exits 1 if there is any. It may run
beside publishers and relays; its cost grows with the log.`,
		Example:     "  deed verify --json",
		Args:        cobra.NoArgs,
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, pool *pgxpool.Pool) error {
				started := time.Now()
				violations, err := c.Verify(cmd.Context())
				if err != nil {
					return err
				}
				if violations, err = verifySnapshots(cmd.Context(), pool, violations); err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), map[string]any{"violations": orEmpty(violations)})
				} else if len(violations) == 0 {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "no violations (%s)\n", time.Since(started).Round(time.Millisecond))
				} else {
					var rows [][]string
					for _, v := range violations {
						rows = append(rows, []string{v.Invariant, v.Subscription, fmt.Sprint(v.Seq), v.Detail})
					}
					err = table(cmd.OutOrStdout(), []string{"INVARIANT", "SUBSCRIPTION", "SEQ", "DETAIL"}, rows)
				}
				if len(violations) > 0 {
					err = errors.Join(err, errors.New(many(len(violations), "violation", "violations")))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
