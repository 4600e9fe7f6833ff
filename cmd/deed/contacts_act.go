package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

// contactFlags are what is said of somebody.
type contactFlags struct {
	emails, phones, identities []string
	data                       string
	person                     contact.Person
	verified                   bool
}

func (f *contactFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.emails, "email", nil, "an e-mail address; may be repeated")
	flags.StringArrayVar(&f.phones, "phone", nil, "a phone number, with + and the country's code; may be repeated")
	flags.StringArrayVar(&f.identities, "identity", nil, "TYPE=VALUE, as external_id=acct_7 or telegram=42; may be repeated")
	flags.StringVar(&f.data, "data", "", "what else is known, a JSON object, @FILE or - for standard input; its keys take the place of those that the contact has")
	flags.StringVar(&f.person.Zone, "zone", "", "the time zone, as Europe/Berlin")
	flags.StringVar(&f.person.Locale, "locale", "", "the language, as de or pt-BR")
	flags.BoolVar(&f.verified, "verified", false, "the identities are known to be theirs")
}

// read is the person whom the flags describe. No error has a value.
func (f *contactFlags) read(cmd *cobra.Command) (contact.Person, error) {
	p := f.person
	know := func(typ, value string) {
		p.Identities = append(p.Identities, contact.Identity{Type: typ, Value: value, Verified: f.verified})
	}
	for _, value := range f.emails {
		know("email", value)
	}
	for _, value := range f.phones {
		know("phone", value)
	}
	for i, text := range f.identities {
		typ, value, ok := strings.Cut(text, "=")
		if !ok || typ == "" {
			return p, usagef("--identity, number %d, is not TYPE=VALUE", i+1)
		}
		if err := (contact.Identity{Type: typ, Value: value}).Check(); err != nil {
			return p, usagef("--identity, number %d: %w", i+1, err)
		}
		know(typ, value)
	}
	if len(p.Identities) == 0 {
		return p, usagef("who is it? Give --email, --phone or --identity TYPE=VALUE")
	}
	if cmd.Flags().Changed("data") {
		if f.data == "" {
			return p, usagef("--data is empty; want a JSON object")
		}
		text, err := textOf(cmd, "data", f.data)
		if err != nil {
			return p, err
		}
		p.Data = json.RawMessage(text)
	}
	return p, nil
}

