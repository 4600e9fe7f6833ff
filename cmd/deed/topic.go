package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/duration"
	"github.com/deedhq/deed/internal/limits"
)

func newTopic(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topic", Short: "List topics, change their settings online, and remove them",
		Long: `Topics and their subscriptions are made by the first relay whose deed.yaml names them. A topic is a queue or a stream.
Each message of a queue is claimed and finished by itself; those of a stream are read from the log, in the order of each
key: see docs/streams.md.`,
		Example: "  deed topic list\n  deed topic set orders --max-attempts 8\n  deed topic set events --mode stream --lanes 8\n  deed topic remove orders",
	}
	cmd.AddCommand(newTopicList(a), newTopicSet(a), newTopicRemove(a))
	return cmd
}

func newTopicList(a *app) *cobra.Command {
	var asJSON bool
	var cursor string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List declared topics and their subscriptions", Args: cobra.NoArgs,
		Long: `List what is stored of every declared topic: its mode, for a stream its lanes and the order that it keeps, how long
finished messages are kept; and its subscriptions with their settings.`,
		Example: "  deed topic list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				topics, err := c.Topics(cmd.Context(), cursor, limit)
				if err != nil {
					return err
				}
				if asJSON {
					return printPageJSON(cmd, "topics", topics.Items, topics.Next, nil)
				}
				if err := printTopics(cmd, topics.Items, false); err != nil {
					return err
				}
				tellMore(cmd, topics.Next, nil)
				return nil
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 1000)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printTopics(cmd *cobra.Command, topics []admin.DeclaredTopic, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"topics": orEmpty(topics)})
	}
	var rows [][]string
	for _, t := range topics {
		rows = append(rows, topicRows(t)...)
	}
	return printRows(cmd, []string{
		"TOPIC", "MODE", "LANES", "ORDERING", "RETENTION", "SUBSCRIPTION", "MAX ATTEMPTS", "LEASE", "BACKOFF", "FROM", "BACKFILLED", "DOOR", "SINCE",
	}, rows)
}

// topicRows are a row for each subscription, or one for a topic that has none.
func topicRows(t admin.DeclaredTopic) (rows [][]string) {
	lanes := "-"
	if t.Mode == deed.ModeStream {
		lanes = fmt.Sprint(t.Lanes)
	}
	topic := []string{t.Topic, string(t.Mode), lanes, string(t.Ordering), duration.Format(time.Duration(t.Retention))}
	if len(t.Subscriptions) == 0 {
		return [][]string{append(topic, "-", "-", "-", "-", "-", "-", "-", when(t.CreatedAt))}
	}
	for _, s := range t.Subscriptions {
		attempts := fmt.Sprint(s.MaxAttempts)
		if s.MaxAttempts == 0 {
			attempts = "unlimited"
		}
		rows = append(rows, append(topic[:len(topic):len(topic)], s.Subscription, attempts,
			duration.Format(time.Duration(s.Lease)), duration.Format(time.Duration(s.Backoff)), string(s.From), fmt.Sprint(s.Backfilled), fmt.Sprint(s.Door), when(s.CreatedAt)))
	}
	return rows
}

