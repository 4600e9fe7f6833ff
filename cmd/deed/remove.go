package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/config"
)

func newSubscription(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "subscription", Short: "Remove subscriptions",
		Long: `Subscriptions are made by the first relay whose deed.yaml names them; deed topic list shows them, deed topic set changes
them, and here they are removed.`,
		Example: "  deed subscription remove orders/shop-hook\n  deed subscription removals",
	}
	cmd.AddCommand(newSubscriptionRemove(a), newRemovals(a))
	return cmd
}

func newSubscriptionRemove(a *app) *cobra.Command {
	var r remover
	cmd := &cobra.Command{
		Use: "remove TOPIC/NAME [--yes --reason TEXT]", Short: "Remove a subscription, and give up what is owed to it", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Remove a subscription, and give up what is owed to it: what waits, what is dead, what a stream has still to read. Without
--yes nothing is changed, and what would be given up is counted.

From the moment it is removed publishers give it nothing, relays stop working on it (the others of their subscriptions go
on), and it keeps no partition of the log. What waited for it is then taken away in short steps: stopped or killed in the
middle, relays go on with it, and so does the same command. What was delivered stays recorded until retention.

Take it out of deed.yaml first: a relay that starts with a file that names it makes it anew, as a new subscription that
begins then.`,
		Example: "  deed subscription remove orders/shop-hook\n  deed subscription remove orders/shop-hook --yes --reason 'the shop has closed'",
		RunE: func(cmd *cobra.Command, args []string) error {
			at := strings.LastIndexByte(args[0], '/')
			if at < 1 || at == len(args[0])-1 {
				return usagef("%q is not TOPIC/NAME, such as orders/shop-hook", args[0])
			}
			return r.run(a, cmd, args[0][:at], args[0][at+1:])
		},
	}
	r.add(cmd)
	return cmd
}

func newTopicRemove(a *app) *cobra.Command {
	var r remover
	cmd := &cobra.Command{
		Use: "remove TOPIC [--yes --reason TEXT]", Short: "Remove a topic with its subscriptions, and give up what is owed to them", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Remove a topic with all of its subscriptions, and give up what is owed to them, as deed subscription remove does; also
what waits since it had none. Without --yes nothing is changed, and what would be given up is counted.

Who publishes to it afterwards publishes to a topic that nobody has declared: the message waits for whoever comes, or is
refused if the installation is strict (deed settings). Take it out of deed.yaml first: a relay that starts with a file that
names it makes it anew, as a new topic to which nothing of this one comes.`,
		Example: "  deed topic remove orders\n  deed topic remove orders --yes --reason 'replaced by orders.v2'",
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(a, cmd, args[0], "") },
	}
	r.add(cmd)
	return cmd
}

// remover is what the two commands that remove share.
type remover struct {
	who         operator
	yes, asJSON bool
}

func (r *remover) add(cmd *cobra.Command) {
	r.who.add(cmd, "why (required with --yes)")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "really do it")
	cmd.Flags().BoolVar(&r.asJSON, "json", false, "print JSON")
}

// run removes a subscription, or, if that is empty, a topic.
func (r *remover) run(a *app, cmd *cobra.Command, topic, subscription string) error {
	if r.yes && strings.TrimSpace(r.who.reason) == "" {
		return usagef("why? Give --reason: nothing that is owed is given up silently")
	}
	named, err := a.namedInFile(topic, subscription)
	if err != nil {
		return err
	}
	return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
		if !r.yes {
			return r.count(cmd, c, topic, subscription, named)
		}
		told := time.Now()
		done, err := c.Remove(cmd.Context(), admin.Removal{
			Topic: topic, Subscription: subscription, Act: r.who.act(a),
			Progress: func(taken int64) {
				if time.Since(told) > 2*time.Second {
					told = time.Now()
					fmt.Fprintf(cmd.ErrOrStderr(), "%s given up so far\n", many(taken, "message", "messages"))
				}
			},
		})
		if err != nil {
			return err
		}
		r.warn(cmd, named)
		if r.asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]any{
				"topic": topic, "subscription": subscription, "dry_run": false, "taken": done.Taken, "waits": done.Waits,
			})
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is removed; given up, waiting or dead: %s\n", whatIs(topic, subscription), many(done.Taken, "message", "messages"))
		if done.Waits {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "transactions that were open may still publish to it: a relay takes that away when they have ended (deed subscription removals)")
		}
		return err
	})
}

func whatIs(topic, subscription string) string {
	if subscription == "" {
		return "topic " + topic
	}
	return topic + "/" + subscription
}

func (r *remover) count(cmd *cobra.Command, c *admin.Client, topic, subscription string, named bool) error {
	counts, err := c.CountRemoval(cmd.Context(), topic, subscription)
	if err != nil {
		return err
	}
	r.warn(cmd, named)
	if r.asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"topic": topic, "subscription": subscription, "dry_run": true, "counts": orEmpty(counts)})
	}
	rows := make([][]string, len(counts))
	for i, n := range counts {
		unread := fmt.Sprint(n.Unread)
		if n.AtLeast {
			unread += " or more"
		}
		name, workers := n.Subscription, strings.Join(n.Workers, ", ")
		if name == "" {
			name = "(none)"
		}
		if workers == "" {
			workers = "-"
		}
		rows[i] = []string{
			name, string(n.Mode), fmt.Sprint(n.Waiting), fmt.Sprint(n.Claimed), fmt.Sprint(n.Aside), fmt.Sprint(n.Dead),
			fmt.Sprint(n.BlockedKeys), unread, fmt.Sprint(n.Door), workers,
		}
	}
	if err := table(cmd.OutOrStdout(), []string{
		"SUBSCRIPTION", "MODE", "WAITING", "CLAIMED", "ASIDE", "DEAD", "BLOCKED KEYS", "UNREAD", "DOOR", "SEEN AT WORK",
	}, rows); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing was changed: %s would be removed, with that given up; give --yes and --reason\n", whatIs(topic, subscription))
	return err
}

// warn says where a relay would find the name that makes it anew.
func (r *remover) warn(cmd *cobra.Command, named bool) {
	if named {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: the configuration file here names it: a relay that starts with it makes it anew; take it out first")
	}
}

// namedInFile reports whether the configuration file makes the subscription or
// topic.
func (a *app) namedInFile(topic, subscription string) (bool, error) {
	file, err := a.config()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(file.Topics, func(t config.Topic) bool {
		return t.Name == topic && (subscription == "" || slices.Contains(t.Sinks, subscription))
	}), nil
}

func newRemovals(a *app) *cobra.Command {
	var cursor string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "removals", Short: "List what was removed, newest first", Args: cobra.NoArgs,
		Long: `List subscriptions and topics that were removed, newest first, and how far what waited for them is taken away, until
the log has nothing left of the time before. One that is going was cut off, and relays go on with it within a minute or
so; one that waits, waits for transactions that were open when it was removed (deed doctor names them).`,
		Example: "  deed subscription removals --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				list, err := c.Removals(cmd.Context(), cursor, limit)
				if err != nil {
					return err
				}
				header := []string{"REMOVED", "STATE", "GIVEN UP", "AT", "BY", "REASON"}
				return printPage(cmd, asJSON, "removals", list, header, func(r admin.RemovalStatus) []string {
					return []string{whatIs(r.Topic, r.Subscription), r.State, fmt.Sprint(r.Taken), when(r.RemovedAt), r.By, r.Reason}
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
