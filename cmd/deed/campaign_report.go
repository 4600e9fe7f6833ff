package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
)

func newCampaignReport(a *app) *cobra.Command {
	var asJSON bool
	var page string
	var owner campaignOwner
	var mail mailedReport
	cmd := &cobra.Command{
		Use: "report RUN", Short: "Report what became of a run's members", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Report what became of a run's members: how many it went out to, what providers have said of those since, as parts of
them, who was skipped and why, and what failed with which code. With --html it is a page in one file: tables and charts,
no script, and nothing that is loaded. With --send-to it is an e-mail: one delivery of
the run's provider, or of --provider, with the page beside it. The same request
again is the same delivery; without --request-id it is made of the run, its
status and the address.`,
		Example: "  deed campaign report 01a1fe76-14ee-7f1b-b119-532699ab7d4c --html spring.html\n  deed campaign report 01a1fe76-14ee-7f1b-b119-532699ab7d4c --send-to boss@example.com",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := mail.check(cmd); err != nil {
				return err
			}
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				r, err := campaign.Summarise(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				if page != "" {
					return writeReport(page, r)
				}
				if mail.to != "" {
					return mail.send(cmd, a, r)
				}
				if asJSON {
					r.Skipped, r.Failed = orEmpty(r.Skipped), orEmpty(r.Failed)
					return printJSON(cmd.OutOrStdout(), r)
				}
				return printReport(cmd.OutOrStdout(), r)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&page, "html", "", "write it to this file, as a page")
	mail.add(cmd)
	cmd.MarkFlagsMutuallyExclusive("json", "html", "send-to")
	owner.add(cmd)
	return cmd
}

// writeReport writes a report as a page, in place of one that is there.
func writeReport(name string, r campaign.Report) error {
	f, err := os.Create(name)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return errors.Join(r.HTML(f, time.Now()), f.Close())
}

func printReport(w io.Writer, r campaign.Report) error {
	if err := showCampaign(w, campaign.Shown{Run: r.Run, Progress: r.Progress}); err != nil {
		return err
	}
	if r.Rates != nil {
		var rows [][]string
		for _, said := range []struct {
			what string
			n    int64
			rate float64
		}{
			{"delivered", r.Heard.Delivered, r.Rates.Delivered},
			{"bounced", r.Heard.Bounced, r.Rates.Bounced},
			{"complained", r.Heard.Complained, r.Rates.Complained},
			{"unsubscribed", r.Heard.Unsubscribed, r.Rates.Unsubscribed},
			{"opened", r.Heard.Opened, r.Rates.Opened},
			{"clicked", r.Heard.Clicked, r.Rates.Clicked},
		} {
			rows = append(rows, []string{said.what, fmt.Sprint(said.n), fmt.Sprintf("%.2f%%", 100*said.rate)})
		}
		if r.Heard.SoftBounced > 0 {
			rows = append(rows, []string{"bounced for now", fmt.Sprint(r.Heard.SoftBounced), "-"})
		}
		fmt.Fprintln(w)
		if err := table(w, []string{"SAID OF SENT", "COUNT", "RATE"}, rows); err != nil {
			return err
		}
	}
	if err := printVariants(w, r.Results); err != nil {
		return err
	}
	var rows [][]string
	for _, s := range r.Skipped {
		rows = append(rows, []string{s.Status, fmt.Sprint(s.Count), clip(s.Reason, 100)})
	}
	for _, f := range r.Failed {
		why := "no request could be made"
		if f.Outcome != "" {
			why = f.Outcome
		}
		if f.Code != "" {
			why += ", code " + f.Code
		}
		rows = append(rows, []string{f.Status, fmt.Sprint(f.Count), clip(why, 100)})
	}
	if r.Heard.Proved > 0 {
		rows = append(rows, []string{"failed", fmt.Sprint(r.Heard.Proved), "though it had been accepted, the provider said later"})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return table(w, []string{"STATUS", "COUNT", "WHY"}, rows)
}

func newCampaignExport(a *app) *cobra.Command {
	var format string
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "export RUN", Short: "Write what became of each member of a run, a line each", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Write what became of each member of a run's audience, one line each, in their order: CSV whose first line has the names of
the columns, or NDJSON. It is read in pages, and no snapshot of the database is held meanwhile.`,
		Example: "  deed campaign export 01a1fe76-14ee-7f1b-b119-532699ab7d4c > spring.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "csv" && format != "ndjson" {
				return usagef("--format %q is neither csv nor ndjson", format)
			}
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				return exportCampaign(cmd, pool, args[0], format)
			})
		},
	}
	cmd.Flags().StringVar(&format, "format", "csv", "csv or ndjson")
	owner.add(cmd)
	return cmd
}

// reachedColumns are those of deed campaign export, named as in its NDJSON.
var reachedColumns = []string{
	"n", "contact_id", "address", "delivery_id", "status", "reason", "provider_message_id", "sent_at", "delivered_at", "bounced_at", "bounce", "complained_at", "unsubscribed_at",
	"opened_at", "clicked_at", "variant",
}

func reachedRow(r campaign.Reached) []string {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	return []string{
		strconv.FormatInt(r.N, 10), r.Contact, r.Address, r.Delivery, r.Status, r.Reason, r.ProviderID, at(r.SentAt), at(r.DeliveredAt), at(r.BouncedAt), r.Bounce,
		at(r.ComplainedAt), at(r.UnsubscribedAt), at(r.OpenedAt), at(r.ClickedAt), r.Variant,
	}
}

