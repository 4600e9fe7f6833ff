package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
)

func newSuppressions(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "suppressions", Short: "List, add, remove and import addresses that are not written to",
		Long: "Who is suppressed is skipped: at the reservation, and once more before every call. A suppression holds for everything,\n" +
			"for all that has a purpose, or for one purpose: leaving a newsletter never stops a password reset.",
		Example: "  deed suppressions add bob@example.org --reason 'asked to'\n  deed suppressions import bounced.txt --reason bounced",
	}
	cmd.AddCommand(newSuppressionsList(a), newSuppressionsAdd(a, false), newSuppressionsAdd(a, true), newSuppressionsImport(a))
	return cmd
}

// suppressionFlags are those that all of the commands share.
type suppressionFlags struct {
	channel string
	purpose string
	expires time.Duration
	who     operator
	owner   tenantFlag
	json    bool
}

func (f *suppressionFlags) add(cmd *cobra.Command, change bool) {
	if change {
		cmd.Flags().StringVar(&f.channel, "channel", "email", "email, sms, voice, social, chat or webhook")
		cmd.Flags().StringVar(&f.purpose, "purpose", "", "for this purpose, or '*' for all of them (default: for everything, with a purpose or without)")
		f.who.add(cmd, "why (required)")
	} else {
		cmd.Flags().StringVar(&f.channel, "channel", "", "only this channel's")
		cmd.Flags().StringVar(&f.purpose, "purpose", "", "only those for this purpose; '*': for all of them; '': for everything")
	}
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	f.owner.add(cmd, "for this tenant, a UUID")
}

func newSuppressionsList(a *app) *cobra.Command {
	var f suppressionFlags
	var limit int
	var address, cursor string
	cmd := &cobra.Command{
		Use: "list", Short: "List suppressed addresses, newest first", Args: cobra.NoArgs,
		Long:    "List suppressed addresses, newest first, with who suppressed them and why.",
		Example: "  deed suppressions list --address bob@example.org",
		RunE: func(cmd *cobra.Command, _ []string) error {
			owner, err := f.owner.id()
			if err != nil {
				return err
			}
			if limit < 1 {
				return usagef("--limit %d is below 1", limit)
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				filter := delivery.SuppressionFilter{
					Tenant: owner, Channel: delivery.Channel(f.channel), Address: address, Cursor: cursor, Limit: limit,
				}
				if cmd.Flags().Changed("purpose") {
					filter.Purpose = &f.purpose
				}
				list, err := delivery.Suppressions(cmd.Context(), pool, filter)
				if err == nil && len(list.Items) == 0 {
					err = cmp.Or(knownTenant(cmd.Context(), pool, owner), couldBeAddress(cmd.Context(), pool, filter.Channel, address))
				}
				if err != nil {
					return err
				}
				header := []string{"CHANNEL", "ADDRESS", "FOR", "SINCE", "UNTIL", "WHO", "REASON"}
				return printPage(cmd, f.json, "suppressions", list, header, func(s delivery.Suppression) []string {
					return []string{string(s.Channel), s.Address, purposeOf(s.Purpose), when(s.CreatedAt), instant(s.ExpiresAt), s.Actor, s.Reason}
				})
			})
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "only this one")
	pageFlags(cmd, &cursor, &limit, 1000)
	f.add(cmd, false)
	return cmd
}

func newSuppressionsAdd(a *app, remove bool) *cobra.Command {
	var f suppressionFlags
	cmd := &cobra.Command{
		Use: "add ADDRESS… --reason TEXT", Short: "Suppress addresses", Args: cobra.MinimumNArgs(1),
		Long: "Write to these addresses no more. It holds from the next attempt on, also for what is reserved already.",
		Example: "  deed suppressions add bob@example.org --reason 'asked to'\n" +
			"  deed suppressions add bob@example.org --purpose newsletter --reason unsubscribed\n" +
			"  deed suppressions add bob@example.org --expires 3d --reason 'mailbox full'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.suppress(cmd, &f, remove, args)
		},
	}
	if remove {
		cmd.Use, cmd.Short = "remove ADDRESS… --reason TEXT", "Lift suppressions"
		cmd.Long, cmd.Example = "Allow writing to these addresses again: for everything, or for the purpose that is given. What was skipped stays skipped.", "  deed suppressions remove bob@example.org --reason 'asked to'"
	}
	f.add(cmd, true)
	if !remove {
		durationVar(cmd, &f.expires, "expires", 0, "after this long it holds no longer, as 7d (default: it holds for ever)")
	}
	return cmd
}

func newSuppressionsImport(a *app) *cobra.Command {
	var f suppressionFlags
	cmd := &cobra.Command{
		Use: "import FILE --reason TEXT", Short: "Suppress the addresses of a file", Args: cobra.ExactArgs(1),
		Long:        "Suppress the addresses of a file, one a line; empty lines and those that begin with # are left out. - reads standard input.",
		Example:     "  deed suppressions import bounced.txt --reason 'bounced at the old provider'",
		Annotations: map[string]string{takesLong: ""},
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return usagef("import: %w", err)
				}
				defer file.Close()
				in = file
			}
			addresses, lines, err := readAddresses(in)
			if err != nil {
				return fmt.Errorf("import %s: %w", args[0], err)
			}
			err = a.suppress(cmd, &f, false, addresses)
			if bad, ok := errors.AsType[*badAddress](err); ok {
				return usagef("import %s: line %d: %s; nothing was stored", args[0], lines[bad.at], bad.why)
			}
			return err
		},
	}
	f.add(cmd, true)
	durationVar(cmd, &f.expires, "expires", 0, "after this long they hold no longer, as 7d (default: they hold for ever)")
	return cmd
}

