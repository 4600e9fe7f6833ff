package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
)

func newDeliveries(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deliveries", Short: "List, show, settle and retry deliveries",
		Long: `Deliveries are calls of providers that are owed to people: e-mails, webhooks and the like. One whose outcome is
unknown is in doubt; what the provider cannot settle itself waits for you.`,
		Example: "  deed deliveries doubt\n  deed deliveries settle ID --sent MESSAGE_ID --reason \"seen in the provider's log\"",
	}
	requests, cancel := newDeadRequests(a), newDeadCancel(a) // the same ones: a name is one request's
	requests.Example = "  deed deliveries requests --json"
	cancel.Example = "  deed deliveries cancel inc-211 --reason 'the provider is down again'"
	cmd.AddCommand(newDeliveriesList(a), newDeliveriesShow(a), newDeliveriesDoubt(a), newDeliveriesSettle(a), newDeliveriesRetry(a), requests, cancel)
	return cmd
}

func newDeliveriesList(a *app) *cobra.Command {
	var f delivery.Filter
	var owner tenantFlag
	var asJSON bool
	var status string
	cmd := &cobra.Command{
		Use: "list", Short: "List deliveries, newest first", Args: cobra.NoArgs,
		Long:    "List deliveries, newest first. Their contents are shown by deed deliveries show ID --payload.",
		Example: "  deed deliveries list --status dead --provider mail",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			f.Status = delivery.Status(status)
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.listDeliveries(cmd, f, asJSON)
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "only these: queued, sending, sent, called, posted, failed, dead or skipped")
	cmd.Flags().StringVar(&f.Provider, "provider", "", "only this provider's")
	cmd.Flags().StringVar(&f.Recipient, "to", "", "only this recipient's")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func newDeliveriesDoubt(a *app) *cobra.Command {
	f := delivery.Filter{InDoubt: true}
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doubt", Short: "List deliveries whose outcome is unknown", Args: cobra.NoArgs,
		Long: `List the deliveries that may or may not have been made, with all that is known. Those that are held wait for you:
look at the provider's own log, then say what you know with deed deliveries settle. The others are being reconciled.`,
		Example: "  deed deliveries doubt --json",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			return a.listDeliveries(cmd, f, asJSON)
		},
	}
	cmd.Flags().StringVar(&f.Provider, "provider", "", "only this provider's")
	pageFlags(cmd, &f.Cursor, &f.Limit, 1000)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func (a *app) listDeliveries(cmd *cobra.Command, f delivery.Filter, asJSON bool) error {
	return a.withLedger(cmd.Context(), func(l *delivery.Ledger, pool *pgxpool.Pool) error {
		page, err := l.List(cmd.Context(), f)
		if err == nil && len(page.Items) == 0 {
			err = cmp.Or(knownProvider(cmd.Context(), l, f.Provider), knownTenant(cmd.Context(), pool, f.Tenant))
		}
		if err != nil {
			return err
		}
		header := []string{"ID", "STATUS", "CHANNEL", "PROVIDER", "TO", "ATTEMPTS", "RESERVED"}
		if f.InDoubt {
			header = append(slices.Delete(header, 1, 2), "CALLED", "HELD", "REPEATED", "REASON")
		} else {
			header = append(header, "MESSAGE ID", "REASON")
		}
		err = printPage(cmd, asJSON, "deliveries", page, header, func(e delivery.Entry) []string {
			row := []string{e.ID, string(e.Status), string(e.Channel), e.Provider, e.Recipient, fmt.Sprint(e.Attempts), when(e.CreatedAt)}
			if f.InDoubt { // which is what its status would say
				return append(slices.Delete(row, 1, 2), instant(e.CalledAt), instant(e.HeldAt), instant(repeatedUntil(e)), e.DoubtReason)
			}
			return append(row, e.ProviderMessageID, e.SkipReason+e.LastError)
		})
		if err == nil && f.Recipient != "" && len(page.Items) == 0 && page.LookedTo == nil && f.Cursor == "" && !asJSON {
			fmt.Fprintln(cmd.ErrOrStderr(), "note: no delivery of this list goes there; of those who were erased the address is gone")
		}
		return err
	})
}