func exportCampaign(cmd *cobra.Command, pool *pgxpool.Pool, run, format string) error {
	const at = 1000
	w := forFile(cmd.OutOrStdout())
	lines := csv.NewWriter(w)
	for after := int64(0); ; {
		list, err := campaign.Members(cmd.Context(), pool, run, after, at)
		if err != nil {
			return err
		}
		if format == "csv" && after == 0 {
			_ = lines.Write(reachedColumns) // Flush tells
		}
		for _, r := range list {
			if after = r.N; format == "csv" {
				_ = lines.Write(reachedRow(r))
			} else if err := printJSON(w, r); err != nil {
				return err
			}
		}
		if lines.Flush(); lines.Error() != nil {
			return lines.Error()
		}
		if len(list) < at {
			return nil
		}
	}
}

func newCampaignVerify(a *app) *cobra.Command {
	var limit int
	var asJSON bool
	var proof proofFlags
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "verify RUN", Short: "Prove that a run has reached everybody in its audience once", Args: cobra.MaximumNArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Hold a run against its audience, which never changes: each member has exactly one delivery, sent or with the reason why
not, each delivery is of a member, keys and what is said are what they were made of, and the provider took none twice.
Exits 0 for a run that has ended and holds all of this, 1 where something is wrong, and 3 while the run goes on and
nothing is wrong so far.

With --signed the proof is written to a file: the run, a line for each member,
and a signature with audit.key of deed.yaml. With --check such a file is held
against a public key, without a database.`,
		Example: "  deed campaign verify 01a1fe76-14ee-7f1b-b119-532699ab7d4c --signed spring.proof\n  deed campaign verify --check spring.proof --key audit.pub.pem",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case proof.check != "" && len(args) == 0:
				return proof.run(cmd, asJSON)
			case proof.check != "" || len(args) == 0:
				return usagef("give a RUN, or --check FILE")
			case limit < 1:
				return usagef("--limit %d is below 1", limit)
			}
			key, err := proof.signer(a)
			if err != nil {
				return err
			}
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				p, err := campaign.Verify(cmd.Context(), pool, args[0], limit)
				if err != nil {
					return err
				}
				p.Findings = orEmpty(p.Findings)
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), p)
				} else {
					err = printProof(cmd, p)
				}
				if err == nil && p.Launched() && key != nil {
					err = proof.sign(cmd, pool, p.ID, key)
				}
				return errors.Join(err, judgeProof(p))
			})
		},
	}
	proof.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "how many findings of a kind are listed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}

func printProof(cmd *cobra.Command, p campaign.Proof) error {
	if p.SealedAt != nil {
		if err := printSealed(cmd.OutOrStdout(), p); err != nil || p.Launched() {
			return err
		}
	}
	if p.Launched() {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: launched: each of %s has one delivery, which has ended: %d sent, %d skipped, %d missed, %d failed, %d dead\n", p.ID,
			many(p.Members, "member", "members"), p.Progress.Sent, p.Progress.Skipped, p.Progress.Missed, p.Progress.Failed, p.Progress.Dead)
		return err
	}
	if len(p.Findings) == 0 {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s: nothing is wrong so far\n", p.ID, statusOfCampaign(p.Run))
		return err
	}
	rows := make([][]string, len(p.Findings))
	for i, f := range p.Findings {
		rows[i] = []string{f.Kind, fmt.Sprint(f.N), f.Delivery, f.Detail}
	}
	return table(cmd.OutOrStdout(), []string{"FOUND", "MEMBER", "DELIVERY", "DETAIL"}, rows)
}

// printSealed says what is known of a run whose deliveries are purged.
func printSealed(w io.Writer, p campaign.Proof) error {
	gone := "purged since " + instant(p.SealedAt)
	if p.PurgedAt != nil {
		gone = "purged on " + instant(p.PurgedAt)
	}
	said := "something was found"
	if p.Launched() {
		said = "launched"
	}
	_, err := fmt.Fprintf(w, "%s: %s, %s. Sealed of %s: %d sent, %d skipped, %d missed, %d failed, %d dead; members' lines SHA-256 %x\n", p.ID, said, gone,
		many(p.Members, "member", "members"), p.Progress.Sent, p.Progress.Skipped, p.Progress.Missed, p.Progress.Failed, p.Progress.Dead, p.MembersSHA256)
	return err
}

func judgeProof(p campaign.Proof) error {
	if p.Launched() {
		return nil
	}
	if len(p.Findings) == 0 {
		return &exitError{exitPartly, errors.New("the run has not ended")}
	}
	text := ""
	for _, kind := range slices.Sorted(maps.Keys(p.Found)) {
		text += fmt.Sprintf(", %d %s", p.Found[kind], kind)
	}
	return fmt.Errorf("found %s", text[2:])
}

func newCampaignWatch(a *app) *cobra.Command {
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "watch RUN", Short: "Watch a run until it ends", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Watch a run until it ends: how many of its members it is done with, how fast, when it may end, and what is in doubt and
waits for a person. Exits 0 for a run that is completed, 3 for one that is partial, 1 for one that has failed.`,
		Example: "  deed campaign watch 01a1fe76-14ee-7f1b-b119-532699ab7d4c",
		RunE: func(cmd *cobra.Command, args []string) error {
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				s, err := watchCampaign(cmd, pool, args[0])
				if err != nil {
					return err
				}
				if asJSON {
					s.Reasons = orEmpty(s.Reasons)
					err = printJSON(cmd.OutOrStdout(), s)
				} else {
					err = showCampaign(cmd.OutOrStdout(), s)
				}
				return errors.Join(err, judgeCampaign(s.Run))
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON of how it ended")
	owner.add(cmd)
	return cmd
}
