package main

import (
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
)

// listedProvider is one of deed providers list --json.
type listedProvider struct {
	delivery.ProviderState
	Hour  delivery.Taken `json:"last_hour"`
	Day   delivery.Taken `json:"last_day"`
	Whole bool           `json:"whole"` // false: there was more than was looked at
}

func listed(states []delivery.ProviderState, rates []delivery.Rates) []listedProvider {
	list := make([]listedProvider, len(states))
	for i, s := range states {
		list[i] = listedProvider{ProviderState: s, Whole: true}
		for _, r := range rates {
			if r.Provider == s.Name {
				list[i].Hour, list[i].Day, list[i].Whole = r.Hour, r.Day, r.Whole
			}
		}
	}
	return list
}

func newProvidersShow(a *app) *cobra.Command {
	var asJSON bool
	var domains int
	cmd := &cobra.Command{
		Use: "show NAME", Short: "What a provider took lately, and what became of it, by recipients' domains", Args: cobra.ExactArgs(1),
		Long: `Show what a provider accepted in the last hour and day, and how much of that it has said by now to be delivered, bounced
or complained about, for each of the domains to which most went. Shares are of what was accepted. What it refused at once
is in none, nor what went to the sandbox.`,
		Example: "  deed providers show mail\n  deed providers show mail --domains 100 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if domains < 1 || domains > 1000 {
				return usagef("--domains is between 1 and 1000")
			}
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, _ *pgxpool.Pool) error {
				rates, err := l.Rates(cmd.Context(), args[0], domains, delivery.RatesWell)
				if err == nil && len(rates) == 0 {
					err = knownProvider(cmd.Context(), l, args[0])
				}
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"provider": args[0], "rates": orEmpty(rates)})
				}
				return showRates(cmd.OutOrStdout(), "DOMAIN", rates, delivery.RatesWell, func(r delivery.Rates) string {
					if r.Domain == "" {
						return "(others)"
					}
					return r.Domain
				})
			})
		},
	}
	cmd.Flags().IntVar(&domains, "domains", 20, "how many domains are shown; the others are one row")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showRates prints what was taken in the last hour and day, and the shares of what was said
// of the day's, of which each were read of each hour.
func showRates(w io.Writer, first string, rates []delivery.Rates, each int, name func(delivery.Rates) string) error {
	if len(rates) == 0 {
		_, err := fmt.Fprintln(w, "nothing was accepted in the last day")
		return err
	}
	var rows [][]string
	for _, r := range rates {
		for _, part := range []struct {
			what string
			t    delivery.Taken
		}{{"hour", r.Hour}, {"day", r.Day}} {
			t := part.t
			rows = append(rows, []string{name(r), part.what, counted(t.Accepted, !r.Whole), share(t.Delivered, t.Accepted), share(t.Bounced, t.Accepted), share(t.Complained, t.Accepted)})
		}
	}
	if err := table(w, []string{first, "LAST", "ACCEPTED", "DELIVERED", "BOUNCED", "COMPLAINED"}, rows); err != nil || rates[0].Whole {
		return err
	}
	_, err := fmt.Fprintf(w, "\nof each hour the newest %d that ended, of all providers, were looked at: there were more\n", each)
	return err
}

// share is a number, and what part of all it is.
func share(n, all int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%.3g %%)", n, 100*float64(n)/float64(all))
}
