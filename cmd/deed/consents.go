package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

func newConsents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "consents", Short: "List, set and confirm what contacts agree to",
		Long: `What a contact agrees to be written for: a word for each channel and purpose, of which the last one counts, and all of
which are kept. What is revoked is suppressed for the contact's addresses, in the same transaction. What holds by now is
shown by deed contacts show.`,
		Example: "  deed consents set email:ann@example.com --purpose newsletter --state revoked --source telephone\n  deed consents list email:ann@example.com",
	}
	cmd.AddCommand(newConsentsList(a), newConsentsSet(a), newConsentsConfirm(a))
	return cmd
}

func newConsentsList(a *app) *cobra.Command {
	var owner tenantFlag
	var f contact.WordFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [ID|TYPE:VALUE]", Short: "List what contacts have said, newest first", Args: cobra.MaximumNArgs(1),
		Long: `List what contacts have said, newest first: all of them, or one, by its id or by what it is known as, with what was said
by those that were merged into it.`,
		Example: "  deed consents list --purpose newsletter\n  deed consents list email:ann@example.com --json",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var list page.Of[contact.Noted]
				err := inTenant(cmd.Context(), pool, f.Tenant, func(tx pgx.Tx) (err error) {
					if len(args) > 0 {
						c, err := contact.Find(cmd.Context(), tx, f.Tenant, args[0])
						if err != nil {
							return orWhichTenant(err, f.Tenant, args[0])
						}
						f.Contact = c.ID
					}
					list, err = contact.Words(cmd.Context(), tx, f)
					if err == nil && len(list.Items) == 0 {
						err = knownTenant(cmd.Context(), tx, f.Tenant)
					}
					return err
				})
				if err != nil {
					return err
				}
				header := []string{"AT", "CHANNEL", "PURPOSE", "STATE", "CONTACT", "SOURCE", "WHO"}
				return printPage(cmd, asJSON, "consents", list, header, func(w contact.Noted) []string {
					return []string{when(w.At), w.Channel, w.Purpose, string(w.State), w.Contact, w.Source, w.By}
				})
			})
		},
	}
	cmd.Flags().StringVar(&f.Channel, "channel", "", "only those for this channel")
	cmd.Flags().StringVar(&f.Purpose, "purpose", "", "only those for this purpose")
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// confirmLink is the link by which a contact confirms what it was asked; "" for another
// word, or without a secret.
func (a *app) confirmLink(word contact.Word, owner *tenant.ID) (string, error) {
	if word.State != contact.Pending {
		return "", nil
	}
	file, err := a.config()
	if err != nil {
		return "", err
	}
	links, err := linksOf(file)
	if links == nil || err != nil {
		return "", err
	}
	asked := contact.Asked{Contact: word.Contact, Channel: word.Channel, Purpose: word.Purpose}
	if owner != nil && *owner != (tenant.ID{}) {
		asked.Tenant = owner.String()
	}
	return links.Confirm(asked, time.Now().Add(7*24*time.Hour)), nil
}

func newConsentsSet(a *app) *cobra.Command {
	var owner tenantFlag
	var word contact.Word
	var state, evidence string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "set ID|TYPE:VALUE --purpose NAME --state granted|revoked|pending --source TEXT", Short: "Note what a contact has said", Args: cobra.ExactArgs(1),
		Long: `Note what a contact has said of being written to. revoked: its addresses of the channel are suppressed for the purpose,
those that it gets later, too. granted: what stood only for a revocation is lifted, and nothing that somebody else has
suppressed. pending: it was asked, and has seven days to confirm; until then all is as before. With public.link_secret in
deed.yaml the link is printed by which it does. Who noted it is recorded: DEED_ACTOR, or the user of this machine.`,
		Example: "  deed consents set email:ann@example.com --purpose newsletter --state revoked --source telephone\n" +
			`  deed consents set phone:+493012345 --channel sms --purpose offers --state granted --source form --evidence '{"form": 7}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			for _, f := range []struct{ flag, value string }{{"purpose", word.Purpose}, {"state", state}, {"source", word.Source}} {
				if f.value == "" {
					return usagef("give --%s", f.flag)
				}
			}
			word.State = contact.State(state)
			if cmd.Flags().Changed("evidence") {
				text, err := textOf(cmd, "evidence", evidence)
				if err != nil {
					return err
				}
				if !json.Valid([]byte(text)) {
					return usagef("--evidence is not JSON; want an object, such as {\"form\": 7}")
				}
				word.Evidence = json.RawMessage(text)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var who operator
				var c contact.Contact
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					c, err = contact.Find(cmd.Context(), tx, id, args[0])
					return orWhichTenant(err, id, args[0])
				})
				if err != nil {
					return err
				}
				if id == nil {
					if id, err = tenantOf(cmd.Context(), pool, c.ID); err != nil {
						return err
					}
				}
				word.Contact = c.ID
				link, err := a.confirmLink(word, id) // first: what is wrong with the file is told before anything is noted
				if err != nil {
					return err
				}
				var now []contact.State
				err = inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					now, err = contact.SetConsents(cmd.Context(), tx, who.actor(a), word)
					return err
				})
				if errors.Is(err, contact.ErrInvalid) {
					return usagef("%s", strings.Replace(err.Error(), "invalid: consent 1: ", "", 1))
				}
				if err != nil {
					return err
				}
				said := map[string]any{"contact": c.ID, "channel": word.Channel, "purpose": word.Purpose, "state": now[0]}
				if link != "" {
					said["confirm"] = link
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), said)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s: %s\n", c.ID, word.Channel, word.Purpose, now[0])
				if link != "" {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
				} else if word.State == contact.Pending {
					fmt.Fprintln(cmd.ErrOrStderr(), "note: it may confirm within seven days; there is no public.link_secret in the configuration, so no link is printed by which it does")
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&word.Channel, "channel", "email", "email, sms, voice, social, chat or webhook")
	cmd.Flags().StringVar(&word.Purpose, "purpose", "", "what is written for, as newsletter (required)")
	cmd.Flags().StringVar(&state, "state", "", "granted, revoked or pending (required)")
	cmd.Flags().StringVar(&word.Source, "source", "", "where it was said, as telephone (required)")
	cmd.Flags().StringVar(&evidence, "evidence", "", "what shows it: a JSON object, @FILE or - for standard input")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "of this tenant, a UUID (default: the contact's)")
	return cmd
}
