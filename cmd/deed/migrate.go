package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/schema"
)

func newMigrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Install the schema and keep it up to date",
		Long:    "Everything lives in the schema deed. Migrations only go forward, and are safe to start from several places at once.",
		Example: "  deed migrate up\n  deed migrate status",
	}
	cmd.AddCommand(newMigrateUp(a), newMigrateStatus(a), newMigrateSQL(), newMigrateValidate(a))
	return cmd
}

func newMigrateUp(a *app) *cobra.Command {
	var faces []string
	var adopt bool
	var topics []string
	cmd := &cobra.Command{
		Use: "up", Short: "Install or upgrade the schema", Args: cobra.NoArgs,
		Long: `Install deed's schema, or bring it up to date: first the migrations that are missing, then the functions. It is safe
beside running programs and other migrators, and changes nothing when there is nothing to do. It also makes roles,
policies and grants again that are gone, as after a restore into a cluster without deed's roles.

--contracts installs faces, deed's tables under SQL names that other systems have published: m10 (the schema m10_recovery),
app (the schema app and the relation public.outbox) and contacts (the relation public.contact_identities). Every later deed
migrate up keeps them up to date.

If there is a table of the same name, --adopt takes it over: it renames the table, and moves its undelivered rows into
deed, oldest first. If that is interrupted, the next deed migrate up goes on. If rows cannot be published, it prints all
of them and changes nothing. --topic OLD=NEW renames a topic whose name deed does not allow.`,
		Example: "  deed migrate up --database-url postgres://localhost/shop\n  deed migrate up --contracts m10,app\n  deed migrate up --contracts app --adopt --topic 'order placed=order.placed'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if adopt && len(faces) == 0 {
				return usagef("what is to be adopted? Give --contracts as well, such as --contracts app")
			}
			for _, name := range faces {
				if !slices.Contains(schema.Faces(), name) {
					return usagef("--contracts: there is no face %q; there are %s", name, strings.Join(schema.Faces(), ", "))
				}
			}
			takeover, err := readTakeover(cmd, adopt, topics)
			if err != nil {
				return err
			}
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				return migrateUp(cmd, conn, faces, takeover)
			})
		},
	}
	cmd.Flags().StringSliceVar(&faces, "contracts", nil, "published SQL faces to install: "+strings.Join(schema.Faces(), ", "))
	cmd.Flags().BoolVar(&adopt, "adopt", false, "take over a table that has a face's name, with its undelivered rows")
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "with --adopt: the rows of topic OLD become messages of topic NEW, as OLD=NEW; may be repeated")
	return cmd
}

// readTakeover returns how a table is adopted, nil if none is to be.
func readTakeover(cmd *cobra.Command, adopt bool, topics []string) (*schema.Takeover, error) {
	if !adopt {
		if len(topics) > 0 {
			return nil, usagef("--topic OLD=NEW goes with --adopt")
		}
		return nil, nil
	}
	t := &schema.Takeover{Topics: map[string]string{}}
	for _, pair := range topics {
		at := strings.LastIndexByte(pair, '=') // no topic's new name has one
		if at < 0 {
			return nil, usagef("--topic %q is not OLD=NEW", pair)
		}
		if _, twice := t.Topics[pair[:at]]; twice {
			return nil, usagef("--topic gives %q two new names", pair[:at])
		}
		t.Topics[pair[:at]] = pair[at+1:]
	}
	t.Unfit = func(r schema.UnfitRow) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: row %s of topic %q: %s\n", r.Table, r.ID, r.Topic, r.Problem)
	}
	return t, nil
}

func migrateUp(cmd *cobra.Command, conn *pgx.Conn, faces []string, adopt *schema.Takeover) error {
	out := cmd.OutOrStdout()
	done, err := schema.Up(cmd.Context(), conn)
	for _, name := range done.Applied {
		fmt.Fprintln(out, "applied", name)
	}
	if names := breaking(done.Applied); len(names) > 0 {
		fmt.Fprintf(out, "programs that do not know %s no longer start; stop those that still run\n", strings.Join(names, ", "))
	}
	if len(done.Roles) > 0 {
		fmt.Fprintf(out, "made the roles %s, which this cluster lacked: grant them to your logins\n", strings.Join(done.Roles, ", "))
	}
	if err != nil {
		return err
	}
	if done.Rights > 0 {
		fmt.Fprintf(out, "made %d policies and grants again\n", done.Rights)
	}
	if done.Newer {
		if len(faces) > 0 {
			return errors.New("a newer deed has been here: let that install its faces")
		}
		_, err := fmt.Fprintln(out, "a newer deed has been here: its functions and faces are left as they are")
		return err
	}
	if done.Functions {
		fmt.Fprintln(out, "replaced the functions")
	}
	for _, name := range done.Faces {
		fmt.Fprintln(out, "replaced the face", name)
	}
	installed, err := schema.InstallFaces(cmd.Context(), conn, faces, adopt)
	for _, name := range installed {
		fmt.Fprintln(out, "installed the face", name)
	}
	if err != nil {
		return err
	}
	adopted, err := schema.Adopt(cmd.Context(), conn, func(a schema.Adoption) {
		fmt.Fprintf(out, "moved %d rows of %s\n", a.Moved, a.Table)
	})
	if err != nil {
		return err
	}
	for _, a := range adopted {
		fmt.Fprintf(out, "all undelivered rows of %s are in deed; it keeps the delivered ones, drop it when you need them no more\n", a.Table)
	}
	if len(done.Applied)+len(done.Roles)+done.Rights+len(done.Faces)+len(installed)+len(adopted) == 0 && !done.Functions {
		fmt.Fprintln(out, "the schema is up to date")
	}
	return nil
}

