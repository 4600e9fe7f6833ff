package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/tenant"
)

// linksOf makes and checks the links of a file; nil: it has no secret for them.
func linksOf(file *config.Config) (*contact.Links, error) {
	if err := lacks(file, "public"); err != nil {
		return nil, err
	}
	p := file.Public
	if p.LinkSecret.Reveal() == "" {
		return nil, nil
	}
	opts := contact.LinkOptions{URL: p.URL, Secret: p.LinkSecret.Reveal()}
	for _, previous := range p.PreviousLinkSecrets {
		opts.Previous = append(opts.Previous, previous.Reveal())
	}
	links, err := contact.NewLinks(opts)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("public.link_secret: %w", err)}
	}
	return links, nil
}

func newConsentsConfirm(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "confirm LINK", Short: "Note that somebody has confirmed what they were asked", Args: cobra.ExactArgs(1),
		Long: `Note that somebody has confirmed what they were asked (deed consents set --state pending), by the link that they were
sent, as their own click on it does: public.link_secret in deed.yaml signs links. Says whether that was news.`,
		Example: "  deed consents confirm https://hooks.example.com/confirm/AQAAAABo…",
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			links, err := linksOf(file)
			if err != nil {
				return err
			}
			if links == nil {
				return usagef("there is no public.link_secret in the configuration, by which links are known")
			}
			asked, err := links.Confirmed(args[0], time.Now())
			if err != nil {
				return usagef("%s", err)
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				var who operator
				isNew, err := confirm(cmd.Context(), pool, who.actor(a), asked)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"contact": asked.Contact, "channel": asked.Channel, "purpose": asked.Purpose, "confirmed": true, "new": isNew})
				}
				said := "had been confirmed before"
				if isNew {
					said = "confirmed"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s: %s\n", asked.Contact, asked.Channel, asked.Purpose, said)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func confirm(ctx context.Context, db contact.DB, by string, asked contact.Asked) (bool, error) {
	owner, err := tenant.Parse(asked.Tenant)
	if asked.Tenant == "" {
		owner, err = tenant.ID{}, nil
	}
	if err != nil {
		return false, err
	}
	return contact.ConfirmConsent(ctx, db, &owner, by, asked, json.RawMessage(`{"link": true}`))
}

// confirmPage is where links to confirm lead: a page with a button, since programs that
// look at mails follow links and press no buttons.
type confirmPage struct {
	links *contact.Links
	acts  *linked
}

var confirmHTML = template.Must(template.New("confirm").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="robots" content="noindex"><title>{{.Title}}</title>
<style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:30rem;margin:15vh auto;padding:0 1rem}button{font:inherit;padding:.5rem 1.5rem}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Ask}}<form method="post"><button>Confirm</button></form>{{end}}</body></html>
`))

type confirmText struct {
	Title, Text string
	Ask         bool
}

func (p *confirmPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the link is in the address
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	answer := func(code int, text confirmText) {
		w.WriteHeader(code)
		_ = confirmHTML.Execute(w, text) // the reader may be gone
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		h.Set("Allow", "GET, POST")
		answer(http.StatusMethodNotAllowed, confirmText{Title: "Not so", Text: "Open the link in a browser."})
		return
	}
	asked, err := p.links.Confirmed(r.PathValue("token"), time.Now())
	switch {
	case errors.Is(err, contact.ErrExpired):
		answer(http.StatusGone, confirmText{Title: "Too late", Text: "The time of this link is over. Ask for another one."})
		return
	case err != nil:
		answer(http.StatusNotFound, confirmText{Title: "No such link", Text: "This link is not complete, or none of ours."})
		return
	case r.Method == http.MethodGet:
		answer(http.StatusOK, confirmText{Title: "Please confirm", Text: "Do you want to be written to for: " + asked.Purpose + "?", Ask: true})
		return
	}
	err = p.acts.do(r.Context(), asked.Tenant, func(ctx context.Context, tx contact.DB) error {
		_, err := confirm(ctx, tx, "link", asked)
		return err
	})
	switch {
	case err == nil:
		answer(http.StatusOK, confirmText{Title: "Thank you", Text: "It is confirmed."})
	case errors.Is(err, contact.ErrNotFound), errors.Is(err, contact.ErrConflict):
		answer(http.StatusGone, confirmText{Title: "Too late", Text: "The time of this link is over. Ask for another one."})
	default:
		p.acts.failed(w, answer, err, "a consent could not be confirmed", "contact", asked.Contact)
	}
}
