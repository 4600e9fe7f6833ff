package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/schema"
	"github.com/deedhq/deed/tenant"
)

func newContacts(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "contacts", Short: "Add, import, list, merge and erase contacts: who somebody is",
		Long: `A contact is somebody, by what they are known as: e-mail addresses, phone numbers, ids elsewhere. Within a tenant each of
these is of one contact, however it is written. Nothing is merged on hope: what belongs to several contacts is a conflict,
which waits for you.`,
		Example: "  deed contacts add --email ann@example.com --zone Europe/Berlin\n  deed contacts import customers.csv\n" +
			"  deed contacts show email:ann@example.com\n  deed contacts conflicts",
	}
	cmd.AddCommand(newContactsAdd(a), newContactsList(a), newContactsShow(a), newContactsImport(a),
		newContactsMerge(a), newContactsUnmerge(a), newContactsConflicts(a), newContactsExport(a), newContactsErase(a), newContactsErasures(a))
	return cmd
}

// withSchema runs fn with a database whose schema this program can work with.
func (a *app) withSchema(ctx context.Context, fn func(*pgxpool.Pool) error) error {
	pool, err := a.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := schema.Check(ctx, pool); err != nil {
		return err
	}
	return fn(pool)
}

func newContactsList(a *app) *cobra.Command {
	var owner tenantFlag
	var cursor string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List contacts, newest first", Args: cobra.NoArgs,
		Long: "List contacts, newest first, with what they are known by. One that was merged is listed, too, with the contact that it\n" +
			"is another name of. Data are shown by deed contacts show ID, and by --json.",
		Example: "  deed contacts list --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list page.Of[contact.Contact]
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					list, err = contact.List(cmd.Context(), tx, contact.Filter{Tenant: id, Cursor: cursor, Limit: limit})
					if err == nil && len(list.Items) == 0 {
						err = knownTenant(cmd.Context(), tx, id)
					}
					return err
				})
				if err != nil {
					return err
				}
				header := []string{"ID", "SINCE", "ZONE", "LOCALE", "STATE", "KNOWN AS"}
				return printPage(cmd, asJSON, "contacts", list, header, func(c contact.Contact) []string {
					return []string{c.ID, when(c.CreatedAt), c.Zone, c.Locale, stateOf(c), knownBy(c)}
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// stateOf says what a contact is no longer, if so.
func stateOf(c contact.Contact) string {
	switch {
	case c.ErasedAt != nil:
		return "erased"
	case c.MergedInto != "":
		return "merged into " + c.MergedInto
	}
	return "-"
}

// knownBy names some of the identities of a contact on one line.
func knownBy(c contact.Contact) string {
	const most = 5
	var names []string
	for _, i := range c.Identities[:min(most, len(c.Identities))] {
		names = append(names, i.Type+":"+i.Value)
	}
	if rest := len(c.Identities) - most; rest > 0 {
		names = append(names, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(names, " ")
}

func newContactsShow(a *app) *cobra.Command {
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show ID|TYPE:VALUE", Short: "Show a contact, by its id or by what it is known as", Args: cobra.ExactArgs(1),
		Long: `Show a contact with all that it is known by, its data, the contacts that were merged into it, and its open conflicts. By
what it is known as it is found however that is written, and for one that was merged the contact that it means. Who
merged it and why: deed audit --subject ID.`,
		Example: "  deed contacts show email:ann@example.com\n  deed contacts show phone:+493012345 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var s shownContact
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					if s.Contact, err = contact.Find(cmd.Context(), tx, id, args[0]); err != nil {
						return orWhichTenant(err, id, args[0])
					}
					if s.Aliases, err = contact.Aliases(cmd.Context(), tx, s.Contact.ID); err != nil {
						return err
					}
					consents, err := contact.Consents(cmd.Context(), tx, s.Contact.ID)
					if err != nil {
						return err
					}
					s.Consents = orEmpty(consents)
					conflicts, err := contact.Conflicts(cmd.Context(), tx, contact.ConflictFilter{Contact: s.Contact.ID})
					s.Conflicts = orEmpty(conflicts.Items)
					return err
				})
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), s)
				}
				return s.print(cmd.OutOrStdout())
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "of this tenant, a UUID")
	return cmd
}

