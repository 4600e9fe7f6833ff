package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

// peopleFlags say to whom a campaign goes: the same flags for every command that reads one.
type peopleFlags struct {
	csv, format, sql, sqlURL, audience string
	segment                            bool
	owner                              tenantFlag
}

func (p *peopleFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.csv, "csv", "", "the people are the rows of this file, CSV or NDJSON; - is standard input")
	f.StringVar(&p.format, "format", "", "csv or ndjson (default: by the file's name; csv of standard input)")
	f.StringVar(&p.sql, "sql", "", "the people are the rows of the query in this file")
	f.StringVar(&p.sqlURL, "sql-url", "", "the database that the query is of, in which it only reads; also DEED_SQL_URL (default: deed's)")
	f.BoolVar(&p.segment, "segment", false, "the people are those contacts that the campaign's segment chooses")
	f.StringVar(&p.audience, "audience", "", "the people are this audience, by its name, which is ready")
	p.owner.add(cmd, "for this tenant, a UUID")
	cmd.MarkFlagsMutuallyExclusive("csv", "sql", "segment", "audience")
}

// with reads a campaign and its people, and runs fn with both.
func (p *peopleFlags) with(cmd *cobra.Command, a *app, name string, fn func(*file.File, *pgxpool.Pool, file.Options) error) error {
	owner, err := p.owner.id()
	if err != nil {
		return err
	}
	f, err := file.Read(name)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) (err error) {
		opts := file.Options{Scope: campaign.Scope{Tenant: owner}}
		if opts.Source, err = p.source(cmd, a, f, pool, opts.Scope); err != nil {
			return err
		}
		if opts.Source != nil {
			defer func() { err = errors.Join(err, opts.Source.Close()) }()
		}
		if p.audience != "" {
			found, channel, err := campaign.FindAudience(cmd.Context(), pool, opts.Scope, p.audience)
			switch {
			case err != nil:
				return err
			case !found.Ready || channel != f.Request.Channel:
				return fmt.Errorf("the audience %q is not ready, or not of the channel %s", p.audience, f.Request.Channel)
			}
			opts.Audience = found.ID
		}
		opts.Sender = a.senders(pool, f.Request.Provider)
		return fn(f, pool, opts)
	})
}

// source reads the rows that the flags name; nil: they name none.
func (p *peopleFlags) source(cmd *cobra.Command, a *app, f *file.File, pool *pgxpool.Pool, scope campaign.Scope) (*file.Source, error) {
	ctx := cmd.Context()
	switch {
	case p.csv != "":
		format := p.format
		if p.csv == "-" {
			format = cmp.Or(format, "csv")
		}
		in, format, stop, err := openRows(cmd, p.csv, format, "the first names the columns")
		if err != nil {
			return nil, err
		}
		defer stop()
		return f.Read(ctx, in, cmp.Or(map[string]string{"-": "standard input"}[p.csv], p.csv), format)
	case p.sql != "":
		text, err := os.ReadFile(p.sql)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		url := setting(p.sqlURL, "DEED_SQL_URL", "", "")
		if url == "" {
			if url, err = a.database(); err != nil {
				return nil, err
			}
		}
		conn, err := connect(ctx, url)
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close(ctx) }() // it was only read
		return f.Query(ctx, conn, p.sql, string(text))
	case p.segment:
		return f.Contacts(ctx, pool, scope)
	}
	return nil, nil
}

// noteMissing tells what members lack of what the templates write.
func noteMissing(cmd *cobra.Command, c file.Checked) {
	for _, m := range c.Missing {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is missing of %d of the first %s, the first in row %d; nothing is written in its place (| default: gives something)\n",
			m.Name, m.Members, many(int64(c.Sampled), "member", "members"), m.First)
	}
}

