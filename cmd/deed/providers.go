package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
)

func newProviders(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "providers", Short: "List providers and their rates, register them, try whether they are set up, end their pauses",
		Long:    "Providers carry deliveries: see providers in deed.yaml.",
		Example: "  deed providers list\n  deed providers test mail\n  deed providers resume mail --reason 'the quota was raised'",
	}
	var testJSON bool
	var catch string
	test := &cobra.Command{
		Use: "test NAME", Short: "A dry run: connect, authenticate, send nothing", Args: cobra.ExactArgs(1),
		Long: `Try whether a provider of deed.yaml is set up, and say what was looked at. Nothing is sent, and the database is not needed.
A name that deed.yaml does not have is that of a provider of a running deed dev.`,
		Example: "  deed providers test mail",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.catcherAt(catch)
			if err != nil {
				return err
			}
			return a.testProvider(cmd, args[0], at, testJSON)
		},
	}
	test.Flags().StringVar(&catch, "catch-http", "", "where deed dev says that its mailbox listens; also DEED_CATCH_HTTP (default "+defaultCatchHTTP+")")
	test.Flags().BoolVar(&testJSON, "json", false, "print JSON")
	cmd.AddCommand(newProvidersList(a), newProvidersShow(a), newProvidersRegister(a), test, newProvidersResume(a))
	return cmd
}

// thereAre says which providers there are.
func thereAre(ofFile map[string]config.Provider, built map[string]delivery.Provider) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(ofFile)), maps.Keys(built))
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; there are " + strings.Join(slices.Compact(names), ", ")
}

// providerNamed is the one of deed.yaml, or of the deed dev whose mailbox is at
// catch, and where it was found.
func (a *app) providerNamed(ctx context.Context, name, catch string) (p delivery.Provider, found string, err error) {
	file, err := a.config()
	if err != nil {
		return nil, "", err
	}
	if c, ok := file.Providers[name]; ok {
		if err = lacks(file, "providers."+name); err != nil {
			return nil, "", err
		}
		if p, err = provider(c); err != nil {
			return nil, "", &exitError{exitUsage, ofFile(file, c.Line, "providers."+name, err)}
		}
		return p, c.Type, nil
	}
	built, err := builtInOf(ctx, catch)
	if err != nil {
		return nil, "", usagef("deed.yaml has no provider %q, and no deed dev answers at %s%s", name, catch, thereAre(file.Providers, nil))
	}
	if p = built[name]; p == nil {
		return nil, "", usagef("deed.yaml has no provider %q, and neither has deed dev%s", name, thereAre(file.Providers, built))
	}
	return p, "built into deed dev", nil
}

func (a *app) testProvider(cmd *cobra.Command, name, catch string, asJSON bool) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
	defer cancel()
	p, found, err := a.providerNamed(ctx, name, catch)
	if err != nil {
		return err
	}
	checks := []delivery.Check{{What: "configuration", OK: true, Info: found}}
	if checker, ok := p.(delivery.Checker); ok {
		checks = append(checks, checker.Check(ctx)...)
	}
	if closer, ok := p.(io.Closer); ok {
		defer closer.Close()
	}
	passed := true
	rows := make([][]string, len(checks))
	for i, k := range checks {
		passed = passed && k.OK
		verdict := "ok"
		if !k.OK {
			verdict = "FAILED"
		}
		rows[i] = []string{verdict, k.What, k.Info}
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), map[string]any{"provider": name, "ok": passed, "checks": checks})
	} else {
		err = table(cmd.OutOrStdout(), []string{"", "CHECKED", "FOUND"}, rows)
	}
	if err == nil && !passed {
		return &exitError{exitFailed, nil}
	}
	return err
}

func newProvidersRegister(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "register", Short: "Make those of deed.yaml known, so that deliveries can be reserved for them", Args: cobra.NoArgs,
		Long: `Make the providers of deed.yaml known to the database, as a relay does when it starts: deliveries can be reserved for no
others. For deployments in which a service that reserves starts before the relay that serves a new provider. A relay that
runs with another type, account or sandbox under one of the names calls nobody from then on, until it is started again;
what was registered otherwise before is named.`,
		Example: "  deed migrate up\n  deed providers register --config deed.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			if len(file.Providers) == 0 {
				return usagef("there are no providers in the configuration (--config, DEED_CONFIG or ./deed.yaml)")
			}
			made, err := providers(file)
			if err != nil {
				return err
			}
			defer closeProviders(made)
			pool, err := a.pool(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			l, err := delivery.New(cmd.Context(), pool, delivery.Options{Providers: made})
			if err != nil {
				return err
			}
			before, err := l.Providers(cmd.Context())
			if err == nil {
				err = l.Register(cmd.Context())
			}
			if err != nil {
				return err
			}
			showReplaced(cmd.OutOrStdout(), before, made)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "registered: %s\n", strings.Join(slices.Sorted(maps.Keys(made)), ", "))
			return err
		},
	}
}

// showReplaced says which providers were registered otherwise before.
func showReplaced(w io.Writer, before []delivery.ProviderState, made map[string]delivery.ProviderOptions) {
	for _, was := range before {
		opts, ok := made[was.Name]
		if !ok || !was.Registered {
			continue
		}
		caps := opts.Provider.Capabilities()
		is, old := served(caps.Kind, caps.Account, opts.Sandbox != ""), served(was.Kind, was.Account, was.Sandbox)
		if is != old {
			fmt.Fprintf(w, "%s: is %s now, and was %s: a relay that serves it so calls nobody for it until it is started again\n", was.Name, is, old)
		}
	}
}

