package main

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

func newPlan(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plan", Short: "Check, store, list, show and compare plans of runs",
		Long: `Plans of runs: which steps they have, and what each waits for. A plan has a name and a version, and a version never
changes, so a run keeps the plan that it began with.`,
		Example: "  deed plan put ship-order.yaml --dry-run\n  deed plan show ship-order --version 3",
	}
	cmd.AddCommand(newPlanPut(a), newPlanList(a), newPlanShow(a), newPlanDiff(a))
	return cmd
}

// putPlan is what deed plan put prints.
type putPlan struct {
	Plan    string `json:"plan_id"`
	Version string `json:"plan_version"`
	SHA256  string `json:"sha256"`
	Steps   int    `json:"steps"`
	Stored  string `json:"stored"` // now, before, or no
}

func newPlanPut(a *app) *cobra.Command {
	var owner tenantFlag
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use: "put FILE|URI", Short: "Check a plan and store it", Args: cobra.ExactArgs(1),
		Long: `Check a plan, in YAML or JSON, and store it; - is standard input. All that is wrong with it is said at once, each with its
line. The same plan again changes nothing; another one under the same name and version is refused. From a URI only by https,
and from the hosts that runs.plans.hosts in deed.yaml names. --dry-run checks it, and asks no database.`,
		Example: "  deed plan put ship-order.yaml --dry-run\n  deed plan put https://plans.example/ship-order.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			p, err := a.readPlan(cmd, args[0])
			if err != nil {
				return err
			}
			out := putPlan{Plan: p.ID, Version: p.Version, SHA256: hex.EncodeToString(p.SHA256()), Steps: len(p.Steps), Stored: "no"}
			if dry {
				return out.print(cmd.OutOrStdout(), asJSON)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				created, err := plan.Put(cmd.Context(), pool, id, p, new(operator).actor(a))
				if err != nil {
					return err
				}
				out.Stored = "before"
				if created {
					out.Stored = "now"
				}
				return out.print(cmd.OutOrStdout(), asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only check it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "whose plan it is, a UUID")
	return cmd
}

func (p putPlan) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, p)
	}
	did := map[string]string{"now": "stored", "before": "it was stored before", "no": "it is sound, and was not stored"}[p.Stored]
	_, err := fmt.Fprintf(w, "%s@%s: %s; %s, sha256 %s\n", p.Plan, p.Version, did, many(int64(p.Steps), "step", "steps"), p.SHA256)
	return err
}

// readPlan reads a plan from a file, from standard input, or from where plans may come from.
func (a *app) readPlan(cmd *cobra.Command, name string) (*plan.Plan, error) {
	var data []byte
	var err error
	switch {
	case name == "-":
		data, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), plan.MaxBytes+1))
	case strings.Contains(name, "://"):
		file, fileErr := a.config()
		if fileErr != nil {
			return nil, fileErr
		}
		data, err = plan.Fetch(cmd.Context(), name, plan.FetchOptions{Hosts: file.Runs.PlanHosts})
	default:
		if data, err = os.ReadFile(name); err != nil {
			err = &exitError{exitUsage, err}
		}
	}
	if err != nil {
		return nil, err
	}
	return plan.Parse(cmp.Or(strings.TrimPrefix(name, "-"), "standard input"), data)
}

