package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/importer"
	"github.com/deedhq/deed/tenant"
)

type publishFlags struct {
	topic, typ, key, keyField, idField, format string
	payload, idempotencyKey                    string
	headers                                    []string
	after                                      time.Duration
	batch                                      int
	json                                       bool
	tenant                                     tenantFlag
}

func newPublish(a *app) *cobra.Command {
	var p publishFlags
	cmd := &cobra.Command{
		Use:   "publish --topic TOPIC [FILE|-]",
		Short: "Publish the rows of a file, or one message",
		Long: `Publish the one message that --payload gives; or each line of an NDJSON file, or each row of a CSV file, as a message,
--batch of them in a transaction.

With --id-field each row has an idempotency key, so that a second run of the same file publishes nothing. A bad line is
named with its number and the rest is published; the exit status is then 3, or 1 if nothing was published.`,
		Example: `  deed publish --topic orders --key 42 --payload '{"order": 42}'
  deed publish --topic flights --key-field origin --id-field id flights.ndjson
  cat rows.csv | deed publish --topic rows --format csv -`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, a, args) },
	}
	f := cmd.Flags()
	f.StringVar(&p.topic, "topic", "", "the topic (required)")
	f.StringVar(&p.typ, "type", "", "the messages' type")
	f.StringVar(&p.keyField, "key-field", "", "the field that holds a row's message key")
	f.StringVar(&p.idField, "id-field", "", "the field that holds a row's idempotency key")
	f.StringVar(&p.format, "format", "", "of a file: ndjson or csv (default: by its name; from a pipe ndjson)")
	f.IntVar(&p.batch, "batch", 1000, "of a file: rows a transaction")
	f.StringVar(&p.payload, "payload", "", "publish this one JSON message instead of a file of rows; @FILE: what the file has, -: standard input")
	f.StringVar(&p.key, "key", "", "with --payload: the message key")
	f.StringVar(&p.idempotencyKey, "idempotency-key", "", "with --payload: the idempotency key")
	f.StringArrayVar(&p.headers, "header", nil, "with --payload: a header NAME=VALUE; may be repeated")
	durationVar(cmd, &p.after, "after", 0, "with --payload: deliver no sooner than this from now")
	f.BoolVar(&p.json, "json", false, "print the result as JSON")
	p.tenant.add(cmd, "the messages' tenant, a UUID")
	return cmd
}

func (p *publishFlags) run(cmd *cobra.Command, a *app, args []string) error {
	owner, err := p.tenant.id()
	if err != nil {
		return err
	}
	single := cmd.Flags().Changed("payload")
	switch {
	case p.topic == "":
		return usagef("which topic? Give --topic")
	case p.batch < 1 || p.batch > 100000:
		return usagef("--batch %d is not from 1 to 100000", p.batch)
	case single && len(args) > 0:
		return usagef("give a file or --payload, not both")
	case single && (p.keyField != "" || p.idField != ""):
		return usagef("--key-field and --id-field are for files; use --key and --idempotency-key")
	case single && (cmd.Flags().Changed("format") || cmd.Flags().Changed("batch")):
		return usagef("--format and --batch are for files; leave them out, or give a FILE in place of --payload")
	case !single && (p.key != "" || p.idempotencyKey != "" || p.headers != nil || p.after != 0):
		return usagef("--key, --idempotency-key, --header and --after go with --payload")
	}
	ctx := cmd.Context()
	pool, err := a.pool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := deed.New(ctx, pool, deed.Options{}); err != nil {
		return err
	}
	if single {
		return p.one(cmd, pool, owner)
	}
	return p.file(cmd, pool, owner, args)
}

func (p *publishFlags) one(cmd *cobra.Command, pool *pgxpool.Pool, owner *tenant.ID) error {
	ctx := cmd.Context()
	payload, err := textOf(cmd, "payload", p.payload)
	if err != nil {
		return err
	}
	m := deed.Message{
		Topic: p.topic, Key: p.key, Type: p.typ, Payload: []byte(payload),
		IdempotencyKey: p.idempotencyKey, Headers: map[string]string{},
	}
	if owner != nil {
		m.Tenant = *owner
	}
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return usagef("--header %q is not NAME=VALUE", clip(h, 60))
		}
		m.Headers[name] = value
	}
	var published []deed.Published
	err = inTenant(ctx, pool, owner, func(tx pgx.Tx) error {
		if p.after > 0 {
			err := tx.QueryRow(ctx, `select clock_timestamp() + make_interval(secs => $1)`, p.after.Seconds()).Scan(&m.ProcessAfter)
			if err != nil {
				return err
			}
		}
		var err error
		published, err = deed.Publish(ctx, tx, m)
		return err
	})
	if err != nil {
		return err
	}
	r := published[0]
	if p.json {
		return printJSON(cmd.OutOrStdout(), map[string]any{"id": r.ID, "seq": fmt.Sprint(r.Seq), "repeated": r.Repeated})
	}
	note := ""
	if r.Repeated {
		note = " (published before)"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s  seq %d%s\n", r.ID, r.Seq, note)
	return err
}

func (p *publishFlags) file(cmd *cobra.Command, pool *pgxpool.Pool, owner *tenant.ID, args []string) error {
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	in, format, stop, err := openRows(cmd, name, p.format, "for one message give --payload")
	if err != nil {
		return err
	}
	defer stop()
	rows, err := importer.New(in, name, importer.Options{
		Topic: p.topic, Type: p.typ, KeyField: p.keyField, IDField: p.idField, Format: format, Tenant: owner,
	})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	shown := newProgress(cmd, name, "A second run publishes the good ones again, unless --id-field names their id")
	report := func(t importer.Tally, last bool) {
		shown.report(last, "%d published, %d repeated, %d rejected ", t.Published, t.Repeated, t.Rejected)
	}
	tally, err := importer.Publish(cmd.Context(), pool, rows, importer.PublishOptions{
		Batch: p.batch,
		Rejected: func(bad *importer.LineError) {
			shown.reject(bad.Line, strings.TrimPrefix(bad.Err.Error(), "deed: publish: message 1 of 1: "))
		},
		Progress: func(t importer.Tally) { report(t, false) },
	})
	report(tally, true)
	if p.json {
		if printErr := printJSON(cmd.OutOrStdout(), tally); printErr != nil {
			return errors.Join(err, printErr)
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "published %d, repeated %d, rejected %d\n", tally.Published, tally.Repeated, tally.Rejected)
	}
	switch {
	case err != nil && tally.Published+tally.Repeated > 0:
		return &exitError{exitPartly, err}
	case err != nil:
		return err
	case tally.Rejected > 0 && tally.Published+tally.Repeated > 0:
		return &exitError{code: exitPartly}
	case tally.Rejected > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}