// orWhichTenant asks whose contact was meant, where an identity names none.
func orWhichTenant(err error, owner *tenant.ID, ref string) error {
	if owner == nil && errors.Is(err, contact.ErrNotFound) && strings.Contains(ref, ":") {
		return fmt.Errorf("%w; where there are several tenants, give --tenant", err)
	}
	return err
}

// shownContact is a contact with what goes with it.
type shownContact struct {
	Contact   contact.Contact    `json:"contact"`
	Aliases   []contact.Contact  `json:"aliases"`
	Consents  []contact.Consent  `json:"consents"`
	Conflicts []contact.Conflict `json:"conflicts"` // those that are open, at the most 100
}

func (s *shownContact) print(w io.Writer) error {
	c := s.Contact
	line := func(name, value string) { detail(w, 12, name, value) }
	line("id", c.ID)
	line("merged into", c.MergedInto)
	line("erased", instant(c.ErasedAt))
	line("zone", c.Zone)
	line("locale", c.Locale)
	line("tenant", c.Tenant)
	line("created", when(c.CreatedAt))
	line("updated", when(c.UpdatedAt))
	fmt.Fprintln(w, detailed(terminalWidth(w), "data         ", contentLine("application/json", c.Data)))
	for _, alias := range s.Aliases {
		line("alias", alias.ID)
	}
	for _, k := range s.Consents {
		text := strings.TrimSpace(fmt.Sprintf("%s %s %s", k.Channel, k.Purpose, cmp.Or(string(k.State), "not answered"))) + " since " + when(k.At)
		if k.PendingUntil != nil && k.State != contact.Pending {
			text += ", asked again"
		}
		if k.PendingUntil != nil {
			text += ", may confirm until " + when(*k.PendingUntil)
		}
		line("consent", text)
	}
	for _, o := range s.Conflicts {
		line("conflict", fmt.Sprintf("%d, of %s, between %s", o.N, strings.Join(o.Types, " and "), strings.Join(o.Contacts, " and ")))
	}
	var rows [][]string
	for _, of := range append([]contact.Contact{c}, s.Aliases...) {
		for _, i := range of.Identities {
			verified, alias := "-", "-"
			if i.Verified {
				verified = "yes"
			}
			if of.ID != c.ID {
				alias = of.ID
			}
			rows = append(rows, []string{i.Type, i.Value, verified, alias})
		}
	}
	if len(rows) == 0 { // it was erased
		return nil
	}
	fmt.Fprintln(w)
	return table(w, []string{"TYPE", "VALUE", "VERIFIED", "ALIAS"}, rows)
}

func newContactsConflicts(a *app) *cobra.Command {
	var owner tenantFlag
	var cursor string
	var limit int
	var all, asJSON bool
	cmd := &cobra.Command{
		Use: "conflicts", Short: "List what belongs to several contacts, newest first", Args: cobra.NoArgs,
		Long: `List the conflicts that are open, newest first: somebody came with identities that are of several contacts. Nothing of
that was stored. If these contacts are one person, deed contacts merge settles it; if not, somebody gives out another's
address, and deed contacts show tells which is whose.`,
		Example: "  deed contacts conflicts\n  deed contacts conflicts --all --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list page.Of[contact.Conflict]
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					list, err = contact.Conflicts(cmd.Context(), tx, contact.ConflictFilter{Tenant: id, Settled: all, Cursor: cursor, Limit: limit})
					if err == nil && len(list.Items) == 0 {
						err = knownTenant(cmd.Context(), tx, id)
					}
					return err
				})
				if err != nil {
					return err
				}
				header := []string{"N", "CONTACTS", "TYPES", "TIMES", "LAST", "WHO"}
				if all {
					header = append(header, "SETTLED")
				}
				return printPage(cmd, asJSON, "conflicts", list, header, func(o contact.Conflict) []string {
					row := []string{fmt.Sprint(o.N), strings.Join(o.Contacts, " "), strings.Join(o.Types, " "), fmt.Sprint(o.Times), when(o.At), o.Actor}
					if all {
						row = append(row, instant(o.SettledAt))
					}
					return row
				})
			})
		},
	}
	pageFlags(cmd, &cursor, &limit, 100)
	cmd.Flags().BoolVar(&all, "all", false, "also those that are settled")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}