func instant(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return when(*t)
}

func newDeliveriesShow(a *app) *cobra.Command {
	var payload, asJSON bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a delivery and what has happened to it", Args: cobra.ExactArgs(1),
		Long: `Show a delivery, every change of it with who made it and why, what its provider has said of it since, and each call that did
not simply succeed, with what was learnt later. Its contents only with --payload: where the request is not kept, as of a
campaign's delivery that was accepted, it is made again, by the provider and the public.link_secret of deed.yaml, and
compared with what was sent.`,
		Example: "  deed deliveries show 01a1fe76-14ee-7f1b-b119-532699ab7d4c --payload",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, pool *pgxpool.Pool) error {
				e, events, err := l.Show(cmd.Context(), args[0], payload)
				if err != nil {
					return err
				}
				var made *remade
				if payload && e.RunID != "" && e.Request == nil && e.RequestSHA256 != "" {
					made = a.remake(cmd.Context(), pool, e)
				}
				attempts, total, err := l.Attempts(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				feedback, err := l.Feedback(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if asJSON {
					shown := map[string]any{"delivery": e, "history": events, "feedback": feedback, "attempts": orEmpty(attempts), "attempts_total": total}
					if made != nil {
						shown["rendering"] = made
					}
					return printJSON(cmd.OutOrStdout(), shown)
				}
				if err := showDelivery(cmd.OutOrStdout(), e, made, feedback, events); err != nil {
					return err
				}
				return showAttempts(cmd.OutOrStdout(), attempts, total)
			})
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload and the stored request")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// repeatedUntil is until when its last call may be repeated under that call's key.
func repeatedUntil(e delivery.Entry) *time.Time {
	if e.Batch != nil {
		return e.Batch.Until
	}
	return e.RepeatSafeUntil
}

func showDelivery(w io.Writer, e delivery.Entry, made *remade, said delivery.Feedback, events []delivery.Event) error {
	line := func(name, value string) { detail(w, 16, name, value) }
	line("id", e.ID)
	line("status", string(e.Status))
	if e.Sandbox {
		line("sandbox", "its last call went there, and not to its recipient")
	}
	line("proved", proved(e))
	line("in doubt since", instant(e.DoubtSince))
	line("doubt", e.DoubtReason)
	line("held since", instant(e.HeldAt))
	line("repeated until", instant(repeatedUntil(e)))
	if b := e.Batch; b != nil {
		line("batch", fmt.Sprintf("%d of %d in %s", b.Place, b.Size, b.ID))
	}
	line("channel", string(e.Channel))
	line("provider", e.Provider)
	line("to", e.Recipient)
	line("contact", e.Contact)
	line("erased", instant(e.ErasedAt))
	line("purpose", e.Purpose)
	line("guarantee", string(e.Guarantee))
	line("attempts", fmt.Sprint(e.Attempts))
	line("due", instant(e.ProcessAfter))
	line("message id", e.ProviderMessageID)
	line("skipped", e.SkipReason)
	line("last error", e.LastError)
	line("delivered", instant(said.DeliveredAt))
	line("bounced", bounced(said))
	if said.BounceSince != nil && !said.BounceSince.Equal(*said.BouncedAt) {
		line("bounced first", instant(said.BouncedAt))
	}
	line("complained", instant(said.ComplainedAt))
	line("unsubscribed", instant(said.UnsubscribedAt))
	line("opened", instant(said.OpenedAt))
	line("clicked", instant(said.ClickedAt))
	line("answered", instant(said.AnsweredAt))
	if said.BouncedAt == nil {
		line("said of that", strings.TrimSpace(said.Code+" "+said.Reason))
	}
	line("correlation id", e.CorrelationID)
	line("tenant", e.Tenant)
	line("key", e.Key)
	line("request sha256", e.RequestSHA256)
	if e.Payload != nil {
		line("payload", string(e.Payload))
	}
	request := e.Request
	if made != nil {
		line("made again", made.says())
		request = made.Request
	}
	if request != nil {
		fmt.Fprintf(w, "request          %s\n", contentLine("text/plain", request))
	}
	rows := make([][]string, len(events))
	for i, v := range events {
		rows[i] = []string{when(v.At), v.Action, string(v.From), string(v.To), v.Actor, v.Reason}
	}
	fmt.Fprintln(w)
	return table(w, []string{"AT", "ACT", "FROM", "TO", "WHO", "WHY"}, rows)
}

// bounced says which bounce it was, since when, and what is said of it.
func bounced(said delivery.Feedback) string {
	switch {
	case said.BouncedAt == nil:
		return ""
	case said.BounceSince == nil: // from before that was kept
		return strings.TrimSpace(instant(said.BouncedAt) + " " + said.Code + " " + said.Reason)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s since %s: %s", said.Bounce, when(*said.BounceSince), strings.TrimSpace(said.Code+" "+said.Reason)), ": ")
}

// proved says that a delivery is known to have been accepted, whatever it ended
// as.
func proved(e delivery.Entry) string {
	if e.ProvedAt == nil {
		return ""
	}
	return "the provider said " + when(*e.ProvedAt) + " that it had accepted it; it is not retried"
}

// showAttempts prints the calls that did not simply succeed, if there are any.
func showAttempts(w io.Writer, list []delivery.Attempt, total int64) error {
	if len(list) == 0 {
		return nil
	}
	rows := make([][]string, len(list))
	for i, a := range list {
		number, outcome, took := fmt.Sprint(a.Number), a.Outcome, "-"
		if a.Number == 0 {
			number = "-"
		}
		if a.Late {
			outcome += " (late)"
		}
		if a.Sandbox {
			outcome += " (sandbox)"
		}
		if a.BeganAt != nil {
			took = time.Duration(a.TookSeconds * float64(time.Second)).Round(time.Millisecond).String()
		}
		rows[i] = []string{when(a.At), number, outcome, took, a.Worker, a.Code, a.ProviderKey, a.MessageID, a.Error}
	}
	fmt.Fprintln(w)
	if int64(len(list)) < total {
		fmt.Fprintf(w, "the last %d of %d attempts:\n\n", len(list), total)
	}
	return table(w, []string{"AT", "CALL", "OUTCOME", "TOOK", "WHO", "CODE", "KEY", "MESSAGE ID", "ERROR"}, rows)
}

func newDeliveriesSettle(a *app) *cobra.Command {
	var message string
	var who operator
	var sent, failed, again, asJSON bool
	cmd := &cobra.Command{
		Use: "settle ID (--sent MESSAGE_ID | --failed | --send-again) --reason TEXT", Short: "Say what became of a delivery in doubt", Args: cobra.ExactArgs(1),
		Long: `Settle a delivery in doubt by what you have found out: it was sent (with the provider's message id),
it was not and shall not be, or it is to be sent again, come what may. Who and why is recorded.`,
		Example: "  deed deliveries settle ID --failed --reason 'the provider has no trace of it'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if sent = cmd.Flags().Changed("sent"); sent && strings.TrimSpace(message) == "" {
				return usagef("--sent wants the provider's message id, by which it is found there, and in its log")
			}
			var decision delivery.Decision
			n := 0
			for d, chosen := range map[delivery.Decision]bool{delivery.WasSent: sent, delivery.HasFailed: failed, delivery.SendAgain: again} {
				if chosen {
					decision = d
					n++
				}
			}
			if n != 1 {
				return usagef("give one of --sent, --failed and --send-again")
			}
			if who.reason == "" {
				return usagef("why? Give --reason")
			}
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, _ *pgxpool.Pool) error {
				status, err := l.Settle(cmd.Context(), args[0], decision, message, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"id": args[0], "status": status})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", args[0], status)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&message, "sent", "", "it was sent, under this message id of the provider's")
	cmd.Flags().BoolVar(&failed, "failed", false, "it was not sent, and shall not be")
	cmd.Flags().BoolVar(&again, "send-again", false, "queue it again")
	who.add(cmd, "why (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