func newCampaignCheck(a *app) *cobra.Command {
	var people peopleFlags
	var sample int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Say what is wrong with a campaign's file", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Say what would keep a campaign from being deployed, all at once: keys and texts, with their lines, rows that cannot be
read, templates that make nothing of somebody's data, and what is missing beside the file, by name. What the first
members would get is made; data that they lack are noted. Nothing is stored. Without people it is the campaign alone
that is checked.`,
		Example: "  deed campaign check spring.yaml --csv people.csv",
		RunE: func(cmd *cobra.Command, args []string) error {
			return people.with(cmd, a, args[0], func(f *file.File, pool *pgxpool.Pool, opts file.Options) error {
				opts.Sample = sample
				checked, err := f.Check(cmd.Context(), pool, opts)
				noteMissing(cmd, checked)
				if err != nil {
					return err
				}
				checked.Missing = orEmpty(checked.Missing)
				if asJSON {
					return printJSON(cmd.OutOrStdout(), checked)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: it is sound; %s looked at\n", args[0], many(int64(checked.Sampled), "member was", "members were"))
				return err
			})
		},
	}
	people.add(cmd)
	cmd.Flags().IntVar(&sample, "sample", 100, "of how many members what they would get is made, up to 1000")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// deployedCampaign is what deed campaign deploy prints.
type deployedCampaign struct {
	file.Deployed
	Members int64 `json:"members"`
	Served  *bool `json:"served"` // somebody carries out campaigns; null: it could not be looked
}

func newCampaignDeploy(a *app) *cobra.Command {
	var people peopleFlags
	var opts file.LoadOptions
	var request, at string
	var how campaign.Window
	var who operator
	var dry, wait, asJSON bool
	cmd := &cobra.Command{
		Use: "deploy FILE --csv PEOPLE", Short: "Make a run of a campaign's file", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Check a campaign (deed campaign check), load its people, --batch of them in a transaction, and make its run, which
relays with campaigns.enabled carry out. It may be given again: interrupted, it goes on where it was, and the same
file to the same people is the same run, so nobody is written to twice; to send it once more give another
--request-id. With --sql and --segment, whose people may be others each time, it needs one: given again with it, it is
the same run, or refused where the people have changed. Bad rows are named, and nobody is written to then, unless
--leave-out-bad has only the others be.`,
		Example: "  deed campaign deploy spring.yaml --csv people.csv --dry-run\n  deed campaign deploy spring.yaml --csv people.csv --at 2026-03-20T09:00:00Z\n" +
			"  deed campaign deploy spring.yaml --sql customers.sql --sql-url postgres://reader@shop/shop --request-id spring-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			begins, local, err := parseAt(at)
			if err != nil {
				return err
			}
			if people.csv == "" && people.sql == "" && people.audience == "" && !people.segment {
				return usagef("to whom? Give --csv, --sql, --segment or --audience")
			}
			if (people.sql != "" || people.segment) && request == "" && !dry {
				return usagef("--sql and --segment need --request-id, such as --request-id spring-1: read again, the people may be others, or in another order, and everybody would be written to by another run; given again with the same id, it is the same run, or it is refused")
			}
			return people.with(cmd, a, args[0], func(f *file.File, pool *pgxpool.Pool, to file.Options) error {
				to.RequestID, to.At, to.LocalTime, to.Load = request, begins, local, opts
				to.Scope.By = who.actor(a)
				if err := overrule(&f.Request, how, local); err != nil {
					return err
				}
				return deployCampaign(cmd, f, pool, to, dry, wait, asJSON)
			})
		},
	}
	people.add(cmd)
	who.addBy(cmd)
	fl := cmd.Flags()
	fl.StringVar(&request, "request-id", "", "the request's own id: the same one is the same run (default: made of the file, the people, --at and what else is given here; --sql and --segment need one)")
	fl.StringVar(&at, "at", "", "when it begins, such as 2026-03-20T09:00:00Z, or without a Z or an offset by each one's own zone (default: now)")
	fl.StringVar(&how.IfPassed, "if-passed", "", "who is late for such a time: now, next_day or skip (default: the file's, or next_day)")
	fl.StringVar(&how.QuietHours, "quiet-hours", "", "when nobody is written to, by their own zone, such as 22:00-08:00 (default: the file's)")
	fl.StringVar(&how.Zone, "zone", "", "the zone of who has none, such as Europe/Paris (default: the file's, or UTC)")
	fl.StringVar(&how.Rate, "rate", "", "how many go at the most, such as 10/s, 600/min or 5000/h (default: the file's)")
	fl.BoolVar(&opts.LeaveOut, "leave-out-bad", false, "leave bad rows out, and write to the others")
	fl.IntVar(&opts.Batch, "batch", 1000, "rows a transaction, up to 10000")
	fl.BoolVar(&dry, "dry-run", false, "only check it")
	fl.BoolVar(&wait, "wait", false, "watch the run until it ends, and exit as deed campaign watch does")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func deployCampaign(cmd *cobra.Command, f *file.File, pool *pgxpool.Pool, to file.Options, dry, wait, asJSON bool) error {
	ctx, name := cmd.Context(), ""
	if to.Source != nil {
		name = to.Source.Name
	}
	shown := newProgress(cmd, name, "Mended, the next ones are named")
	to.IgnoreBad = to.Load.LeaveOut
	checked, err := f.Check(ctx, pool, to)
	noteMissing(cmd, checked)
	if err != nil || dry {
		checked.Missing = orEmpty(checked.Missing)
		if err == nil && asJSON {
			err = printJSON(cmd.OutOrStdout(), checked)
		} else if err == nil {
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: it is sound, and was not deployed\n", f.Name)
		}
		return err
	}
	report := func(l file.Loaded, last bool) {
		shown.report(last, "%d of %d rows: %s, %d left out ", l.Read, l.Rows, many(l.Members, "member", "members"), l.LeftOut)
	}
	to.Load.Rejected = shown.reject
	to.Load.Progress = func(l file.Loaded) { report(l, false) }
	d, err := f.Deploy(ctx, pool, to)
	if d.Loaded != nil {
		report(*d.Loaded, true)
	}
	if err != nil {
		return err
	}
	r, err := campaign.Find(ctx, pool, d.Run)
	if err != nil {
		return fmt.Errorf("run %s is deployed, and could not be looked at: %w", d.Run, err)
	}
	served := noteServed(cmd, pool, r)
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), deployedCampaign{d, r.Members, served})
	} else {
		did := "deployed"
		if !d.New {
			did = "was deployed before, by the same request"
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s; %s, begins %s\n", d.Run, did, many(r.Members, "member", "members"), begins(r))
	}
	if err != nil || !wait {
		return err
	}
	s, err := watchCampaign(cmd, pool, d.Run)
	if err != nil {
		return err
	}
	return judgeCampaign(s.Run)
}