// served is how a provider is served, in words.
func served(kind, account string, sandbox bool) string {
	if account != "" {
		kind += " " + account
	}
	if sandbox {
		kind += " (sandbox)"
	}
	return kind
}

func newProvidersList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List providers, what waits for them, and what is paused", Args: cobra.NoArgs,
		Long: `List the providers that were served, or that a delivery waits for, with what is queued (and of these due), sending,
in doubt, held for a person, and dead; then what is paused, since when and why. Until then nobody is called; then one
delivery finds out whether it is over. Where a relay serves a provider otherwise than it is registered, and so waits, that
is said first. Last is what each accepted in the last hour and day, and what it has said of that by now: deed providers
show NAME has it by domain.`,
		Example: "  deed providers list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, _ *pgxpool.Pool) error {
				states, err := l.Providers(cmd.Context())
				if err != nil {
					return err
				}
				rates, err := l.Rates(cmd.Context(), "", 0, delivery.RatesQuick)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"providers": listed(states, rates)})
				}
				if err := showProviders(cmd.OutOrStdout(), states); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout())
				return showRates(cmd.OutOrStdout(), "PROVIDER", rates, delivery.RatesQuick, func(r delivery.Rates) string { return r.Provider })
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// showProviders prints what waits for providers, and their pauses if there are
// any.
func showProviders(w io.Writer, states []delivery.ProviderState) error {
	for _, s := range states {
		if i := s.Idle; i != nil {
			fmt.Fprintf(w, "%s is registered as %s: the relay %s serves it as %s, and calls nobody for it until it is started again with the same\n\n",
				s.Name, served(s.Kind, s.Account, s.Sandbox), i.Worker, served(i.Kind, i.Account, i.Sandbox))
		}
	}
	rows := make([][]string, len(states))
	var pauses [][]string
	for i, s := range states {
		kind := s.Kind
		if s.Sandbox {
			kind += " (sandbox)"
		}
		if !s.Registered {
			kind = "nobody serves it"
		}
		rows[i] = []string{
			s.Name, kind, upToMost(s.Queued), upToMost(s.Due), deferredState(s), upToMost(s.Sending), upToMost(s.InDoubt), upToMost(s.Held), upToMost(s.Dead),
			pausedState(s),
		}
		for _, p := range s.Pauses {
			until := when(p.Until)
			if p.Probing {
				until = "being tried"
			} else if time.Until(p.Until) <= 0 {
				until = "the next delivery"
			}
			pauses = append(pauses, []string{s.Name, dash(p.Destination), dash(p.Tenant), when(p.Since), until, fmt.Sprint(p.Failures), p.Why})
		}
		if more := s.Paused - int64(len(s.Pauses)); more > 0 {
			pauses = append(pauses, []string{s.Name, fmt.Sprintf("and %d more", more), "-", "-", "-", "-", "-"})
		}
	}
	if _, err := list(w, []string{"PROVIDER", "TYPE", "QUEUED", "DUE", "DEFERRED", "SENDING", "IN DOUBT", "HELD", "DEAD", "PAUSED"}, rows); err != nil || len(pauses) == 0 {
		return err
	}
	fmt.Fprintln(w)
	_, err := list(w, []string{"PAUSED", "DESTINATION", "TENANT", "SINCE", "UNTIL", "FAILURES", "WHY"}, pauses)
	return err
}

// upToMost is a number that was counted up to [delivery.MostCounted].
func upToMost(n int64) string { return counted(n, n >= delivery.MostCounted) }

// deferredState is how many were put off for now, and for how long that has been so.
func deferredState(s delivery.ProviderState) string {
	if s.DeferredSince == nil {
		return upToMost(s.Deferred)
	}
	return upToMost(s.Deferred) + " since " + when(*s.DeferredSince)
}

// pausedState is all for a provider that is paused, else how many of its
// destinations are.
func pausedState(s delivery.ProviderState) string {
	switch {
	case len(s.Pauses) > 0 && s.Pauses[0].Destination == "":
		return "all"
	case s.Paused > 0:
		return fmt.Sprint(s.Paused)
	}
	return "-"
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func newProvidersResume(a *app) *cobra.Command {
	var destination string
	var who operator
	var asJSON bool
	cmd := &cobra.Command{
		Use: "resume NAME --reason TEXT", Short: "End a provider's pause now", Args: cobra.ExactArgs(1),
		Long: `End the pauses of a provider and of its destinations, or with --destination that one's, whichever tenant's:
everything that waits is called at once. What is still down is paused again by the next calls. Who and why is in the
audit log.`,
		Example: "  deed providers resume mail --reason 'the quota was raised'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if who.reason == "" {
				return usagef("why? Give --reason")
			}
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, _ *pgxpool.Pool) error {
				if err := knownProvider(cmd.Context(), l, args[0]); err != nil {
					return err
				}
				n, err := l.Resume(cmd.Context(), args[0], destination, who.act(a))
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"provider": args[0], "resumed": n})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d pauses of %s are over\n", n, args[0])
				return err
			})
		},
	}
	who.add(cmd, "why (required)")
	cmd.Flags().StringVar(&destination, "destination", "", "only this destination, such as a webhook's host")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
