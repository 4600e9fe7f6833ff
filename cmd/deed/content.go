package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/tenant"
)

func newContent(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "content", Short: "Put, list, show and remove files that attachments name",
		Long: `Files that attachments of e-mails name by their SHA-256, so that each is kept once for a tenant. One goes by itself when no
delivery needs it that is unfinished, failed or dead, and it was neither put nor named for content_retention_days.`,
		Example: "  deed content put terms.pdf\n  deed content list",
	}
	cmd.AddCommand(newContentPut(a), newContentList(a), newContentShow(a), newContentRemove(a))
	return cmd
}

// mostContent is the largest file, in bytes: what is read of a larger one is enough to be refused.
const mostContent = 7 << 20

func newContentPut(a *app) *cobra.Command {
	var owner tenantFlag
	var mediaType string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "put FILE", Short: "Keep a file, and print its SHA-256", Args: cobra.ExactArgs(1),
		Long: `Keep a file of up to 7 MiB for the tenant, and print the SHA-256 by which attachments may name it. - is standard input. The
same bytes again are the same file, with the type that it was first put with.`,
		Example: "  deed content put terms.pdf\n  deed content put - --type application/pdf < terms.pdf",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			content, err := readContent(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			kind := cmp.Or(mediaType, mime.TypeByExtension(strings.ToLower(filepath.Ext(args[0]))))
			pool, err := a.pool(cmd.Context())
			if err != nil {
				return err
			}
			defer pool.Close()
			var sum string
			err = inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) (err error) {
				sum, err = delivery.PutContent(cmd.Context(), tx, nil, content, kind)
				return err
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"sha256": sum, "size": len(content)})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), sum)
			return err
		},
	}
	cmd.Flags().StringVar(&mediaType, "type", "", "its media type (default: by the name's ending, or application/octet-stream)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "for this tenant, a UUID")
	return cmd
}

func readContent(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, mostContent+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("put: %w", err)
	case len(content) > mostContent:
		return nil, usagef("%s has over %d bytes (7 MiB): put a link into the text instead", name, mostContent)
	case len(content) == 0:
		return nil, usagef("%s is empty", name)
	}
	return content, nil
}

func newContentList(a *app) *cobra.Command {
	var f delivery.ContentFilter
	var owner tenantFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List files, those that were used last first", Args: cobra.NoArgs,
		Long:    "List the files that are kept, those that were put or named last first, with how many deliveries need each.",
		Example: "  deed content list --json",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Tenant, err = owner.id(); err != nil {
				return err
			}
			if f.Limit < 1 {
				return usagef("--limit %d is below 1", f.Limit)
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				list, err := delivery.Contents(cmd.Context(), pool, f)
				if err == nil && len(list.Items) == 0 {
					err = knownTenant(cmd.Context(), pool, f.Tenant)
				}
				if err != nil {
					return err
				}
				header := []string{"SHA256", "TYPE", "BYTES", "NEEDED BY", "PUT", "USED"}
				return printPage(cmd, asJSON, "contents", list, header, func(c delivery.Content) []string {
					return []string{c.SHA256, c.Type, fmt.Sprint(c.Size), needed(c), when(c.CreatedAt), when(c.UsedAt)}
				})
			})
		},
	}
	pageFlags(cmd, &f.Cursor, &f.Limit, 100)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "only this tenant's, a UUID")
	return cmd
}

// needed says how many deliveries need a file, as far as a list counts.
func needed(c delivery.Content) string {
	if n := len(c.NeededBy); n < 10 {
		return fmt.Sprint(n)
	}
	return "10 or more"
}

func newContentShow(a *app) *cobra.Command {
	var owner tenantFlag
	var save string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show SHA256", Short: "Show a file that is kept, and who needs it", Args: cobra.ExactArgs(1),
		Long:    "Show a file that is kept and which deliveries need it, and write its bytes with\n--save; - is standard output, unless that is a terminal.",
		Example: "  deed content show SHA256 --save terms.pdf",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			if save == "-" && terminalWidth(cmd.OutOrStdout()) > 0 {
				return usagef("--save - is a terminal, which a file's bytes may steer: redirect it, or name a file")
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				list, err := delivery.Contents(cmd.Context(), pool, delivery.ContentFilter{Tenant: id, SHA256: args[0]})
				if err != nil {
					return err
				}
				if len(list.Items) == 0 {
					return noContent(cmd.Context(), pool, args[0])
				}
				if save != "" {
					return saveContent(cmd, pool, id, args[0], save)
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"contents": list.Items})
				}
				for _, c := range list.Items {
					showContent(cmd.OutOrStdout(), c)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&save, "save", "", "write its bytes to this new file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "this tenant's, a UUID")
	return cmd
}

// noContent is that there is none, as reading it says it.
func noContent(ctx context.Context, pool *pgxpool.Pool, sha256 string) error {
	_, err := delivery.ReadContent(ctx, pool, nil, sha256)
	return err
}

func showContent(w io.Writer, c delivery.Content) {
	line := func(name, value string) { detail(w, 8, name, value) }
	line("sha256", c.SHA256)
	line("type", c.Type)
	line("bytes", fmt.Sprint(c.Size))
	line("put", when(c.CreatedAt))
	line("used", when(c.UsedAt))
	line("tenant", c.Tenant)
	for _, id := range c.NeededBy {
		line("needed", "by delivery "+id)
	}
}

// saveContent writes a file's bytes, and over nothing.
func saveContent(cmd *cobra.Command, pool *pgxpool.Pool, owner *tenant.ID, sha256, path string) error {
	content, err := delivery.ReadContent(cmd.Context(), pool, owner, sha256)
	if err != nil {
		return err
	}
	if path == "-" {
		_, err = unescaped(cmd.OutOrStdout()).Write(content) // a file is no text, and is as it is or damaged
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("show: %w", err)
	}
	if _, err = file.Write(content); err != nil {
		_ = file.Close()
		return fmt.Errorf("show: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("show: %w", err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d bytes in %s\n", len(content), path)
	return err
}

func newContentRemove(a *app) *cobra.Command {
	var owner tenantFlag
	var who operator
	var asJSON bool
	cmd := &cobra.Command{
		Use: "remove SHA256 --reason TEXT", Short: "Remove a file that nothing needs", Args: cobra.ExactArgs(1),
		Long: `Remove a file before its time. Only one that no delivery needs which is unfinished, failed or dead: deed content show names
those. Who names it afterwards is told to put it again.`,
		Example: "  deed content remove SHA256 --reason 'the wrong version'",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := owner.id()
			if err != nil {
				return err
			}
			if who.reason == "" {
				return usagef("why? Give --reason")
			}
			return a.withOperator(cmd.Context(), func(_ *admin.Client, pool *pgxpool.Pool) error {
				err := inTenant(cmd.Context(), pool, id, func(tx pgx.Tx) error {
					return delivery.RemoveContent(cmd.Context(), tx, nil, args[0], who.act(a))
				})
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(cmd.OutOrStdout(), map[string]any{"sha256": args[0], "removed": true})
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is removed\n", args[0])
				return err
			})
		},
	}
	who.add(cmd, "why (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	owner.add(cmd, "of this tenant, a UUID")
	return cmd
}
