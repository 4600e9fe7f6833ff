package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit/seal"
	"github.com/deedhq/deed/internal/config"
)

func newAudit(a *app) *cobra.Command {
	var f admin.AuditFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audit", Short: "List what operators did, newest first; prove it", Args: cobra.NoArgs,
		Long:    "List the append-only audit log: who did what, when and why, and to how many messages, newest first. What the\nprogram itself did with deliveries, a row a batch, is shown with --all or --subject.",
		Example: "  deed audit --subject inc-211",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withOperator(cmd.Context(), func(c *admin.Client, _ *pgxpool.Pool) error {
				page, err := c.Audit(cmd.Context(), f)
				if err != nil {
					return err
				}
				header := []string{"AT", "ACTOR", "ACTION", "SUBJECT", "AFFECTED", "REASON"}
				return printPage(cmd, asJSON, "acts", page, header, func(entry admin.AuditEntry) []string {
					return []string{when(entry.At), entry.Actor, entry.Action, subjectOf(entry), fmt.Sprint(entry.Affected), entry.Reason}
				})
			})
		},
	}
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().StringVar(&f.Subject, "subject", "", "only what concerns this: a message's number, a request, a delivery")
	cmd.Flags().BoolVar(&f.All, "all", false, "also what the program did with deliveries")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newAuditExport(a), newAuditCheck(), newAuditKey(), newAuditSeal(a))
	return cmd
}

// subjectOf is what an act concerned; of a message, for which subscription; of a
// suppression, for what and until when.
func subjectOf(entry admin.AuditEntry) string {
	subject := strings.TrimSpace(entry.SubjectType + " " + entry.SubjectID)
	var of struct {
		Topic, Subscription, Purpose string
		Until                        *time.Time
	}
	if json.Unmarshal(entry.Details, &of) != nil {
		return subject
	}
	switch entry.SubjectType {
	case "message":
		if of.Subscription != "" {
			subject += ", " + of.Topic + "/" + of.Subscription
		}
	case "suppression":
		if of.Purpose != "" {
			subject += " for " + purposeOf(of.Purpose)
		}
		if of.Until != nil {
			subject += " until " + when(*of.Until)
		}
	}
	return subject
}

// newSealer makes a sealer with the key of the configuration.
func newSealer(ctx context.Context, pool *pgxpool.Pool, file *config.Config, opts seal.Options) (*seal.Sealer, error) {
	key, err := auditKey(file)
	if err != nil {
		return nil, err
	}
	return seal.New(ctx, pool, key, opts)
}

// auditKey is the private key of the configuration.
func auditKey(file *config.Config) (ed25519.PrivateKey, error) {
	if err := lacks(file, "audit"); err != nil {
		return nil, err
	}
	if !file.Audit.Sealed {
		return nil, usagef("deed.yaml has no audit.key: deed audit key makes one")
	}
	key, err := seal.ParsePrivateKey(file.Audit.Key.Reveal())
	if err != nil {
		return nil, usagef("audit.key: %s", err)
	}
	return key, nil
}

func newAuditExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Write the audit log with its seals, a line of JSON each", Args: cobra.NoArgs,
		Annotations: map[string]string{takesLong: ""},
		Long: `Write the audit log with its seals, a line of JSON each, for deed audit check. Where an erasure has taken something away
there is its hash, which tells nothing. What it has is said on standard error, and the newest seal: note that elsewhere, and
deed audit check --holds sees later that nothing before it is missing.`,
		Example: "  deed audit export > audit.ndjson",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				e, err := seal.Export(cmd.Context(), pool, forFile(cmd.OutOrStdout()))
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "%s, of which %d are not sealed yet; newest seal: %s\n", many(e.Rows, "row", "rows"), e.Unsealed, cmp.Or(e.Last, "-"))
				return nil
			})
		},
	}
}

