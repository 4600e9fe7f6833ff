package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

func newContactsExport(a *app) *cobra.Command {
	var owner tenantFlag
	cmd := &cobra.Command{
		Use: "export ID|TYPE:VALUE", Short: "Print all that is known of somebody, as JSON", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Print all that is stored of a contact, as one JSON document: identities, data, contacts that were merged into it, what it
agreed to and when, what is suppressed for it, each delivery that was made for it or to one of its addresses, with its
contents and what its provider said of it, and what it wrote to us. It is what somebody gets who asks what is known of them.`,
		Example: "  deed contacts export email:ann@example.com > ann.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			return a.withLedger(cmd.Context(), func(l *delivery.Ledger, pool *pgxpool.Pool) error {
				var found contact.Contact
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
					found, err = contact.Find(cmd.Context(), tx, id, args[0])
					return orWhichTenant(err, id, args[0])
				})
				if err != nil {
					return err
				}
				e := &contactExport{pool: pool, ledger: l, out: cmd.OutOrStdout()}
				return e.write(cmd.Context(), found)
			})
		},
	}
	owner.add(cmd, "of this tenant, a UUID")
	return cmd
}

// contactExport writes what is stored of a contact, a part at a time.
type contactExport struct {
	pool   *pgxpool.Pool
	ledger *delivery.Ledger
	out    io.Writer
	owner  tenant.ID
}

// exportPage is how many of a list are in memory at a time.
const exportPage = 500

func (e *contactExport) write(ctx context.Context, c contact.Contact) (err error) {
	if e.owner, err = tenant.Parse(c.Tenant); err != nil {
		return err
	}
	aliases, err := contact.Aliases(ctx, e.pool, c.ID)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		value any
	}{{"{\"contact\":", c}, {",\"aliases\":", orEmpty(aliases)}} {
		if err := e.put(part.name, part.value); err != nil {
			return err
		}
	}
	err = e.list(",\"consents\":", func(put func(any) error) error {
		return eachPage(func(cursor string) (page.Of[contact.Noted], error) {
			return contact.Words(ctx, e.pool, contact.WordFilter{Tenant: &e.owner, Contact: c.ID, Cursor: cursor, Limit: exportPage})
		}, func(w contact.Noted) error { return put(w) })
	})
	if err != nil {
		return err
	}
	ids, theirs := []string{c.ID}, addresses{}
	theirs.add(c.Identities)
	for _, of := range aliases {
		ids = append(ids, of.ID)
		theirs.add(of.Identities)
	}
	if err := e.suppressions(ctx, theirs); err != nil {
		return err
	}
	if err := e.deliveries(ctx, ids, theirs); err != nil {
		return err
	}
	if err := e.messages(ctx, ids); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, "}")
	return err
}

// messages writes what the contacts wrote to us.
func (e *contactExport) messages(ctx context.Context, ids []string) error {
	return e.list(",\"messages\":", func(put func(any) error) error {
		for _, id := range ids {
			err := eachPage(func(cursor string) (page.Of[inbound.Entry], error) {
				return inbound.List(ctx, e.pool, inbound.Filter{Tenant: &e.owner, Contact: id, Body: true, Cursor: cursor, Limit: exportPage})
			}, func(m inbound.Entry) error { return put(m) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// addresses are the channels of each address that somebody is written to by.
type addresses map[string][]delivery.Channel

// add takes what somebody is known as, as far as it is an address (deed.known_addresses):
// another person's address may be what this one is called somewhere else.
func (a addresses) add(list []contact.Identity) {
	for _, i := range list {
		switch i.Type {
		case "email":
			a[i.Value] = append(a[i.Value], delivery.Email)
		case "phone":
			a[i.Value] = append(a[i.Value], delivery.SMS, delivery.Voice)
		case "slack":
			if len(i.Value) > 2 && strings.Contains(i.Value[1:len(i.Value)-1], ":") { // without a team it may be another's user
				a[i.Value] = append(a[i.Value], delivery.Chat)
			}
		case "telegram", "whatsapp", "whatsapp_user", "chat":
			a[i.Value] = append(a[i.Value], delivery.Chat)
		case "mastodon", "bluesky", "account":
			a[i.Value] = append(a[i.Value], delivery.Social)
		}
	}
}

// suppressions writes what is not sent to these addresses.
func (e *contactExport) suppressions(ctx context.Context, theirs addresses) error {
	return e.list(",\"suppressions\":", func(put func(any) error) error {
		for _, value := range slices.Sorted(maps.Keys(theirs)) {
			err := eachPage(func(cursor string) (page.Of[delivery.Suppression], error) {
				return delivery.Suppressions(ctx, e.pool, delivery.SuppressionFilter{Tenant: &e.owner, Address: value, Cursor: cursor, Limit: exportPage})
			}, func(s delivery.Suppression) error {
				if !slices.Contains(theirs[value], s.Channel) {
					return nil
				}
				return put(s)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// deliveries writes those for the contacts, and those to the addresses, each once.
func (e *contactExport) deliveries(ctx context.Context, ids []string, theirs addresses) error {
	filters := []delivery.Filter{{Contacts: ids}}
	for _, value := range slices.Sorted(maps.Keys(theirs)) {
		filters = append(filters, delivery.Filter{Recipient: value})
	}
	seen := map[string]bool{}
	return e.list(",\"deliveries\":", func(put func(any) error) error {
		for _, f := range filters {
			f.Tenant, f.Payload, f.Limit = &e.owner, true, exportPage
			err := eachPage(func(cursor string) (page.Of[delivery.Entry], error) {
				f.Cursor = cursor
				return e.ledger.List(ctx, f)
			}, func(d delivery.Entry) error {
				if seen[d.ID] || f.Recipient != "" && !slices.Contains(theirs[f.Recipient], d.Channel) {
					return nil
				}
				seen[d.ID] = true
				said, err := e.ledger.Feedback(ctx, d.ID)
				if err != nil {
					return err
				}
				return put(struct {
					delivery.Entry
					Feedback delivery.Feedback `json:"feedback"`
				}{d, said})
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// list writes a name, as it stands in the document, and an array of what walk puts.
func (e *contactExport) list(name string, walk func(put func(any) error) error) error {
	between := name + "["
	err := walk(func(value any) error {
		err := e.put(between, value)
		between = ","
		return err
	})
	if err != nil {
		return err
	}
	if between != "," {
		_, err = io.WriteString(e.out, between)
	}
	if err == nil {
		_, err = io.WriteString(e.out, "]")
	}
	return err
}

// eachPage walks a list that comes in pages.
func eachPage[T any](get func(cursor string) (page.Of[T], error), do func(T) error) error {
	for cursor := ""; ; {
		list, err := get(cursor)
		if err != nil {
			return err
		}
		for _, item := range list.Items {
			if err := do(item); err != nil {
				return err
			}
		}
		if cursor = list.Next; cursor == "" {
			return nil
		}
	}
}

// put writes a name, as it stands in the document, and a value.
func (e *contactExport) put(name string, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = fmt.Fprintf(e.out, "%s%s", name, text)
	}
	return err
}