// noteServed notes where nobody carries out campaigns, and so a run that has not ended; nil: it could not be
// looked, which keeps nobody from hearing of the run that was made.
func noteServed(cmd *cobra.Command, pool *pgxpool.Pool, r campaign.Run) *bool {
	served, err := campaign.Served(cmd.Context(), pool)
	switch {
	case err != nil:
		_, _ = fmt.Fprintf(unescaped(cmd.ErrOrStderr()), "note: it could not be looked whether a relay carries out campaigns: %v\n", err)
		return nil
	case !served && r.FinishedAt == nil:
		fmt.Fprintln(cmd.ErrOrStderr(), "note: no relay carries out campaigns now, and nobody gets anything until one does: run one with campaigns: {enabled: true}")
	}
	return &served
}

// someoneFlags say whose data a message is made of.
type someoneFlags struct {
	contact, data, variant string
	member                 int64
}

func (s *someoneFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.contact, "contact", "", "made of this contact's data: ID or TYPE:VALUE, such as email:ann@example.com")
	cmd.Flags().Int64Var(&s.member, "member", 0, "made of the people's row of this number, from 1")
	cmd.Flags().StringVar(&s.data, "data", "", `made of these data, a JSON object such as {"name": "Ann"}`)
	cmd.Flags().StringVar(&s.variant, "variant", "", "by this variant, of a campaign that has some")
	cmd.MarkFlagsOneRequired("contact", "member", "data")
	cmd.MarkFlagsMutuallyExclusive("contact", "member", "data")
}

// message is what somebody would get.
func (s *someoneFlags) message(cmd *cobra.Command, f *file.File, pool *pgxpool.Pool, opts file.Options) (json.RawMessage, error) {
	ctx := cmd.Context()
	data := json.RawMessage(s.data)
	f, err := f.Of(s.variant)
	if err != nil {
		return nil, usagef("%v (--variant)", errors.Unwrap(err))
	}
	switch {
	case s.contact != "":
		err := inTenant(ctx, pool, opts.Scope.Tenant, func(tx pgx.Tx) error {
			c, err := contact.Find(ctx, tx, opts.Scope.Tenant, s.contact)
			data = c.Data
			return orWhichTenant(err, opts.Scope.Tenant, s.contact)
		})
		if err != nil {
			return nil, err
		}
	case cmd.Flags().Changed("member"):
		m, err := s.row(cmd, pool, opts)
		if err != nil {
			return nil, err
		}
		data = m.Data
	case !json.Valid(data):
		return nil, usagef("--data is not JSON")
	}
	return f.Make(ctx, data, "https://example.com/u/SAMPLE")
}

func (s *someoneFlags) row(cmd *cobra.Command, pool *pgxpool.Pool, opts file.Options) (campaign.Member, error) {
	switch {
	case s.member < 1:
		return campaign.Member{}, usagef("--member %d is below 1", s.member)
	case opts.Source != nil:
		return opts.Source.Member(s.member)
	case opts.Audience == "":
		return campaign.Member{}, usagef("--member of which people? Give --csv, --sql, --segment or --audience")
	}
	list, err := campaign.Sample(cmd.Context(), pool, opts.Audience, s.member, 1)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("the audience has no member %d", s.member)
	}
	if err != nil {
		return campaign.Member{}, err
	}
	return list[0], nil
}

