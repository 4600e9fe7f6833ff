package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/importer"
)

type contactsImport struct {
	format   string
	batch    int
	fromLine int
	verified bool
	json     bool
	owner    tenantFlag
}

func newContactsImport(a *app) *cobra.Command {
	var c contactsImport
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Make or change the contacts of a CSV or NDJSON file", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Make or change a contact for each row of a CSV file, whose first row names the columns, or each line of an NDJSON file,
--batch of them in a transaction; - reads standard input. The columns, or fields:

  email, phone, external_id   what they are known by; one of these or a type:NAME at the least
  type:NAME                   an identity of any type, as type:telegram; in NDJSON an array may have several
  zone, locale                as Europe/Berlin, and de or pt-BR
  data.KEY                    what else is known: one key of the data; or
  data                        all of them, a JSON object

What is empty is not given, and changes nothing. It may be run again, whole or --from-line where it was cut off: who is
known is not made twice. A bad row is named with its number, its field and why, and the rest is stored; a conflict is
named with the contacts that it is between (deed contacts conflicts). The exit status is then 3, or 1 if nothing was
stored. There is no --timeout unless one is given.`,
		Example: "  deed contacts import customers.csv --verified\n" +
			"  deed contacts import customers.csv --from-line 40001\n" +
			`  echo '{"email": "ann@example.com", "type:telegram": 42, "data": {"plan": "free"}}' | deed contacts import -`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, a, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&c.format, "format", "", "ndjson or csv (default: by the file's name; from a pipe by how it begins)")
	f.IntVar(&c.batch, "batch", 1000, "rows a transaction")
	f.IntVar(&c.fromLine, "from-line", 1, "pass over the rows that begin before this line")
	f.BoolVar(&c.verified, "verified", false, "the identities are known to be theirs")
	f.BoolVar(&c.json, "json", false, "print the result as JSON")
	c.owner.add(cmd, "for this tenant, a UUID")
	return cmd
}

func (c *contactsImport) run(cmd *cobra.Command, a *app, name string) error {
	owner, err := c.owner.id()
	switch {
	case err != nil:
		return err
	case c.batch < 1 || c.batch > 100000:
		return usagef("--batch %d is not from 1 to 100000", c.batch)
	case c.fromLine < 1:
		return usagef("--from-line %d is below 1", c.fromLine)
	}
	in, format, stop, err := openRows(cmd, name, c.format, "for one contact there is deed contacts add")
	if err != nil {
		return err
	}
	defer stop()
	if name == "-" && c.format == "" {
		text := bufio.NewReaderSize(in, 64<<10)
		in, format = text, kindOf(text)
	}
	rows, err := importer.NewContacts(in, name, importer.ContactOptions{Tenant: owner, Verified: c.verified, FromLine: c.fromLine, Format: format})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
		shown := newProgress(cmd, name, "A second run makes nobody twice, and names them again")
		report := func(t importer.ContactTally, last bool) {
			shown.report(last, "to line %d: %s ", t.NextLine-1, counts(t))
		}
		var who operator
		tally, err := importer.Upsert(cmd.Context(), pool, rows, importer.UpsertOptions{
			Batch: c.batch, By: who.actor(a),
			Rejected: func(bad *importer.LineError) { shown.reject(bad.Line, bad.Err.Error()) },
			Conflict: func(line int, others []string) {
				shown.reject(line, "conflict: its identities are of contacts "+strings.Join(others, " and "))
			},
			Progress: func(t importer.ContactTally) { report(t, false) },
			Waiting: func(first, last int) {
				where := fmt.Sprintf("line %d", first)
				if last > first {
					where = fmt.Sprintf("lines %d to %d", first, last)
				}
				shown.report(false, "%s: waits for somebody's transaction, such as an erasure that is left open ", where)
			},
		})
		report(tally, true)
		return c.end(cmd, tally, err)
	})
}

func counts(t importer.ContactTally) string {
	return fmt.Sprintf("created %d, updated %d, unchanged %d, conflicts %d, rejected %d", t.Created, t.Updated, t.Unchanged, t.Conflicts, t.Rejected)
}

// end prints what became of a file, and has the exit status say it.
func (c *contactsImport) end(cmd *cobra.Command, t importer.ContactTally, err error) error {
	if c.json {
		if printErr := printJSON(cmd.OutOrStdout(), t); printErr != nil {
			return errors.Join(err, printErr)
		}
	} else {
		fmt.Fprintln(cmd.OutOrStdout(), counts(t))
	}
	if err != nil && t.NextLine > 1 && deed.CodeOf(err) != deed.Invalid {
		err = fmt.Errorf("%w; what is before line %d is done: --from-line %d goes on there", err, t.NextLine, t.NextLine)
	}
	left := t.Conflicts + t.Rejected
	switch {
	case err != nil && t.Stored() > 0:
		return &exitError{exitPartly, err}
	case err != nil:
		return err
	case left > 0 && t.Stored() > 0:
		return &exitError{code: exitPartly}
	case left > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}