// breaking are those of the applied migrations beside which older programs do
// not run. A first install has none.
func breaking(applied []string) (names []string) {
	migrations, err := schema.Migrations()
	if err != nil || slices.Contains(applied, migrations[0].Name) {
		return nil
	}
	for _, m := range migrations {
		if m.Breaking && slices.Contains(applied, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}

func newMigrateStatus(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "List migrations", Args: cobra.NoArgs,
		Long:    "List the migrations that this program or the database knows, with the time at which each was applied.",
		Example: "  deed migrate status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				states, err := schema.Status(cmd.Context(), conn)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"migrations": states})
				}
				rows := make([][]string, len(states))
				for i, s := range states {
					at, note := s.AppliedAt, ""
					if at == "" {
						at = "to come"
					}
					if s.Breaking {
						note = "breaking"
					}
					if !s.Known {
						note += " (not known to this program)"
					}
					rows[i] = []string{s.Name, at, note}
				}
				return table(cmd.OutOrStdout(), []string{"MIGRATION", "APPLIED", ""}, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newMigrateSQL() *cobra.Command {
	var faces []string
	cmd := &cobra.Command{
		Use: "sql", Short: "Print the whole schema as one script for psql", Args: cobra.NoArgs,
		Long:    "Print what deed migrate up would run on an empty database, for those who let nobody else migrate theirs.",
		Example: "  deed migrate sql | psql -v ON_ERROR_STOP=1 -1 postgres://localhost/shop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := schema.SQL(faces...)
			if err != nil {
				return &exitError{exitUsage, err}
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&faces, "contracts", nil, "published SQL faces to add: "+strings.Join(schema.Faces(), ", "))
	return cmd
}

func newMigrateValidate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "Compare what is installed with what should be", Args: cobra.NoArgs,
		Long:    "Print a line for every difference (- is missing, + should not be there) and exit 1 if there is any.",
		Example: "  deed migrate validate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
				differences, err := schema.Validate(cmd.Context(), conn)
				if err != nil {
					return err
				}
				for _, d := range differences {
					fmt.Fprintln(cmd.OutOrStdout(), d)
				}
				if len(differences) > 0 {
					return fmt.Errorf("the schema differs in %d places from what this program installs", len(differences))
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), "the schema is as it should be")
				return err
			})
		},
	}
}

func newUninstall(a *app) *cobra.Command {
	var yes bool
	var faces []string
	cmd := &cobra.Command{
		Use: "uninstall --yes", Short: "Drop the schema deed with everything in it", Args: cobra.NoArgs,
		Long: `Drop the schema deed: every message, pending or not, every receipt, deliveries, contacts, consents and suppressions,
campaigns, runs, the audit log, and the published SQL faces. The roles stay. Without --yes it says what would be lost.

With --contracts it takes away the faces alone, or --contracts=app one of them: functions and relations, no message.`,
		Example: "  deed uninstall\n  deed uninstall --yes\n  deed uninstall --contracts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("contracts") {
				if yes {
					return usagef("--yes drops everything; --contracts takes away the faces alone and needs no --yes")
				}
				return a.withConn(cmd.Context(), func(conn *pgx.Conn) error { return uninstallFaces(cmd, conn, faces) })
			}
			if yes {
				return a.withConn(cmd.Context(), func(conn *pgx.Conn) error {
					if err := schema.Uninstall(cmd.Context(), conn); err != nil {
						return err
					}
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "the schema deed is gone")
					return err
				})
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, pool *pgxpool.Pool) error {
				topics, providers, err := owed(cmd.Context(), c, pool, "")
				if err != nil {
					return err
				}
				for _, t := range topics {
					fmt.Fprintf(cmd.OutOrStdout(), "topic %s: %s pending, %s dead, %s delivered\n",
						t.Topic, counted(t.Pending, t.AtLeast), counted(t.Dead, t.DeadAtLeast), counted(t.Delivered, t.DeliveredAtLeast))
				}
				for _, p := range providers {
					fmt.Fprintf(cmd.OutOrStdout(), "provider %s: %s queued, %s in doubt, %s held, %s dead\n", p.Name,
						upToMost(p.Queued), upToMost(p.InDoubt), upToMost(p.Held), upToMost(p.Dead))
				}
				fmt.Fprintln(cmd.OutOrStdout(), "and what has been delivered, contacts, consents, suppressions, campaigns, runs, plans and the audit log")
				return usagef("nothing was changed; give --yes to drop all of it")
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really do it")
	cmd.Flags().StringSliceVar(&faces, "contracts", nil, "take away these published SQL faces only (default: all of them)")
	cmd.Flags().Lookup("contracts").NoOptDefVal = strings.Join(schema.Faces(), ",")
	return cmd
}

func uninstallFaces(cmd *cobra.Command, conn *pgx.Conn, faces []string) error {
	removed, err := schema.UninstallFaces(cmd.Context(), conn, faces)
	if err != nil {
		return err
	}
	if len(removed) == 0 {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "no such face is installed")
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "the faces %s are gone; their messages are not\n", strings.Join(removed, ", "))
	return err
}

func newVersion(*app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Long:    "Print the versions of this program, of the schema that it installs, and of Go.",
		Example: "  deed version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			migrations, err := schema.Migrations()
			if err != nil {
				return err
			}
			goVersion := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"version": version, "schema": migrations[len(migrations)-1].Name, "go": goVersion})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "deed %s, schema %s, %s\n", version, migrations[len(migrations)-1].Name, goVersion)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
