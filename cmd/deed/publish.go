package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	f.StringVar(&p.format, "format", "", "ndjson or csv (default: by the file's name)")
	f.IntVar(&p.batch, "batch", 1000, "rows a transaction")
	f.StringVar(&p.payload, "payload", "", "publish this one JSON message instead of a file")
	f.StringVar(&p.key, "key", "", "with --payload: the message key")
	f.StringVar(&p.idempotencyKey, "idempotency-key", "", "with --payload: the idempotency key")
	f.StringArrayVar(&p.headers, "header", nil, "with --payload: a header NAME=VALUE; may be repeated")
	durationVar(cmd, &p.after, "after", 0, "with --payload: deliver no sooner than this from now")
	f.BoolVar(&p.json, "json", false, "print the result as JSON")
	p.tenant.add(cmd, "the messages' tenant, a UUID")
	return cmd
}

// tally is how a file's rows fared.
type tally struct {
	Published int `json:"published"`
	Repeated  int `json:"repeated"`
	Rejected  int `json:"rejected"`
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

// inTenant runs fn in a transaction that acts for the tenant, if one is given.
func inTenant(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, fn func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if owner != nil {
			if err := tenant.Set(ctx, tx, *owner); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

func (p *publishFlags) one(cmd *cobra.Command, pool *pgxpool.Pool, owner *tenant.ID) error {
	ctx := cmd.Context()
	m := deed.Message{
		Topic: p.topic, Key: p.key, Type: p.typ, Payload: []byte(p.payload),
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
	err := inTenant(ctx, pool, owner, func(tx pgx.Tx) error {
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
	name, in := "-", cmd.InOrStdin()
	if len(args) > 0 && args[0] != "-" {
		name = args[0]
		f, err := os.Open(name)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		defer f.Close()
		in = f
	}
	opts := importer.Options{Topic: p.topic, Type: p.typ, KeyField: p.keyField, IDField: p.idField, Format: p.format}
	if owner != nil {
		opts.Tenant = *owner
	}
	rows, err := importer.New(in, name, opts)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	im := &imports{cmd: cmd, pool: pool, owner: owner, rows: rows, name: name, batch: p.batch, progress: terminalWidth(cmd.ErrOrStderr()) > 0}
	err = im.run()
	im.report(true)
	if p.json {
		if printErr := printJSON(cmd.OutOrStdout(), im.tally); printErr != nil {
			return errors.Join(err, printErr)
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "published %d, repeated %d, rejected %d\n", im.tally.Published, im.tally.Repeated, im.tally.Rejected)
	}
	switch {
	case err != nil && im.tally.Published+im.tally.Repeated > 0:
		return &exitError{exitPartly, err}
	case err != nil:
		return err
	case im.tally.Rejected > 0 && im.tally.Published+im.tally.Repeated > 0:
		return &exitError{code: exitPartly}
	case im.tally.Rejected > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}

// imports publishes a file in transactions.
type imports struct {
	cmd      *cobra.Command
	pool     *pgxpool.Pool
	owner    *tenant.ID
	rows     *importer.Reader
	name     string
	batch    int
	progress bool
	shown    time.Time
	tally    tally
}

func (im *imports) run() error {
	var msgs []deed.Message
	var lines []int
	for {
		m, line, err := im.rows.Next()
		if bad, ok := errors.AsType[*importer.LineError](err); ok {
			im.reject(bad.Line, bad.Err)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(im.publish(msgs, lines), err)
		}
		if err == nil {
			msgs, lines = append(msgs, m), append(lines, line)
		}
		if len(msgs) == im.batch || (err != nil && len(msgs) > 0) {
			if err := im.publish(msgs, lines); err != nil {
				return err
			}
			msgs, lines = msgs[:0], lines[:0]
		}
		if err != nil {
			return nil
		}
	}
}

func (im *imports) reject(line int, err error) {
	im.tally.Rejected++
	if im.progress {
		fmt.Fprint(unescaped(im.cmd.ErrOrStderr()), "\r\x1b[K")
	}
	text := strings.TrimPrefix(err.Error(), "deed: publish: message 1 of 1: ")
	fmt.Fprintf(im.cmd.ErrOrStderr(), "%s:%d: %s\n", im.name, line, text)
}

// publish stores a batch. If the database refuses some of it, the messages go
// one by one, so that only the bad ones are left out.
func (im *imports) publish(msgs []deed.Message, lines []int) error {
	if len(msgs) == 0 {
		return nil
	}
	ctx := im.cmd.Context()
	var published []deed.Published
	err := inTenant(ctx, im.pool, im.owner, func(tx pgx.Tx) error {
		for rest := msgs; len(rest) > 0; {
			n := fitting(rest)
			more, err := deed.Publish(ctx, tx, rest[:n]...)
			if err != nil {
				return err
			}
			published, rest = append(published, more...), rest[n:]
		}
		return nil
	})
	if code := deed.CodeOf(err); code == deed.Invalid {
		if len(msgs) == 1 {
			im.reject(lines[0], err)
			return nil
		}
		for i := range msgs {
			if err := im.publish(msgs[i:i+1], lines[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("lines %d to %d: %w", lines[0], lines[len(lines)-1], err)
	}
	for _, r := range published {
		if r.Repeated {
			im.tally.Repeated++
		} else {
			im.tally.Published++
		}
	}
	im.report(false)
	return nil
}

// fitting is how many of msgs one statement takes, at least 1: PostgreSQL has a
// limit.
func fitting(msgs []deed.Message) int {
	const most = 16 << 20
	size := 0
	for i, m := range msgs {
		if size += len(m.Payload); size > most {
			return max(i, 1)
		}
	}
	return len(msgs)
}

// report shows progress on a terminal, a few times a second.
func (im *imports) report(last bool) {
	if !im.progress || (!last && time.Since(im.shown) < 200*time.Millisecond) {
		return
	}
	im.shown = time.Now()
	fmt.Fprintf(unescaped(im.cmd.ErrOrStderr()), "\r%d published, %d repeated, %d rejected ", im.tally.Published, im.tally.Repeated, im.tally.Rejected)
	if last {
		fmt.Fprintln(im.cmd.ErrOrStderr())
	}
}
