package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

type contactsErase struct {
	who       operator
	owner     tenantFlag
	from      string
	suppress  bool
	yes, json bool
}

func newContactsErase(a *app) *cobra.Command {
	var c contactsErase
	cmd := &cobra.Command{
		Use: "erase ID --reason TEXT [--yes]", Short: "Forget somebody for ever: contact, identities, and what was sent", Args: cobra.MaximumNArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Erase a contact, and all that were merged into it: data, identities, and of the deliveries recipient, contents and
request. What is queued is skipped, what is in doubt has failed. Ids, times, statuses and keys stay. There is no way back;
without --yes nothing is changed, and what would be erased is named. A relay empties what had been sent within seconds
(deed contacts erasures says whether it has).

What was suppressed stays so, under a mark that does not tell the address; with --suppress nothing is sent to these
addresses any more at all, even if an import brings them back. The reason is kept: name nobody in it.

--from FILE repeats the erasures that relays have recorded (erasures: in deed.yaml) after an older database was restored.
Whoever has been erased already, is not there, or was of a tenant that was removed, is passed over. It wants --yes, too.
What is left of a record that was not written to its end is passed over and named; with exit code 3 where no whole one
says the same.`,
		Example: "  deed contacts erase 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'asked for on paper, file 12' --yes\n" +
			"  deed contacts erase --from erasures.ndjson --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.from == "" && len(args) == 0:
				return usagef("who? Give a contact's id, or --from FILE")
			case c.from != "" && len(args) > 0:
				return usagef("give a contact's id or --from FILE, and not both")
			case c.from != "":
				if owner, err := c.owner.id(); err != nil || owner != nil || c.who.reason != "" {
					return cmp.Or(err, usagef("--tenant (DEED_TENANT) and --reason are of one contact; in FILE each erasure has its own"))
				}
				return c.again(cmd, a)
			}
			return c.one(cmd, a, args[0])
		},
	}
	c.who.add(cmd, "why (required with --yes)")
	f := cmd.Flags()
	f.StringVar(&c.from, "from", "", "repeat the erasures of this record; - is standard input")
	f.BoolVar(&c.suppress, "suppress", false, "send nothing to their addresses any more")
	f.BoolVar(&c.yes, "yes", false, "really do it")
	f.BoolVar(&c.json, "json", false, "print JSON")
	c.owner.add(cmd, "of this tenant, a UUID (default: the contact's)")
	return cmd
}

// one erases one contact, or says what that would be.
func (c *contactsErase) one(cmd *cobra.Command, a *app, id string) error {
	owner, err := c.owner.id()
	if err != nil {
		return err
	}
	if _, err := uuid.Parse(id); err != nil { // it may be an address, which no error repeats
		return usagef("it is no contact's id, a UUID; deed contacts show TYPE:VALUE says it")
	}
	if c.yes && strings.TrimSpace(c.who.reason) == "" {
		return usagef("why? Give --reason; it is kept, so name nobody in it")
	}
	return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
		var found contact.Contact
		var aliases []contact.Contact
		err := inTenant(cmd.Context(), pool, owner, func(tx pgx.Tx) (err error) {
			found, err = contact.Get(cmd.Context(), tx, id)
			for err == nil && found.MergedInto != "" { // what is erased is the one that it is a name of
				found, err = contact.Get(cmd.Context(), tx, found.MergedInto)
			}
			if err == nil && !c.yes {
				aliases, err = contact.Aliases(cmd.Context(), tx, found.ID)
			}
			return err
		})
		if owner != nil && (errors.Is(err, contact.ErrNotFound) || err == nil && found.Tenant != owner.String()) {
			return fmt.Errorf("tenant %s has no contact %s; deed contacts show %s says whose it is", owner, id, id)
		}
		if err != nil {
			return err
		}
		if !c.yes {
			return c.count(cmd, found, aliases)
		}
		of, err := tenant.Parse(found.Tenant)
		if err != nil {
			return err
		}
		owner = &of
		var n int64
		err = inTenant(cmd.Context(), pool, owner, func(tx pgx.Tx) (err error) {
			n, err = contact.Erase(cmd.Context(), tx, nil, id, c.who.act(a), contact.EraseOptions{Suppress: c.suppress})
			return err
		})
		if err != nil {
			return err
		}
		if c.json {
			return printJSON(cmd.OutOrStdout(), map[string]any{"contact": found.ID, "erasure": fmt.Sprint(n), "dry_run": false})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is erased; deed contacts erasures says when what was sent to it is, too\n", found.ID)
		return err
	})
}

// count says whom it would be.
func (c *contactsErase) count(cmd *cobra.Command, found contact.Contact, aliases []contact.Contact) error {
	identities := len(found.Identities)
	for _, a := range aliases {
		identities += len(a.Identities)
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{
			"contact": found.ID, "dry_run": true, "aliases": len(aliases), "identities": identities, "erased": found.ErasedAt != nil,
		})
	}
	if found.ErasedAt != nil {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s was erased %s\n", found.ID, when(*found.ErasedAt))
		return err
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "nothing was changed: %s would be erased, with %s and %s that were merged into it, and what was sent to it; give --yes and --reason\n",
		found.ID, many(int64(identities), "identity", "identities"), many(int64(len(aliases)), "contact", "contacts"))
	return err
}

// again repeats the erasures of a record.
func (c *contactsErase) again(cmd *cobra.Command, a *app) error {
	in := cmd.InOrStdin()
	if c.from != "-" {
		f, err := os.Open(c.from)
		if err != nil {
			return usagef("%v", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	records, torn, err := readErasures(in)
	if err != nil {
		return &exitError{exitUsage, fmt.Errorf("%s: %w", c.from, err)}
	}
	err = a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
		removed, err := c.removedTenants(cmd.Context(), pool, records)
		if err != nil {
			return err
		}
		if !c.yes {
			return c.countRecords(cmd, pool, records, removed)
		}
		return c.repeatAll(cmd, a, pool, records, removed)
	})
	if err == nil {
		err = c.sayTorn(cmd, torn)
	}
	return err
}

// removedTenants are those of records that were removed: for them nobody is erased any more, and what they have
// goes with them. An error where the login may not act for one, of which everybody would count as not there.
func (c *contactsErase) removedTenants(ctx context.Context, pool *pgxpool.Pool, records []erasureRecord) (map[string]bool, error) {
	removed := map[string]bool{}
	for _, r := range records {
		if _, asked := removed[r.Tenant]; asked {
			continue
		}
		owner, err := tenant.Parse(r.Tenant)
		if err == nil {
			err = inTenant(ctx, pool, &owner, func(tx pgx.Tx) error {
				const nobody = "00000000-0000-0000-0000-000000000000" // so only what is wrong with the tenant, or the login, is said
				_, err := contact.Erase(ctx, tx, nil, nobody, audit.Act{Reason: "nobody"}, contact.EraseOptions{})
				return err
			})
		}
		removed[r.Tenant] = errors.Is(err, contact.ErrConflict)
		if err != nil && !removed[r.Tenant] && !errors.Is(err, contact.ErrNotFound) {
			return nil, fmt.Errorf("%s:%d: %w", c.from, r.line, err)
		}
	}
	return removed, nil
}

func (c *contactsErase) repeatAll(cmd *cobra.Command, a *app, pool *pgxpool.Pool, records []erasureRecord, removed map[string]bool) error {
	shown := newProgress(cmd, c.from, "")
	var erased, missing, gone int
	for i, r := range records {
		if removed[r.Tenant] {
			gone += len(r.Names)
		} else {
			did, err := c.repeat(cmd.Context(), a, pool, r)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", c.from, r.line, err)
			}
			erased += did
			missing += len(r.Names) - did
		}
		shown.report(i+1 == len(records), "%d of %d ", i+1, len(records))
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{"records": len(records), "erased": erased, "passed_over": missing + gone, "of_removed_tenants": gone})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: erased %d, passed over %d that are not there or had been erased%s\n", many(int64(len(records)), "record", "records"), erased, missing, ofRemoved(gone))
	return err
}

// ofRemoved says of how many the tenant was removed, if of any.
func ofRemoved(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d of tenants that were removed, with which they go", n)
}

// sayTorn names what was passed over as no whole record; an error if somebody may not have
// been erased for it.
func (c *contactsErase) sayTorn(cmd *cobra.Command, torn []tornRecord) error {
	lost := 0
	for _, t := range torn {
		what := "passed over what is left of a record; what was written of it is elsewhere in the file, or says of nobody"
		if t.lost {
			lost++
			what = "passed over what is left of a record, which stands nowhere whole: erase by hand whom it names, and take it out of the file"
		}
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "%s:%d: %s\n", c.from, t.line, what); err != nil {
			return err
		}
	}
	if lost > 0 {
		return &exitError{exitPartly, fmt.Errorf("%s: %s not to be read, and not repeated", c.from, many(int64(lost), "erasure is", "erasures are"))}
	}
	return nil
}

// countRecords says what repeating a record would do.
func (c *contactsErase) countRecords(cmd *cobra.Command, pool *pgxpool.Pool, records []erasureRecord, removed map[string]bool) error {
	var would, missing, gone int
	for _, r := range records {
		if removed[r.Tenant] {
			gone += len(r.Names)
			continue
		}
		owner, err := tenant.Parse(r.Tenant)
		if err != nil {
			return err
		}
		err = inTenant(cmd.Context(), pool, &owner, func(tx pgx.Tx) error {
			for _, name := range r.Names {
				switch found, err := contact.Get(cmd.Context(), tx, name); {
				case errors.Is(err, contact.ErrNotFound) || err == nil && found.ErasedAt != nil:
					missing++
				case err != nil:
					return err
				default:
					would++
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if c.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{"records": len(records), "dry_run": true, "would_erase": would, "passed_over": missing + gone, "of_removed_tenants": gone})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "nothing was changed: of %s %d would be erased for ever, and %d are not there or had been erased%s; give --yes\n",
		many(int64(len(records)), "record", "records"), would, missing, ofRemoved(gone))
	return err
}

// repeat erases once more who was erased by all names, since in an older database they
// may not have been merged yet; it returns how many were there. One that is merged into
// somebody who was not erased with it, or whom such a one is merged into, as it was before they
// were taken apart, is taken apart first.
func (c *contactsErase) repeat(ctx context.Context, a *app, pool *pgxpool.Pool, r erasureRecord) (erased int, err error) {
	owner, err := tenant.Parse(r.Tenant)
	if err != nil {
		return 0, err
	}
	for _, name := range r.Names {
		there := false
		err := inTenant(ctx, pool, &owner, func(tx pgx.Tx) error {
			found, err := contact.Get(ctx, tx, name)
			if errors.Is(err, contact.ErrNotFound) || err == nil && found.ErasedAt != nil {
				return nil
			}
			if err != nil {
				return err
			}
			there = true
			act := audit.Act{By: c.who.actor(a), Reason: r.Reason}
			if err := apart(ctx, tx, name, r.Names, act); err != nil {
				return err
			}
			_, err = contact.Erase(ctx, tx, nil, name, act, contact.EraseOptions{Suppress: c.suppress || r.Suppress, Recorded: true})
			return err
		})
		if err != nil {
			return erased, err
		}
		if there {
			erased++
		}
	}
	return erased, nil
}

// apart takes a contact apart from whoever is none of names: with those of names that it was merged into from who
// is above them, and then from those that were merged into any of them.
func apart(ctx context.Context, tx pgx.Tx, name string, names []string, act audit.Act) error {
	root := name
	for {
		found, err := contact.Get(ctx, tx, root)
		if err != nil {
			return err
		}
		if found.MergedInto == "" {
			break
		}
		if !slices.Contains(names, found.MergedInto) {
			if _, err := contact.Unmerge(ctx, tx, nil, root, act); err != nil {
				return err
			}
			break
		}
		root = found.MergedInto
	}
	aliases, err := contact.Aliases(ctx, tx, root)
	if err != nil {
		return err
	}
	into := map[string]string{}
	for _, of := range aliases {
		into[of.ID] = of.MergedInto
	}
	depth := func(of contact.Contact) (n int) {
		for id := of.ID; into[id] != ""; id = into[id] {
			n++
		}
		return n
	}
	slices.SortStableFunc(aliases, func(a, b contact.Contact) int { return depth(b) - depth(a) }) // the deepest first
	for _, of := range aliases {
		if slices.Contains(names, of.ID) || !slices.Contains(names, of.MergedInto) {
			continue
		}
		if _, err := contact.Unmerge(ctx, tx, nil, of.ID, act); err != nil {
			return err
		}
	}
	return nil
}

func newContactsErasures(a *app) *cobra.Command {
	var owner tenantFlag
	var f contact.ErasureFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use: "erasures", Short: "List who was erased, and whether it is done", Args: cobra.NoArgs,
		Long: "List erasures, newest first: who asked, why, how many deliveries were erased by now, and since when it is done. It is not\n" +
			"before transactions and deliveries that were under way have ended, and needs a relay that runs.",
		Example: "  deed contacts erasures --contact 01a1fe76-14ee-7f1b-b119-532699ab7d4c",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list page.Of[contact.Erasure]
				err := inTenant(cmd.Context(), pool, f.Tenant, func(tx pgx.Tx) (err error) {
					list, err = contact.Erasures(cmd.Context(), tx, f)
					if errors.Is(err, contact.ErrInvalid) {
						return usagef("%s", strings.Replace(err.Error(), "invalid: ", "", 1))
					}
					if err == nil && len(list.Items) == 0 {
						err = cmp.Or(knownTenant(cmd.Context(), tx, f.Tenant), knownContact(cmd.Context(), tx, f.Contact))
					}
					return err
				})
				if err != nil {
					return err
				}
				header := []string{"CONTACT", "AT", "DONE", "NAMES", "DELIVERIES", "WHO", "WHY"}
				return printPage(cmd, asJSON, "erasures", list, header, func(e contact.Erasure) []string {
					return []string{e.Contact, when(e.At), doneAt(e.FinishedAt), fmt.Sprint(len(e.Names)), fmt.Sprint(e.Deliveries), e.Actor, e.Reason}
				})
			})
		},
	}
	cmd.Flags().StringVar(&f.Contact, "contact", "", "only this contact's, by any id it had")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

func doneAt(at *time.Time) string {
	if at == nil {
		return "not yet"
	}
	return when(*at)
}