func newPlanList(a *app) *cobra.Command {
	var f plan.Filter
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [PLAN]", Short: "List plans and their versions", Args: cobra.MaximumNArgs(1),
		Long:    "List the plans that are stored, by name and version.",
		Example: "  deed plan list\n  deed plan list ship-order --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				f.ID = args[0]
			}
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				list, err := plan.List(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = knownTenant(cmd.Context(), pool, f.Tenant)
				}
				if err != nil {
					return err
				}
				header := []string{"PLAN", "VERSION", "STEPS", "SHA256", "STORED", "BY", "TENANT"}
				return printPage(cmd, asJSON, "plans", list, header, func(l plan.Listed) []string {
					return []string{l.ID, l.Version, fmt.Sprint(l.Steps), l.SHA256[:12], when(l.CreatedAt), l.CreatedBy, l.Tenant.String()}
				})
			})
		},
	}
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func newPlanShow(a *app) *cobra.Command {
	var owner tenantFlag
	var version string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show PLAN", Short: "Show a plan", Args: cobra.ExactArgs(1),
		Long: `Show a plan: its steps, and what each waits for. Its bytes are held against the hash that was stored with them; others are
refused (PLAN_INTEGRITY_VALIDATION_FAILED), and that is in the audit log. --json prints the plan as it is stored.`,
		Example: "  deed plan show ship-order\n  deed plan show ship-order --version 3 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				p, err := plan.Load(cmd.Context(), pool, id, args[0], version, nil)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{
						"plan": json.RawMessage(p.Body()), "sha256": hex.EncodeToString(p.SHA256()), "created_at": p.CreatedAt, "created_by": p.CreatedBy,
					})
				}
				return showPlan(cmd.OutOrStdout(), p)
			})
		},
	}
	cmd.Flags().StringVar(&version, "version", "", "this version; the one that was stored last without it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "whose plan it is, a UUID")
	return cmd
}

func showPlan(w io.Writer, p *plan.Stored) error {
	approval, failure := "", "the run fails"
	if p.Approval {
		approval = "by a person"
	}
	if p.Hold > 0 {
		failure = "the run waits for a person, for " + p.Hold.String()
	}
	for _, line := range [][2]string{
		{"plan", p.ID},
		{"version", p.Version},
		{"sha256", hex.EncodeToString(p.SHA256())},
		{"stored", when(p.CreatedAt) + " by " + p.CreatedBy},
		{"approval", approval},
		{"when one fails", failure},
	} {
		detail(w, 16, line[0], line[1])
	}
	rows := make([][]string, len(p.Steps))
	for i, s := range p.Steps {
		needs := strings.Join(s.After, ",")
		if !s.NeedsSuccess {
			needs += " (done)"
		}
		rows[i] = []string{s.ID, string(s.Kind), cmp.Or(needs, "-"), clip(cmp.Or(s.When, "-"), 60), fmt.Sprint(s.Attempts)}
	}
	return table(w, []string{"STEP", "KIND", "AFTER", "WHEN", "ATTEMPTS"}, rows)
}

func newPlanDiff(a *app) *cobra.Command {
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "diff A B", Short: "Say what a plan says otherwise than another", Args: cobra.ExactArgs(2),
		Long: `Say what plan B says otherwise than plan A. Each is a file, or a plan that is stored: PLAN@VERSION, or PLAN for the version
that was stored last. Exit code 3 where they differ.`,
		Example: "  deed plan diff ship-order ship-order.yaml\n  deed plan diff ship-order@2 ship-order@3",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			var both [2]*plan.Plan
			for i, name := range args {
				if both[i], err = a.planOf(cmd, name, id); err != nil {
					return err
				}
			}
			return printPlanDifferences(cmd.OutOrStdout(), plan.Diff(both[0], both[1]), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "whose plans they are, a UUID")
	return cmd
}

// planOf is a file's plan, or a stored one.
func (a *app) planOf(cmd *cobra.Command, name string, owner *tenant.ID) (p *plan.Plan, err error) {
	if _, err := os.Stat(name); name == "-" || !errors.Is(err, fs.ErrNotExist) {
		return a.readPlan(cmd, name)
	}
	id, version, _ := strings.Cut(name, "@")
	err = a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
		stored, err := plan.Load(cmd.Context(), pool, owner, id, version, nil)
		if err == nil {
			p = stored.Plan
		}
		return err
	})
	return p, err
}

func printPlanDifferences(w io.Writer, list []plan.Difference, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, map[string]any{"differences": orEmpty(list)}); err != nil {
			return err
		}
	} else {
		for _, d := range list {
			if _, err := fmt.Fprintln(w, d); err != nil {
				return err
			}
		}
	}
	if len(list) > 0 {
		return &exitError{exitPartly, nil}
	}
	return nil
}
