package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
)

// wonCampaign is what deed campaign winner prints.
type wonCampaign struct {
	Run     string `json:"run_id"`
	Winner  string `json:"winner"`
	Decided bool   `json:"decided"`
}

func newCampaignWinner(a *app) *cobra.Command {
	var who operator
	var asJSON bool
	var owner campaignOwner
	cmd := &cobra.Command{
		Use: "winner RUN VARIANT", Short: "Say which variant the rest of a run's members gets", Args: cobra.ExactArgs(2),
		Long: `Say which variant of its test the rest of a run's members gets, whatever the
test is decided by and however far it is. It is said once: the same again changes
nothing, and another one is refused. Of a run that has ended without a winner,
as one that was cancelled, it is what a retry brings to the rest.`,
		Example: "  deed campaign winner 01a1fe76-14ee-7f1b-b119-532699ab7d4c B --reason 'more orders'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return owner.with(cmd, a, args[0], func(pool *pgxpool.Pool) error {
				r, err := campaign.Find(cmd.Context(), pool, args[0])
				if err != nil {
					return err
				}
				decided, err := campaign.Winner(cmd.Context(), pool, campaign.Scope{Tenant: &r.Tenant}, r.ID, args[1], who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), wonCampaign{r.ID, args[1], decided})
				}
				did := "the winner is"
				if !decided {
					did = "the winner was already"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s %s\n", r.ID, did, args[1])
				return err
			})
		},
	}
	who.add(cmd, "why; it is in the audit log")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd)
	return cmd
}

// tested says on whom a run's variants are tested and how that is decided.
func tested(r campaign.Run) string {
	if r.Test == nil {
		return ""
	}
	text := fmt.Sprintf("on %s of the members, by %s", strconv.FormatFloat(100*r.Test.Share, 'f', -1, 64)+"%", r.Test.By)
	if r.Test.Wait > 0 {
		text += fmt.Sprintf(" after %s", time.Duration(r.Test.Wait*float64(time.Second)))
	}
	return text
}

// winner says what the rest gets.
func winner(r campaign.Run) string {
	switch {
	case r.Test == nil:
		return ""
	case r.Test.Winner == "":
		return "not decided"
	}
	return r.Test.Winner + ", since " + instant(r.Test.WinnerAt)
}

// variants are the names of a run's.
func variants(r campaign.Run) string { return strings.Join(r.Variants, ", ") }

// printVariants tells what became of each variant.
func printVariants(w io.Writer, list []campaign.VariantOf) error {
	if len(list) == 0 {
		return nil
	}
	var rows [][]string
	for _, v := range list {
		of := func(n int64) string {
			if v.Sent == 0 {
				return "-"
			}
			return fmt.Sprintf("%d %.2f%%", n, 100*float64(n)/float64(v.Sent))
		}
		rows = append(rows, []string{v.Name, v.Part, fmt.Sprint(v.Members), fmt.Sprint(v.Sent), of(v.Opened), of(v.Clicked), of(v.Complained), of(v.Unsubscribed)})
	}
	fmt.Fprintln(w)
	return table(w, []string{"VARIANT", "PART", "MEMBERS", "SENT", "OPENED", "CLICKED", "COMPLAINED", "UNSUBSCRIBED"}, rows)
}