func newTopicSet(a *app) *cobra.Command {
	var name string
	var topic admin.TopicChange
	var sub admin.SubscriptionChange
	var door, asJSON bool
	cmd := &cobra.Command{
		Use: "set TOPIC", Short: "Change what is stored of a topic and its subscriptions", Args: cobra.ExactArgs(1),
		Long: `Change the stored settings of a topic, and of all of its subscriptions or the one that --subscription names, while
relays run. Prints what is stored afterwards. Change deed.yaml too: a relay whose file says something else refuses to start.
What is the topic's is changed first, then --door, then the rest: where one fails after another was made, the error names
what stays, and the exit status is 3.

  --mode stream    what was published before is delivered as from a queue; what comes after is read from the log, in order
  --mode queue     takes effect in seconds, when all lanes have read up to the same point; order is no longer kept
  --lanes          takes effect in seconds, when all lanes have read up to the same point; nothing is lost, doubled or
                   reordered
  --ordering       takes effect as relays take lanes anew, within a second or so
  --retention      takes effect at once: how long messages are kept that every subscription has finished
  --max-attempts, --backoff
                   take effect at once
  --lease          takes effect for relays that start from now on
  --door           lets the SQL faces m10 and app (docs/protocol.md) claim the subscription that is named, beside whoever
                   else drains it; a queue has at most one such. --door=false ends that`,
		Example: `  deed topic set orders --mode stream --lanes 8
  deed topic set orders --retention 30d
  deed topic set orders --subscription shop-hook --max-attempts 8 --lease 1m --backoff 5s
  deed topic set orders --subscription handler --door`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ofTopic, err := checkTopicSet(cmd, topic, sub)
			if err != nil {
				return err
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				var done []string
				for _, change := range []struct {
					flags []string
					asked bool
					set   func(context.Context) error
				}{
					{ofTopic, len(ofTopic) > 0, func(ctx context.Context) error { return c.SetTopic(ctx, args[0], topic) }},
					{[]string{"--door"}, cmd.Flags().Changed("door"), func(ctx context.Context) error { return c.SetDoor(ctx, args[0], name, door) }},
					{nil, sub != (admin.SubscriptionChange{}), func(ctx context.Context) error { return c.SetSubscription(ctx, args[0], name, sub) }},
				} {
					if !change.asked {
						continue
					}
					if err := change.set(cmd.Context()); err != nil && len(done) > 0 { // each is a transaction of its own
						return &exitError{exitPartly, fmt.Errorf("%w; what was set before stays: %s", err, strings.Join(done, ", "))}
					} else if err != nil {
						return err
					}
					done = append(done, change.flags...)
				}
				declared, err := c.Topic(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if topic.Mode == deed.ModeQueue && declared.Mode == deed.ModeStream {
					fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is still a stream until relays have brought its lanes to one point; then deed topic list shows a queue\n", args[0])
				}
				return printTopics(cmd, []admin.DeclaredTopic{declared}, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar((*string)(&topic.Mode), "mode", "", "queue or stream")
	f.IntVar(&topic.Lanes, "lanes", 0, "into how many parts a stream is divided, each read by one process at a time; 1 to 64")
	f.StringVar((*string)(&topic.Ordering), "ordering", "", "of a stream: key (each key's messages in order) or none")
	durationVar(cmd, &topic.Retention, "retention", 0, "how long finished messages are kept, such as 7d; at least 1m")
	f.StringVar(&name, "subscription", "", "only this subscription (default: all of the topic's)")
	f.IntVar(&sub.MaxAttempts, "max-attempts", 0, "failed attempts before a message is dead")
	durationVar(cmd, &sub.Lease, "lease", 0, "how long a claim, or a lane, is held unless renewed")
	f.BoolVar(&door, "door", false, "let the published SQL faces claim the subscription")
	durationVar(cmd, &sub.Backoff, "backoff", 0, "what the pause after a failure doubles from, such as 1s")
	f.BoolVar(&asJSON, "json", false, "print what is stored now as JSON")
	return cmd
}

// checkTopicSet checks the flags, as far as they can be wrong by themselves, and returns those that change the topic itself.
func checkTopicSet(cmd *cobra.Command, topic admin.TopicChange, sub admin.SubscriptionChange) (ofTopic []string, err error) {
	ofSubscription := false
	for _, f := range []struct {
		name       string
		valid      bool
		must       string
		isOfATopic bool
	}{
		{"mode", topic.Mode == deed.ModeQueue || topic.Mode == deed.ModeStream, "be queue or stream", true},
		{"lanes", limits.Lanes.Check("", topic.Lanes) == nil, "be from 1 to 64", true},
		{"ordering", topic.Ordering == deed.OrderKey || topic.Ordering == deed.OrderNone, "be key or none", true},
		{"retention", topic.Retention >= time.Minute, "be at least 1m", true},
		{"max-attempts", limits.Attempts.Check("", sub.MaxAttempts) == nil, "be from 1 to 1000", false},
		{"lease", limits.Lease.Check("", sub.Lease) == nil, "be from 1s to 24h", false},
		{"backoff", limits.Backoff.Check("", sub.Backoff) == nil, "be from 1ms to 1h", false},
		{"door", cmd.Flags().Changed("subscription"), "come with --subscription", false},
	} {
		if !cmd.Flags().Changed(f.name) {
			continue
		}
		if !f.valid {
			return nil, usagef("--%s must %s", f.name, f.must)
		}
		if f.isOfATopic {
			ofTopic = append(ofTopic, "--"+f.name)
		}
		ofSubscription = ofSubscription || !f.isOfATopic
	}
	switch {
	case ofTopic == nil && !ofSubscription:
		return nil, usagef("nothing to change: give --mode, --lanes, --ordering, --retention, --max-attempts, --lease, --backoff or --door")
	case cmd.Flags().Changed("subscription") && !ofSubscription:
		return nil, usagef("--subscription goes with --max-attempts, --lease, --backoff and --door; the rest is the whole topic's")
	}
	return ofTopic, nil
}
