package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/mail"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/config"
)

func newEvents(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "events", Short: "Record what servers say of mail that we sent",
		Long: `What becomes of deliveries after a provider has taken them. Services tell it to a relay's public address; what comes back by
mail is read by a source of type smtp, or by deed events dsn.`,
		Example: "  deed events dsn < bounce.eml",
	}
	cmd.AddCommand(newEventsDSN(a))
	return cmd
}

// mostMail bounds a mail that is read.
const mostMail = 10 << 20

func newEventsDSN(a *app) *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "dsn < MAIL", Short: "Record the bounce that standard input has", Args: cobra.NoArgs,
		Long: `Read a mail that came to the return_path of a provider in deed.yaml, and record what it says: bounced, and why, or
delivered. For a mail server that hands bounces to a program. Reading one again changes nothing. The address that it came to
is looked for in Delivered-To, X-Original-To, Envelope-To and To, unless --to gives it. Needs deed_worker.

Ends with 0 if what it says is recorded, or was, or if it says nothing of a delivery, as an answer does; with 1 if the
address was not made here or its delivery is not there; with 2 if the input is no such mail. Nothing is changed by 1 and 2.`,
		Example: "  deed events dsn < bounce.eml\n  deed events dsn --to \"$RECIPIENT\" --json < bounce.eml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), mostMail+1))
			switch {
			case err != nil:
				return fmt.Errorf("read standard input: %w", err)
			case len(raw) > mostMail:
				return usagef("the mail is over %d MiB", mostMail>>20)
			case len(bytes.TrimSpace(raw)) == 0:
				return usagef("there is no mail in standard input")
			}
			return a.withBounces(cmd.Context(), func(b *delivery.Bounces) error {
				if to, err = returnAddress(b, to, raw); err != nil {
					return err
				}
				done, err := b.Take(cmd.Context(), to, raw)
				if err != nil {
					return dsnError(err)
				}
				return printRecorded(cmd.OutOrStdout(), done, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the address that the mail came to (default: as its headers say)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// withBounces runs fn with what takes the mail of deed.yaml's providers that comes back.
func (a *app) withBounces(ctx context.Context, fn func(*delivery.Bounces) error) error {
	file, err := a.config()
	if err != nil {
		return err
	}
	returning := *file
	returning.Providers = maps.Clone(file.Providers)
	maps.DeleteFunc(returning.Providers, func(_ string, p config.Provider) bool { return p.ReturnPath == "" })
	made, err := providers(&returning)
	if err != nil {
		return err
	}
	defer closeProviders(made)
	readers := mailReaders(file, made)
	if len(readers) == 0 {
		return usagef("no provider of the configuration (--config, DEED_CONFIG or ./deed.yaml) has a return_path")
	}
	pool, err := a.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: made})
	if err != nil {
		return err
	}
	return fn(l.Bounces(readers))
}

// returnAddress is the one that a mail came to.
func returnAddress(b *delivery.Bounces, to string, raw []byte) (string, error) {
	if to != "" {
		if !b.Takes(to) {
			return "", usagef("--to: it is of no provider's return_path")
		}
		return to, nil
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return "", usagef("standard input is no e-mail that can be read")
	}
	for _, name := range []string{"Delivered-To", "X-Original-To", "Envelope-To", "To"} {
		list, err := m.Header.AddressList(name)
		if err != nil {
			continue
		}
		for _, address := range list {
			if b.Takes(address.Address) {
				return address.Address, nil
			}
		}
	}
	return "", usagef("the mail came to no provider's return_path, as far as its headers say: give the address by --to")
}

func dsnError(err error) error {
	switch {
	case errors.Is(err, delivery.ErrUnverified):
		return errors.New("the address was not made here, or has been changed: nothing was recorded")
	case errors.Is(err, delivery.ErrNoMail):
		return usagef("standard input is no e-mail that can be read")
	}
	return err
}

func printRecorded(w io.Writer, done delivery.Recorded, asJSON bool) error {
	if asJSON {
		if err := printJSON(w, map[string]int64{"matched": done.Matched, "strange": done.Strange, "settled": int64(done.Settled), "ignored": int64(done.Ignored)}); err != nil {
			return err
		}
	}
	if done.Strange > 0 {
		return errors.New("it is of no delivery that the provider has called: nothing was recorded")
	}
	if asJSON {
		return nil
	}
	text := "recorded"
	switch {
	case done.Matched == 0:
		text = "it says nothing of a delivery: nothing was recorded"
	case done.Settled > 0:
		text = "recorded; the delivery was in doubt, and is known to have been sent now"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
