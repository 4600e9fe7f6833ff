package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
)

func newDeliveriesRetry(a *app) *cobra.Command {
	var r delivery.Redrive
	var owner tenantFlag
	var statuses []string
	var who operator
	var all, dry, asJSON bool
	cmd := &cobra.Command{
		Use: "retry (ID… | --provider NAME …) --reason TEXT", Short: "Queue failed and dead deliveries again",
		Annotations: map[string]string{takesLong: ""},
		Long: `Queue failed and dead deliveries again, with their attempts at 0: those that are named, or those that the flags select,
dead ones unless --status says otherwise. Those of a run are refused, or left out: retry the run. Those of somebody who was
erased, and those that are known to have been accepted, stay as they are. With --dry-run nothing changes and the number is
printed.

By flags it works in short steps. Stopped or killed in the middle, it goes on where it was when the same command is
given again with the --request that it printed. deed deliveries requests lists requests, deed deliveries cancel ends one.`,
		Example: `  deed deliveries retry ID --reason 'the domain is verified now'
  deed deliveries retry --provider mail --error greylisted --since 24h --dry-run
  deed deliveries retry --provider mail --rate 20 --reason 'INC-211 is over'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Tenant, err = owner.id(); err != nil {
				return err
			}
			chosen := r.Provider != "" || len(statuses) > 0 || r.Error != "" || r.Since > 0 || owner.given() || all
			switch {
			case len(args) > 0 && (chosen || dry || r.Limit > 0 || r.Rate > 0 || r.Request != ""):
				return usagef("name deliveries, or select them by flags, not both")
			case len(args) == 0 && !chosen:
				return usagef("which deliveries? Give their ids, --provider or another flag that selects, or --all")
			case who.reason == "" && !dry:
				return usagef("why? Give --reason")
			case cmd.Flags().Changed("limit") && r.Limit < 1: // that of a script that has counted none is not all of them
				return usagef("--limit %d is below 1", r.Limit)
			case cmd.Flags().Changed("rate") && r.Rate < 1:
				return usagef("--rate %d is below 1", r.Rate)
			}
			for _, s := range statuses {
				r.Statuses = append(r.Statuses, delivery.Status(s))
			}
			r.Act = who.act(a)
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, pool *pgxpool.Pool) error {
				if len(args) > 0 {
					return retryNamed(cmd, l, args, r.Act, asJSON)
				}
				if err := cmp.Or(knownProvider(cmd.Context(), l, r.Provider), knownTenant(cmd.Context(), pool, r.Tenant)); err != nil {
					return err
				}
				return retrySelected(cmd, l, r, dry, asJSON)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Provider, "provider", "", "those of this provider")
	f.StringSliceVar(&statuses, "status", nil, "those that are failed, dead, or failed,dead (default: dead)")
	f.StringVar(&r.Error, "error", "", "those whose last error contains this text, in any case of letters")
	durationVar(cmd, &r.Since, "since", 0, "those that have ended so for at most this long, as 24h or 7d")
	owner.add(cmd, "those of this tenant, a UUID")
	f.BoolVar(&all, "all", false, "all dead deliveries")
	f.IntVar(&r.Limit, "limit", 0, "how many at the most (default: all)")
	f.IntVar(&r.Rate, "rate", 0, "how many a second at the most (default: no cap)")
	f.StringVar(&r.Request, "request", "", "the request's name, to go on with it (default: a new one)")
	f.BoolVar(&dry, "dry-run", false, "only count")
	who.add(cmd, "why (required, but for --dry-run)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func retryNamed(cmd *cobra.Command, l *delivery.Ledger, ids []string, act audit.Act, asJSON bool) error {
	n, err := l.Retry(cmd.Context(), ids, act)
	if err != nil {
		return err
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"retried": n})
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d of %s queued again\n", n, many(len(ids), "delivery", "deliveries"))
	}
	if err == nil && n < int64(len(ids)) {
		return &exitError{exitPartly, errors.New("the others are neither failed nor dead, are known to have been accepted, or are of somebody who was erased")}
	}
	return err
}

func retrySelected(cmd *cobra.Command, l *delivery.Ledger, r delivery.Redrive, dry, asJSON bool) error {
	if dry {
		n, more, err := l.CountRedrive(cmd.Context(), r)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), map[string]any{"retried": n, "dry_run": true, "more": more})
		}
		what := "%s would be queued again\n"
		if more {
			what = "%s or more would be queued again; not all that have ended so were looked at\n"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), what, many(n, "delivery", "deliveries"))
		return err
	}
	n, err := follow(cmd, &r.Request, &r.Progress, func() (int64, error) { return l.Redrive(cmd.Context(), r) })
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{"retried": n, "dry_run": false, "request": r.Request})
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s queued again\n", many(n, "delivery", "deliveries"))
	return err
}
