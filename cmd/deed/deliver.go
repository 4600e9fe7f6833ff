package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/tenant"
)

func newDeliver(a *app) *cobra.Command {
	var d delivery.Delivery
	var e delivery.EmailPayload
	var owner tenantFlag
	var who operator
	var channel, payload, key string
	var attach []string
	var atLeastOnce, asJSON bool
	var wait, expires time.Duration
	cmd := &cobra.Command{
		Use:   "deliver --channel email --provider NAME --to ADDRESS --subject TEXT --text TEXT",
		Short: "Reserve one delivery",
		Long: `Reserve one delivery (an e-mail, a webhook or another call of a provider) and print its id; a relay with
channels.outbox.enabled makes it. Reserving under the same --key again makes no second one. An e-mail is made of --from,
--subject, --text, --html, --cc, --reply-to and --attach; a message, a call or a post of a --text, or of a --payload, a
JSON object, as a webhook is. What the provider's service would refuse of itself, such as a text that is too long, is
told at once if the provider is in deed.yaml, and nothing is reserved; else the delivery fails when it is attempted.`,
		Example: `  deed deliver --channel email --provider smtp --to you@example.com --subject Hello --text 'It works.' --wait 10s
  deed deliver --provider mail --to you@example.com --cc boss@example.com --subject Bill --text Here. --attach invoice.pdf
  deed deliver --channel sms --provider twilio --to +16505551234 --text 'It works.'
  deed deliver --channel webhook --provider hooks --to https://example.com/hook --payload '{"n": 1}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.Channel, d.By = delivery.Channel(channel), who.actor(a)
			payload, err := textOf(cmd, "payload", payload)
			if err != nil {
				return err
			}
			if err := readAttachments(&e, attach); err != nil {
				return err
			}
			for _, f := range []struct{ name, text string }{
				{"to", d.Recipient},
				{"from", e.From},
				{"reply-to", e.ReplyTo},
				{"cc", strings.Join(e.CC, "")},
				{"subject", e.Subject},
				{"text", e.Text},
				{"html", e.HTML},
				{"payload", payload},
				{"key", key},
				{"correlation-id", d.CorrelationID},
			} {
				if !utf8.ValidString(f.text) {
					return usagef("--%s is not UTF-8", f.name)
				}
			}
			switch {
			case !slices.Contains(channels, d.Channel):
				return usagef("there is no channel %q: it is email, sms, voice, social, chat or webhook", channel)
			case d.Recipient == "":
				return usagef("to whom? Give --to")
			case payload != "" && (e.From+e.ReplyTo+e.Subject+e.Text+e.HTML != "" || e.CC != nil || e.Attachments != nil):
				return usagef("--payload and the fields of an e-mail exclude each other")
			case payload != "":
				if d.Payload = json.RawMessage(payload); !json.Valid(d.Payload) {
					return usagef("--payload is not JSON")
				}
			case d.Channel == delivery.Email:
				d.Payload = e.JSON()
				if err := checkEmail(d); err != nil {
					return err
				}
			case d.Channel == delivery.Webhook:
				return usagef(`the channel webhook wants a --payload, a JSON object of yours`)
			case e.From+e.ReplyTo+e.Subject+e.HTML != "" || e.CC != nil || e.Attachments != nil:
				return usagef("--from, --reply-to, --subject, --html, --cc and --attach are an e-mail's: the channel %s takes --text or a --payload", channel)
			case e.Text == "":
				return usagef(`the channel %s wants a --text, or a --payload such as '{"text": "Hello"}'`, channel)
			default:
				if d.Payload, err = json.Marshal(map[string]string{"text": e.Text}); err != nil {
					return err
				}
			}
			if atLeastOnce {
				d.Guarantee = delivery.AtLeastOnce
			}
			if key == "" {
				key = uuid.New().String()
			}
			d.Key = delivery.NewKey("deed deliver", key)
			id, err := owner.id()
			if err != nil {
				return err
			}
			if err := a.noteUnchecked(cmd, d.Provider); err != nil {
				return err
			}
			return a.withLedgerOf(cmd.Context(), d.Provider, func(l *delivery.Ledger, pool *pgxpool.Pool) error {
				if err := checkKind(cmd.Context(), l, pool, d); err != nil {
					return err
				}
				made, entry, err := reserveOne(cmd.Context(), l, pool, id, fmt.Sprintf(" (--key %q)", key), wait, func(tx pgx.Tx) ([]delivery.Reserved, error) {
					if expires > 0 { // by the clock that it is judged by
						err := tx.QueryRow(cmd.Context(), `select clock_timestamp() + make_interval(secs => $1)`, expires.Seconds()).Scan(&d.ExpiresAt)
						if err != nil {
							return nil, err
						}
					}
					return l.Reserve(cmd.Context(), tx, d)
				})
				if err != nil {
					return err
				}
				if asJSON {
					err = printJSON(cmd.OutOrStdout(), map[string]any{"id": made.ID, "key": key, "duplicate": made.Duplicate, "status": entry.Status})
				} else {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", made.ID, entry.Status)
				}
				if made.Duplicate {
					noteDuplicate(cmd, key, entry)
				}
				if err == nil && wait > 0 && entry.SentAt == nil {
					return &exitError{exitFailed, errors.New(cmp.Or(pausedWhy(cmd.Context(), l, entry, wait), undelivered(entry, wait)))}
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&channel, "channel", "email", "email, sms, voice, social, chat or webhook")
	f.StringVar(&d.Provider, "provider", "smtp", "the provider, by its name in deed.yaml")
	f.StringVar(&d.Recipient, "to", "", "the recipient's address")
	f.StringVar(&e.From, "from", "", "the sender (default: the provider's)")
	f.StringVar(&e.ReplyTo, "reply-to", "", "where answers go: an address, or several with commas between them (default: to the sender)")
	f.StringArrayVar(&e.CC, "cc", nil, "an address that gets a copy; may be repeated")
	f.StringArrayVar(&attach, "attach", nil, "a file that goes with it; may be repeated")
	f.StringVar(&e.Subject, "subject", "", "the subject")
	f.StringVar(&e.Text, "text", "", "the text")
	f.StringVar(&e.HTML, "html", "", "the text as HTML")
	f.StringVar(&payload, "payload", "", "the payload, a JSON object; @FILE: what the file has, -: standard input")
	f.StringVar(&key, "key", "", "what the delivery is for; the same again is the same delivery (default: a new one)")
	f.StringVar(&d.Purpose, "purpose", "", "what it is for, as newsletter: who left that is skipped (default: none, it is transactional)")
	f.StringVar(&d.Contact, "contact", "", "the id of the contact whom it is for")
	f.StringVar(&d.CorrelationID, "correlation-id", "", "what logs and traces know it by")
	f.BoolVar(&atLeastOnce, "at-least-once", false, "in doubt, send again rather than wait for a person")
	durationVar(cmd, &expires, "expires", 0, "call nobody for it after this long (default: it does not expire)")
	durationVar(cmd, &wait, "wait", 0, "wait so long for it to be delivered, and fail if it is not")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "for this tenant, a UUID")
	who.addBy(cmd)
	return cmd
}

// noteUnchecked says why what a provider's service would refuse is not told now.
func (a *app) noteUnchecked(cmd *cobra.Command, provider string) error {
	file, err := a.config()
	if err != nil {
		return err
	}
	if err := file.Lacks("providers." + provider); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: what the service of %s would refuse of itself is told only when it is called: %s\n", provider, err)
	}
	return nil
}

// checkKind says what the service of a provider that deed.yaml does not have would refuse, as
// far as that is the same for everybody who uses it: by the type that it is registered as.
func checkKind(ctx context.Context, l *delivery.Ledger, pool *pgxpool.Pool, d delivery.Delivery) error {
	states, err := l.Providers(ctx)
	if err != nil {
		return nil // an application's login may not look at them, and reserves all the same
	}
	for _, s := range states {
		if s.Name != d.Provider {
			continue
		}
		switch s.Kind {
		case "smtp", "postmark", "resend", "sendgrid", "ses":
			if d.Channel != delivery.Email {
				return usagef("the provider %s (%s) does not serve the channel %s", s.Name, s.Kind, d.Channel)
			}
			return checkEmail(d)
		case "bluesky", "mastodon", "slack", "telegram", "twilio", "whatsapp":
			p, err := ofKind(s)
			if err != nil {
				return err
			}
			list := map[string]delivery.ProviderOptions{d.Provider: {Provider: p}}
			defer closeProviders(list)
			checking, err := delivery.New(ctx, pool, delivery.Options{Providers: list})
			if err != nil {
				return err
			}
			return checking.Check(d)
		}
	}
	return nil
}

// ofKind is a provider that calls nobody, of the kind that another one is registered as and, where the
// account is whom deliveries name, of its account.
func ofKind(s delivery.ProviderState) (delivery.Provider, error) {
	const nowhere = "127.0.0.1:1"
	switch s.Kind {
	case "bluesky":
		return bluesky.New(bluesky.Options{Account: s.Account, Password: "none", Endpoint: "http://" + nowhere})
	case "mastodon": // how long a status may be the instance says
		return mastodon.New(mastodon.Options{Account: s.Account, Token: "none", Endpoint: "http://" + nowhere, MaxCharacters: math.MaxInt32})
	}
	built, err := builtIn(nowhere, nowhere, devEvents{})
	if err != nil {
		return nil, err
	}
	for kind, p := range built {
		if kind != s.Kind {
			closeProviders(map[string]delivery.ProviderOptions{"": {Provider: p}})
		}
	}
	return built[s.Kind], nil
}

// checkEmail says what no provider of e-mail takes, whatever its own rules.
func checkEmail(d delivery.Delivery) error {
	_, err := delivery.ReadEmail(delivery.Draft{Recipient: d.Recipient, Payload: d.Payload}, delivery.EmailRules{From: "provider@localhost", FromAllowed: []string{"*"}, HeadersAllowed: []string{"*"}})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

// readAttachments puts files into an e-mail, of which more than one may have is not read.
func readAttachments(e *delivery.EmailPayload, paths []string) error {
	const most = 7<<20 + 1
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return usagef("--attach: %w", err)
		}
		content, err := io.ReadAll(io.LimitReader(file, most))
		_ = file.Close() // it was only read
		if err != nil {
			return usagef("--attach: %w", err)
		}
		e.Attachments = append(e.Attachments, delivery.Attachment{Name: filepath.Base(path), Type: mime.TypeByExtension(filepath.Ext(path)), Content: content})
	}
	return nil
}

// noteDuplicate says that the key had been used, and for what.
func noteDuplicate(cmd *cobra.Command, key string, e delivery.Entry) {
	to := e.Recipient
	if to == "" {
		to = "nobody"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "note: a duplicate: the key %q is that of delivery %s, reserved %s for %s, which is %s; nothing was reserved\n",
		key, e.ID, when(e.CreatedAt), clip(to, 0), e.Status)
}

// channels are those that a delivery can have.
var channels = []delivery.Channel{delivery.Email, delivery.SMS, delivery.Voice, delivery.Social, delivery.Chat, delivery.Webhook}

// pausedWhy says that a delivery waits since its provider is paused: until when, and why.
func pausedWhy(ctx context.Context, l *delivery.Ledger, e delivery.Entry, wait time.Duration) string {
	if e.Status != delivery.Queued {
		return ""
	}
	states, err := l.Providers(ctx)
	if err != nil {
		return ""
	}
	for _, s := range states {
		for _, p := range s.Pauses {
			if s.Name != e.Provider || p.Tenant != "" && p.Tenant != e.Tenant || p.Destination != "" && !strings.Contains(strings.ToLower(e.Recipient), p.Destination) {
				continue
			}
			what := "the provider " + e.Provider
			if p.Destination != "" {
				what += " at " + p.Destination
			}
			until := "until " + when(p.Until) + ", when a delivery finds out whether it is over"
			if p.Probing || time.Until(p.Until) <= 0 {
				until = "until the next delivery finds out whether it is over"
			}
			return fmt.Sprintf("not delivered within %s: %s is paused since %s, %s: %s; deed providers resume %s ends it", wait, what, when(p.Since), until, cmp.Or(p.Why, "nobody said why"), e.Provider)
		}
	}
	return ""
}

func undelivered(e delivery.Entry, wait time.Duration) string {
	switch {
	case e.DoubtReason != "":
		return fmt.Sprintf("in doubt: %s; deed deliveries show %s says what becomes of it", e.DoubtReason, e.ID)
	case e.SkipReason != "":
		return "skipped: " + e.SkipReason
	case e.LastError != "":
		return e.LastError
	case e.Status == delivery.Sending:
		return fmt.Sprintf("not delivered within %s: the provider %s is being called, and has not answered yet; deed deliveries show %s says what becomes of it", wait, e.Provider, e.ID)
	}
	return fmt.Sprintf("not delivered within %s; is a relay running with channels.outbox.enabled, and the provider %s in its deed.yaml?", wait, e.Provider)
}

// reserveOne reserves a delivery for a tenant, and returns it as it is when it is finished or held, or after wait. As soon as it may
// be stored errors name it, and with again how to ask for the same one: who gave the command again would make another.
func reserveOne(ctx context.Context, l *delivery.Ledger, pool *pgxpool.Pool, owner *tenant.ID, again string, wait time.Duration,
	reserve func(pgx.Tx) ([]delivery.Reserved, error),
) (r delivery.Reserved, e delivery.Entry, err error) {
	var made []delivery.Reserved
	err = inTenant(ctx, pool, owner, func(tx pgx.Tx) (err error) {
		made, err = reserve(tx)
		return err
	})
	if len(made) == 0 {
		return r, e, err
	}
	if r = made[0]; err != nil {
		return r, e, fmt.Errorf("delivery %s may be reserved%s, as its commit has no answer: %w", r.ID, again, err)
	}
	if wait <= 0 && !r.Duplicate {
		return r, delivery.Entry{ID: r.ID, Status: r.Status}, nil
	}
	if e, err = awaitDelivery(ctx, l, pool, owner, r.ID, wait); err != nil {
		err = fmt.Errorf("delivery %s is reserved%s, and goes on: %w", r.ID, again, err)
	}
	return r, e, err
}

// awaitDelivery returns a delivery of a tenant's when it is finished or held, or after wait.
func awaitDelivery(ctx context.Context, l *delivery.Ledger, pool *pgxpool.Pool, owner *tenant.ID, id string, wait time.Duration) (delivery.Entry, error) {
	end := time.Now().Add(wait)
	for {
		var e delivery.Entry
		err := inTenant(ctx, pool, owner, func(tx pgx.Tx) (err error) { // or a login of the application does not see it
			e, _, err = l.ShowIn(ctx, tx, id, false)
			return err
		})
		if err != nil || e.FinishedAt != nil || e.HeldAt != nil || !time.Now().Before(end) {
			return e, err
		}
		if !work.Sleep(ctx, 50*time.Millisecond) {
			return e, ctx.Err()
		}
	}
}