func newCampaignPreview(a *app) *cobra.Command {
	var people peopleFlags
	var someone someoneFlags
	var out string
	cmd := &cobra.Command{
		Use: "preview FILE --contact ID", Short: "Show what somebody would get", Args: cobra.ExactArgs(1),
		Long: `Show what somebody would get of a campaign: a contact, or a row of the people. --out writes subject.txt, text.txt and
page.html into a directory, over those that are there.`,
		Example: "  deed campaign preview spring.yaml --contact email:ann@example.com\n  deed campaign preview spring.yaml --csv people.csv --member 3 --out shown",
		RunE: func(cmd *cobra.Command, args []string) error {
			return people.with(cmd, a, args[0], func(f *file.File, pool *pgxpool.Pool, opts file.Options) error {
				payload, err := someone.message(cmd, f, pool, opts)
				if err != nil {
					return err
				}
				var e delivery.EmailPayload // of other channels it has a text
				if err := json.Unmarshal(payload, &e); err != nil {
					return err
				}
				if out == "" {
					return printPreview(cmd.OutOrStdout(), e)
				}
				return writePreview(out, e)
			})
		},
	}
	people.add(cmd)
	someone.add(cmd)
	cmd.Flags().StringVar(&out, "out", "", "the directory; it is made. Standard output without it")
	return cmd
}

func printPreview(w io.Writer, e delivery.EmailPayload) error {
	for _, part := range []struct{ name, text string }{{"subject", e.Subject}, {"text", e.Text}, {"html", e.HTML}} {
		if part.text == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "--- %s\n%s\n", part.name, part.text); err != nil {
			return err
		}
	}
	return nil
}

func writePreview(dir string, e delivery.EmailPayload) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &exitError{exitUsage, err}
	}
	for name, text := range map[string]string{"subject.txt": e.Subject, "text.txt": e.Text, "page.html": e.HTML} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newCampaignTest(a *app) *cobra.Command {
	var people peopleFlags
	var someone someoneFlags
	var to string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "test FILE --to ADDRESS --contact ID", Short: "Send what somebody would get to an address", Args: cobra.ExactArgs(1),
		Long: `Send what somebody would get of a campaign to an address, such as your own: one delivery of its provider, which is no
part of any run. It has no purpose, so its link to leave by is a sample that leads nowhere; an e-mail's subject begins
with [Test].`,
		Example: "  deed campaign test spring.yaml --to me@example.com --csv people.csv --member 3 --wait 10s",
		RunE: func(cmd *cobra.Command, args []string) error {
			return people.with(cmd, a, args[0], func(f *file.File, pool *pgxpool.Pool, opts file.Options) error {
				payload, err := someone.message(cmd, f, pool, opts)
				if err != nil {
					return err
				}
				return a.sendTest(cmd, f, opts, to, payload, wait)
			})
		},
	}
	people.add(cmd)
	someone.add(cmd)
	cmd.Flags().StringVar(&to, "to", "", "the address")
	_ = cmd.MarkFlagRequired("to") // it is a flag
	durationVar(cmd, &wait, "wait", 0, "wait so long for a relay to have sent it")
	return cmd
}

func (a *app) sendTest(cmd *cobra.Command, f *file.File, opts file.Options, to string, payload json.RawMessage, wait time.Duration) error {
	if f.Request.Channel == campaign.Email {
		var e delivery.EmailPayload
		if err := json.Unmarshal(payload, &e); err != nil {
			return err
		}
		e.Subject = "[Test] " + e.Subject
		payload = e.JSON()
	}
	d := delivery.Delivery{
		Channel: delivery.Channel(f.Request.Channel), Provider: f.Request.Provider, Recipient: to, Payload: payload,
		Key: delivery.NewKey("deed campaign test", uuid.New().String()),
	}
	return a.sendOne(cmd, opts.Scope.Tenant, d, wait)
}

// sendOne reserves a delivery that is no part of any run, and tells what becomes of it: again is the same one.
func (a *app) sendOne(cmd *cobra.Command, owner *tenant.ID, d delivery.Delivery, wait time.Duration) error {
	ctx := cmd.Context()
	d.By = new(operator).actor(a)
	return a.withLedgerOf(ctx, d.Provider, func(l *delivery.Ledger, pool *pgxpool.Pool) error {
		if err := checkKind(ctx, l, pool, d); err != nil {
			return err
		}
		made, entry, err := reserveOne(ctx, l, pool, owner, "", wait, func(tx pgx.Tx) ([]delivery.Reserved, error) { return l.Reserve(ctx, tx, d) })
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", made.ID, entry.Status); err != nil {
			return err
		}
		if wait > 0 && entry.SentAt == nil {
			return &exitError{exitFailed, errors.New(cmp.Or(pausedWhy(ctx, l, entry, wait), undelivered(entry, wait)))}
		}
		return nil
	})
}
