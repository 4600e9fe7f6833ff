package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

type tenantRemove struct {
	who             operator
	yes, wait, json bool
}

func newTenantRemove(a *app) *cobra.Command {
	var c tenantRemove
	cmd := &cobra.Command{
		Use: "remove ID [--yes --reason TEXT]", Short: "Remove a tenant for ever, with all of its rows", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Remove a tenant for ever: its messages, deliveries, suppressions, idempotency keys, contacts and all that is known of them.
Without --yes nothing is changed, and its rows are counted, table by table.

From the moment it is asked for nothing is published, reserved or stored for it any more, nothing of it is claimed, read
or begun to be called, and a login that was bound to it sees nothing of it; one that was bound to no other sees nothing at
all until it is bound anew or unbound. Relays then take the rows away in short steps, and go on if they are killed: deed
tenant removals says how far they are, and --wait waits for them. The id is never used again.

The rows of the audit log stay, without the reasons and errors that people and providers wrote in them; so does who removed
the tenant, when, why, and how many rows went. The reason is kept: name nobody in it.`,
		Example: "  deed tenant remove 6f1c2d3e-0000-4000-8000-000000000001\n" +
			"  deed tenant remove 6f1c2d3e-0000-4000-8000-000000000001 --yes --reason 'contract 17 has ended' --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := tenant.Parse(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if c.yes && strings.TrimSpace(c.who.reason) == "" {
				return usagef("why? Give --reason; it is kept, so name nobody in it")
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				if !c.yes {
					err = c.count(cmd, pool, id)
				} else {
					err = c.ask(cmd, a, pool, id)
				}
				if errors.Is(err, tenant.ErrCannotRemove) {
					return &exitError{exitUsage, err}
				}
				return err
			})
		},
	}
	c.who.add(cmd, "why (required with --yes)")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "really do it")
	cmd.Flags().BoolVar(&c.wait, "wait", false, "with --yes: wait until relays have removed it")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}

// count says what would be removed.
func (c *tenantRemove) count(cmd *cobra.Command, pool *pgxpool.Pool, id tenant.ID) error {
	counts, err := tenant.CountRows(cmd.Context(), pool, id)
	if err != nil {
		return err
	}
	r, asked, err := tenant.FindRemoval(cmd.Context(), pool, id)
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{"tenant": id, "dry_run": true, "asked": asked, "counts": counts})
	}
	var rows [][]string
	var total int64
	for _, n := range counts {
		switch {
		case n.Rows == 0:
			continue
		case n.Stays:
			n.Table += " (stays, without its texts)"
		default:
			total += n.Rows
		}
		rows = append(rows, []string{n.Table, fmt.Sprint(n.Rows)})
	}
	if err := table(cmd.OutOrStdout(), []string{"TABLE", "ROWS"}, rows); err != nil {
		return err
	}
	if asked {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "its removal was asked for %s by %s, and is %s; left of %s: %s\n",
			when(r.AskedAt), r.By, stateWord(r.State), r.Name, many(total, "row", "rows"))
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "nothing was changed: the tenant would be removed for ever, with %s; give --yes and --reason\n", many(total, "row", "rows"))
	return err
}

// stateWord is a removal's state in a sentence.
func stateWord(state string) string {
	return map[string]string{"going": "under way", "waits": "waiting for transactions that may still write for it, or for what they have just written", "done": "over"}[state]
}

// ask asks for the removal, and waits for it if it is to.
func (c *tenantRemove) ask(cmd *cobra.Command, a *app, pool *pgxpool.Pool, id tenant.ID) error {
	first, err := tenant.Remove(cmd.Context(), pool, id, c.who.act(a))
	if err != nil {
		return err
	}
	r, _, err := tenant.FindRemoval(cmd.Context(), pool, id)
	if err == nil && c.wait {
		r, err = c.follow(cmd.Context(), cmd, pool, r)
	}
	if err != nil {
		return err
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{"tenant": id, "dry_run": false, "asked_before": !first, "removal": r})
	}
	if r.State == "done" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is removed, with %s\n", r.Name, many(r.Rows(), "row", "rows"))
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is removed: nothing is done for it any more; relays take its rows away (deed tenant removals)\n", r.Name)
	return err
}

// follow waits until the removal is over, and says now and then how far it is.
func (c *tenantRemove) follow(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, r tenant.Removal) (tenant.Removal, error) {
	told := time.Now()
	for r.State != "done" {
		if !work.Sleep(ctx, 200*time.Millisecond) {
			return r, fmt.Errorf("it is asked for, and %s: %w", stateWord(r.State), context.Cause(ctx))
		}
		var err error
		if r, _, err = tenant.FindRemoval(ctx, pool, r.Tenant); err != nil {
			return r, err
		}
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s removed so far; it is %s\n", many(r.Rows(), "row", "rows"), stateWord(r.State))
		}
	}
	return r, nil
}

func newTenantRemovals(a *app) *cobra.Command {
	var cursor string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "removals", Short: "List the tenants that were removed, newest first, and how far that is", Args: cobra.NoArgs,
		Long: `List the tenants that were removed, newest first, and how many of their rows are gone by now. One that waits, waits for
transactions that were open when it was asked for (deed doctor names them); one that is going needs a relay that runs.`,
		Example: "  deed tenant removals --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			if _, err := tenant.Parse(cursor); cursor != "" && err != nil {
				return usagef("the cursor is none of this list's")
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				list, err := tenant.Removals(cmd.Context(), pool, cursor, limit)
				if err != nil {
					return err
				}
				header := []string{"TENANT", "NAME", "STATE", "ROWS", "ASKED", "DONE", "BY", "REASON"}
				return printPage(cmd, asJSON, "removals", list, header, func(r tenant.Removal) []string {
					return []string{r.Tenant.String(), r.Name, r.State, fmt.Sprint(r.Rows()), when(r.AskedAt), doneAt(r.FinishedAt), r.By, r.Reason}
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