func newAuditCheck() *cobra.Command {
	var names, holds []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check FILE --key PUBLIC", Short: "Prove that an exported audit log is as it was sealed", Args: cobra.ExactArgs(1),
		Annotations: map[string]string{takesLong: ""},
		Long: `Prove, without a database, that what deed audit export has written is as it was sealed: the chain is whole, signed with
one of the keys, and has every row as it was. The first row that was changed, removed or added is named. Rows that are
not sealed yet are counted. - is standard input.

A file that ends with an older seal is as good: give --holds with a seal that was noted elsewhere.`,
		Example: "  deed audit check audit.ndjson --key audit.pub.pem",
		RunE: func(cmd *cobra.Command, args []string) error {
			opts := seal.CheckOptions{Holds: holds}
			var err error
			if opts.Keys, err = publicKeys(names); err != nil {
				return err
			}
			in, stop, err := openFile(cmd, args[0])
			if err != nil {
				return err
			}
			defer stop()
			c, err := seal.Check(in, opts)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), c)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "as it was sealed: %s under %s of installation %s; something was erased since of %d of them, and %d are not sealed yet; newest seal: %s\n",
				many(c.Sealed, "row", "rows"), many(c.Seals, "seal", "seals"), c.Installation, c.Erased, c.Unsealed, cmp.Or(c.Last, "-"))
			return err
		},
	}
	cmd.Flags().StringArrayVar(&names, "key", nil, "a file with the public key, as deed audit key --public prints it; again for one of before")
	cmd.Flags().StringArrayVar(&holds, "holds", nil, "a seal that must be in it, as deed audit export has named it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// publicKeys reads the files that --key names.
func publicKeys(names []string) (keys []ed25519.PublicKey, err error) {
	if len(names) == 0 {
		return nil, usagef("give --key: the file with the public key")
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, &exitError{exitUsage, err}
		}
		key, err := seal.ParsePublicKey(string(text))
		if err != nil {
			return nil, usagef("%s: not a public key: %s", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// openFile opens a file to read; - is standard input.
func openFile(cmd *cobra.Command, name string) (in io.Reader, stop func(), err error) {
	if name == "-" {
		return cmd.InOrStdin(), func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	return f, func() { _ = f.Close() }, nil // it was only read
}

func newAuditKey() *cobra.Command {
	var public string
	cmd := &cobra.Command{
		Use: "key [FILE]", Short: "Make the key that seals the audit log", Args: cobra.MaximumNArgs(1),
		Long: `Make a private key into a new file, for audit.key of deed.yaml (file:PATH), and print the public one, which deed audit
check wants. With --public nothing is made: the public half of a private key's file is printed. The same by openssl:
openssl genpkey -algorithm ed25519 -out audit.pem; openssl pkey -in audit.pem -pubout.`,
		Example: "  deed audit key audit.pem > audit.pub.pem\n  deed audit key --public audit.pem",
		RunE: func(cmd *cobra.Command, args []string) error {
			var text []byte
			var err error
			switch {
			case (len(args) == 1) == (public != ""):
				return usagef("give the name of a new file for the private key, or --public FILE")
			case public != "":
				if text, err = os.ReadFile(public); err != nil {
					return &exitError{exitUsage, err}
				}
			default:
				if text, err = seal.NewKey(); err != nil {
					return err
				}
				if err := writeNew(args[0], text); err != nil {
					return err
				}
			}
			key, err := seal.ParsePrivateKey(string(text))
			if err != nil {
				return usagef("%s: %s", public, err)
			}
			out, err := seal.PublicKey(key)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	cmd.Flags().StringVar(&public, "public", "", "print the public half of this file's key")
	return cmd
}

// writeNew writes a file that was not there, for its owner alone.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

func newAuditSeal(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "seal", Short: "Seal the audit log now", Args: cobra.NoArgs,
		Long: `Seal the audit log with audit.key of deed.yaml, as relays do every minute: everything before which no open transaction can
still write a row. It waits a few seconds for such transactions.`,
		Example: "  deed audit seal --config deed.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := a.config()
			if err != nil {
				return err
			}
			if _, err := auditKey(file); err != nil {
				return err
			}
			return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
				s, err := newSealer(cmd.Context(), pool, file, seal.Options{})
				if err != nil {
					return err
				}
				n, err := s.Seal(cmd.Context())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s sealed\n", many(int64(n), "row was", "rows were"))
				return err
			})
		},
	}
}