func newContactsAdd(a *app) *cobra.Command {
	var f contactFlags
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "add", Short: "Make a contact, or change the one that is known so", Args: cobra.NoArgs,
		Long: `Make a contact, or change the one that is known by one of these identities: it gets the rest of them, and what else is
given. Prints its id, and created, updated or unchanged; the same again changes nothing. Identities of several contacts
are a conflict: nothing is changed, both are named, and the exit status is 1. Who did it is recorded: DEED_ACTOR, or the
user of this machine.`,
		Example: "  deed contacts add --email ann@example.com --phone +493012345 --zone Europe/Berlin\n" +
			`  deed contacts add --identity external_id=acct_7 --data '{"plan": "free"}'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			person, err := f.read(cmd)
			if err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var who operator
				var list []contact.Upserted
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					list, err = contact.Upsert(cmd.Context(), tx, who.actor(a), person)
					return err
				})
				if errors.Is(err, contact.ErrInvalid) {
					return usagef("%s", strings.Replace(err.Error(), "invalid: contact 1: ", "", 1))
				}
				if err != nil {
					return err
				}
				return printUpserted(cmd, list[0], asJSON)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "for this tenant, a UUID")
	return cmd
}

func printUpserted(cmd *cobra.Command, u contact.Upserted, asJSON bool) (err error) {
	switch {
	case asJSON:
		err = printJSON(cmd.OutOrStdout(), u)
	case u.Outcome != contact.Conflicting && u.Outcome != contact.Full:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", u.ID, u.Outcome)
	}
	switch {
	case err != nil:
		return err
	case u.Outcome == contact.Full:
		return fmt.Errorf("contact %s would have over 100 identities; nothing of it was changed", u.ID)
	case u.Outcome != contact.Conflicting:
		return nil
	}
	return fmt.Errorf("conflict: these identities are of contacts %s; nothing was changed. deed contacts show ID says which is whose. "+
		"If they are one person: deed contacts merge %s --reason …; if not, leave out what is another's",
		strings.Join(u.Others, " and "), strings.Join(u.Others[:2], " "))
}

func newContactsMerge(a *app) *cobra.Command {
	act := contactAct{run: func(ctx context.Context, tx pgx.Tx, ids []string, act audit.Act) (any, string, error) {
		merged, err := contact.Merge(ctx, tx, nil, ids[0], ids[1], act)
		said := fmt.Sprintf("%s is another name of %s", ids[0], ids[1])
		if !merged {
			said = "they are one contact already"
		}
		return map[string]any{"from": ids[0], "into": ids[1], "merged": merged}, said, err
	}}
	cmd := &cobra.Command{
		Use: "merge FROM INTO --reason TEXT", Short: "Say that two contacts are one person", Args: cobra.ExactArgs(2),
		Long: `Say that two contacts are one person: FROM becomes another name of INTO, for all that is known of it. It keeps what it
has, so that deed contacts unmerge takes them apart as they were. What was merged into FROM comes along, and conflicts
between the two are settled. Who and why is recorded.`,
		Example: "  deed contacts merge 01a1fe76-14ee-7f1b-b119-532699ab7d4c 01a1fe76-14ee-7f1b-b119-5326990000aa --reason 'he said so'",
	}
	act.add(a, cmd)
	return cmd
}

func newContactsUnmerge(a *app) *cobra.Command {
	act := contactAct{run: func(ctx context.Context, tx pgx.Tx, ids []string, act audit.Act) (any, string, error) {
		into, err := contact.Unmerge(ctx, tx, nil, ids[0], act)
		return map[string]any{"id": ids[0], "from": into}, fmt.Sprintf("%s is a contact of its own again, and no name of %s", ids[0], into), err
	}}
	cmd := &cobra.Command{
		Use: "unmerge ID --reason TEXT", Short: "Take a contact apart from the one that it was merged into", Args: cobra.ExactArgs(1),
		Long: `Undo a merge: the contact is one of its own again, with what it had, and what was merged into it before comes along.
What the other one got since stays there. Who and why is recorded.`,
		Example: "  deed contacts unmerge 01a1fe76-14ee-7f1b-b119-532699ab7d4c --reason 'father and son'",
	}
	act.add(a, cmd)
	return cmd
}

// contactAct is what an operator does with contacts, by their ids.
type contactAct struct {
	who   operator
	owner tenantFlag
	json  bool
	run   func(ctx context.Context, tx pgx.Tx, ids []string, act audit.Act) (result any, said string, err error)
}

func (c *contactAct) add(a *app, cmd *cobra.Command) {
	c.who.add(cmd, "why (required)")
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	c.owner.add(cmd, "of this tenant, a UUID (default: the contact's)")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		owner, err := c.owner.id()
		if err != nil {
			return err
		}
		for i, id := range ids {
			if _, err := uuid.Parse(id); err != nil { // it may be an address, which no error repeats
				return usagef("argument %d is no contact's id, a UUID; deed contacts show TYPE:VALUE says it", i+1)
			}
		}
		if c.who.reason == "" {
			return usagef("why? Give --reason")
		}
		return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
			if owner == nil {
				if owner, err = tenantOf(cmd.Context(), pool, ids[0]); err != nil {
					return err
				}
			}
			var result any
			var said string
			err := inTenant(cmd.Context(), pool, owner, func(tx pgx.Tx) (err error) {
				result, said, err = c.run(cmd.Context(), tx, ids, c.who.act(a))
				return err
			})
			switch {
			case err != nil:
				return err
			case c.json:
				return printJSON(cmd.OutOrStdout(), result)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		})
	}
}

// tenantOf is the tenant whose contact that is.
func tenantOf(ctx context.Context, pool *pgxpool.Pool, id string) (*tenant.ID, error) {
	c, err := contact.Get(ctx, pool, id)
	if err != nil {
		return nil, err
	}
	owner, err := tenant.Parse(c.Tenant)
	return &owner, err
}