// couldBeAddress refuses what is no address of the channel, "" is email if it has an @: a list of
// it would be empty whatever is suppressed.
func couldBeAddress(ctx context.Context, pool *pgxpool.Pool, channel delivery.Channel, address string) error {
	if strings.HasPrefix(address, "hmac:") || channel != delivery.Email && (channel != "" || !strings.Contains(address, "@")) || address == "" {
		return nil
	}
	problems, err := contact.Check(ctx, pool, contact.Person{Identities: []contact.Identity{{Type: "email", Value: address}}})
	if err == nil && len(problems) > 0 {
		err = usagef("--address: %s", problems[0].Text)
	}
	return err
}

// readAddresses reads addresses, and the line of each.
func readAddresses(in io.Reader) (list []string, at []int, err error) {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.ContainsAny(line, " \t,;") {
			return nil, nil, usagef("line %d: want one address a line", n)
		}
		list, at = append(list, line), append(at, n)
	}
	return list, at, lines.Err()
}

// badAddress is one of many that is none, counted from 0.
type badAddress struct {
	at  int
	why string
	err error
}

func (b *badAddress) Error() string { return b.err.Error() }
func (b *badAddress) Unwrap() error { return b.err }

var whichAddress = regexp.MustCompile(`address (\d+) is not one of the channel \w+: (.*)$`)

// whichOf says which of all addresses is meant where a part of them, from one on, was refused.
func whichOf(err error, from int) error {
	m := whichAddress.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	n, _ := strconv.Atoi(m[1])
	return &badAddress{from + n - 1, m[2], err}
}

// purposeOf says what a suppression is for.
func purposeOf(purpose string) string {
	switch purpose {
	case "":
		return "everything"
	case delivery.AnyPurpose:
		return "all purposes"
	}
	return purpose
}

// suppressBatch is how many addresses a statement takes.
const suppressBatch = 10_000

// suppress changes all of the addresses, or none.
func (a *app) suppress(cmd *cobra.Command, f *suppressionFlags, remove bool, addresses []string) error {
	owner, err := f.owner.id()
	if err != nil {
		return err
	}
	if f.who.reason == "" {
		return usagef("why? Give --reason")
	}
	if cmd.Flags().Changed("expires") && f.expires <= 0 {
		return usagef("--expires %s: it would end before it begins", f.expires)
	}
	return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
		change := delivery.Suppress
		if remove {
			change = delivery.Unsuppress
		}
		var n int64
		act := f.who.act(a)
		of := delivery.Coverage{Channel: delivery.Channel(f.channel), Purpose: f.purpose, For: f.expires}
		err := inTenant(cmd.Context(), pool, owner, func(tx pgx.Tx) error {
			for rest := addresses; len(rest) > 0; {
				part := rest[:min(len(rest), suppressBatch)]
				rest = rest[len(part):]
				changed, err := change(cmd.Context(), tx, nil, of, part, act)
				if err != nil {
					return whichOf(err, len(addresses)-len(rest)-len(part))
				}
				n += changed
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := withoutPlus(of.Channel, addresses); n > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s without +: it is another than the same with + and the country's code, which is what most services are given\n", many(n, "number is", "numbers are"))
		}
		if f.json {
			return printJSON(cmd.OutOrStdout(), map[string]any{"changed": n, "given": len(addresses)})
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), suppressed(n, int64(len(addresses)), remove, f.purpose))
		return err
	})
}

// withoutPlus is how many numbers are not written as they are dialled from everywhere.
func withoutPlus(channel delivery.Channel, addresses []string) (n int) {
	if channel != delivery.SMS && channel != delivery.Voice {
		return 0
	}
	for _, address := range addresses {
		if !strings.HasPrefix(strings.TrimSpace(address), "+") {
			n++
		}
	}
	return n
}

// suppressed says for how many addresses something has changed, and how it was
// with the others.
func suppressed(changed, given int64, remove bool, purpose string) string {
	now, before := "suppressed now", "suppressed already"
	if remove {
		now, before = "no longer suppressed", "not suppressed"
	}
	if purpose != "" {
		now, before = now+" for "+purposeOf(purpose), before+" for "+purposeOf(purpose)
	}
	same := fmt.Sprintf("%d were %s", given-changed, before)
	if given-changed == 1 {
		same = "1 was " + before
	}
	if given == 1 {
		same = "the address was " + before
	}
	switch {
	case changed == given:
		if given == 1 {
			return "the address is " + now
		}
		return fmt.Sprintf("%d of %d addresses are %s", changed, given, now)
	case changed == 0:
		return same
	}
	return fmt.Sprintf("%d of %d addresses are %s; %s", changed, given, now, same)
}
