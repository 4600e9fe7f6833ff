package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/config"
)

const (
	defaultCatchSMTP = "127.0.0.1:8425"
	defaultCatchHTTP = "127.0.0.1:8426"
)

// catchers are the providers built into deed dev: they catch what they are
// sent, so that nobody is written to.
type catchers struct {
	smtpAddress, httpAddress string
	fault, events            string
	box                      catcher.Mailbox
	fakes                    *fakes
	hooks                    hooks        // what is posted to /hook
	nobodyListens            bool         // to what the fakes say later
	public                   atomic.Value // where sources are written to, and events go: a host:port; nil: nowhere yet
	data                     string       // the folder of the deed dev that this is part of
}

func (c *catchers) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.smtpAddress, "catch-smtp", "", "where the built-in SMTP server listens; also DEED_CATCH_SMTP (default "+defaultCatchSMTP+", or a free port)")
	cmd.Flags().StringVar(&c.fault, "fault", "", "how the built-in providers fail: 429 (too many calls), 5xx, reset (taken, and the connection cut), slow (taken, and no answer until the provider's timeout: in doubt); with /N every Nth call")
	cmd.Flags().StringVar(&c.events, "events", string(catcher.Late), "when the built-in providers' services say what became of what they took: early (before their answer), late, twice, reverse or off")
	cmd.Flags().StringVar(&c.httpAddress, "catch-http", "", "where fakes of services, the mailbox and the receiver of webhooks listen; also DEED_CATCH_HTTP (default "+defaultCatchHTTP+", or a free port)")
}

// hint is what deed dev mailbox needs to be told, if anything, in the folder of that
// deed.yaml.
func (c *catchers) hint(file config.Dev) string {
	if c.httpAddress == cmp.Or(file.CatchHTTP, defaultCatchHTTP) {
		return ""
	}
	return " --catch-http " + c.httpAddress
}

// teller is nil if the fakes are to say nothing later.
func (c *catchers) teller(log *slog.Logger) (*catcher.Teller, error) {
	switch when := catcher.When(c.events); when {
	case "off":
		return nil, nil
	case catcher.Late, catcher.Early, catcher.Twice, catcher.Reverse:
		base := func() string {
			address, _ := c.public.Load().(string)
			return "http://" + address
		}
		return &catcher.Teller{Base: base, When: when, Logger: log}, nil
	}
	return nil, usagef("--events %q is none of early, late, twice, reverse and off", c.events)
}

// start listens until the returned function is called. An address that was not
// asked for and is taken makes way for a free one.
func (c *catchers) start(ctx context.Context, file config.Dev, log *slog.Logger) (stop func(), err error) {
	teller, err := c.teller(log)
	if err != nil {
		return nil, err
	}
	if c.nobodyListens {
		teller = nil
	}
	all := newFakes(&c.box, teller)
	c.fakes = all
	if c.fault != "" {
		if err := all.fail(c.fault); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	c.smtpAddress = setting(c.smtpAddress, "DEED_CATCH_SMTP", file.CatchSMTP, "")
	c.httpAddress = setting(c.httpAddress, "DEED_CATCH_HTTP", file.CatchHTTP, "")
	mail, err := listenOr(ctx, &c.smtpAddress, defaultCatchSMTP)
	if err != nil {
		cancel()
		return nil, err
	}
	web, err := listenOr(ctx, &c.httpAddress, defaultCatchHTTP)
	if err != nil {
		cancel()
		return nil, errors.Join(err, mail.Close())
	}
	mux := http.NewServeMux()
	all.handle(mux)
	mux.HandleFunc("GET /smtp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, map[string]string{"address": c.smtpAddress})
	})
	mux.HandleFunc("GET /public", func(w http.ResponseWriter, _ *http.Request) {
		address, _ := c.public.Load().(string)
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, map[string]string{"address": address, "data": c.data})
	})
	mux.Handle("/hook", &c.hooks)
	mux.HandleFunc("GET /mailbox", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, map[string]any{"data": c.data, "mailbox": c.box.List()})
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := all.smtp.Serve(ctx, mail); err != nil {
			log.Error("the SMTP catcher has ended", "error", err)
		}
	})
	serving.Go(func() {
		if err := server.Serve(web); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the fakes of services have ended", "error", err)
		}
	})
	return func() {
		cancel()
		all.close()
		_ = server.Close()
		_ = mail.Close()
		serving.Wait()
	}, nil
}

// listenOr listens at *address, or where that is empty at usual, or a free port if
// that is taken; *address is where it does.
func listenOr(ctx context.Context, address *string, usual string) (net.Listener, error) {
	var config net.ListenConfig
	asked := *address != ""
	l, err := config.Listen(ctx, "tcp", cmp.Or(*address, usual))
	if err != nil && !asked {
		l, err = config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("catch mail: %w", err)
	}
	*address = l.Addr().String()
	return l, nil
}

// withDeliveries is file, and enables deliveries unless it says that they are off.
func withDeliveries(file *config.Config) *config.Config {
	with := *file
	with.Outbox.Enabled = cmp.Or(file.Outbox.Enabled, "true")
	return &with
}

// devDispatcher, which is for deliveries that are enabled, has the catchers as
// providers beside the file's own. public is where they say what became of what they took.
func (a *app) devDispatcher(cmd *cobra.Command, settings *outboxSettings, file *config.Config, c *catchers, public string, log *slog.Logger) (*dispatcher, error) {
	d, err := a.newDispatcher(cmd, settings, withDeliveries(file), log)
	if err != nil {
		return nil, err
	}
	built, err := builtIn(c.smtpAddress, c.httpAddress, c.fakes.events(public))
	if err != nil {
		return nil, err
	}
	for name, p := range built {
		if _, taken := d.opts.Providers[name]; taken {
			continue
		}
		d.opts.Providers[name] = delivery.ProviderOptions{Provider: p}
		if reader, ok := p.(delivery.EventReader); ok {
			d.readers[name] = reader
		}
	}
	return d, nil
}

// builtInOf are the providers of the deed dev whose mailbox is at address.
func builtInOf(ctx context.Context, address string) (map[string]delivery.Provider, error) {
	var said struct {
		Address string `json:"address"`
	}
	if err := askCatcher(ctx, address, "/smtp", &said); err != nil {
		return nil, err
	}
	return builtIn(said.Address, address, devEvents{})
}

func newMailbox(a *app) *cobra.Command {
	var address, via string
	var asJSON, headers bool
	cmd := &cobra.Command{
		Use: "mailbox", Short: "List what deed dev has caught", Args: cobra.NoArgs,
		Long:    "List what the built-in providers of a running deed dev have been sent, oldest first.",
		Example: "  deed dev mailbox --via telegram --json\n  deed dev mailbox --headers    # what List-Unsubscribe says, say",
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.catcherAt(address)
			if err != nil {
				return err
			}
			data, list, err := readMailbox(cmd.Context(), at)
			if err != nil {
				return err
			}
			if via != "" {
				if built, err := builtInOf(cmd.Context(), at); err != nil {
					return err
				} else if built[via] == nil {
					return usagef("--via %q is no provider that deed dev has built in; there are %s", via, strings.Join(slices.Sorted(maps.Keys(built)), ", "))
				}
				list = slices.DeleteFunc(list, func(m catcher.Mail) bool { return m.Via != via })
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]any{"data": data, "mailbox": list})
			}
			if data != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "caught by the deed dev whose data is in %s\n", data)
			}
			if headers {
				return printMails(cmd.OutOrStdout(), list)
			}
			rows := make([][]string, len(list))
			for i, m := range list {
				rows[i] = []string{when(m.At), m.Via, m.From, strings.Join(m.To, ", "), m.Subject, attached(m), strings.TrimSpace(m.Text)}
			}
			return printRows(cmd, []string{"AT", "VIA", "FROM", "TO", "SUBJECT", "WITH", "TEXT"}, rows)
		},
	}
	cmd.Flags().StringVar(&address, "catch-http", "", "where deed dev says that its mailbox listens; also DEED_CATCH_HTTP (default "+defaultCatchHTTP+")")
	cmd.Flags().StringVar(&via, "via", "", "only what came by this provider, such as smtp or telegram")
	cmd.Flags().BoolVar(&headers, "headers", false, "each in full, with the headers of those that came by SMTP")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// printMails prints each as a mail program shows its source: headers, and what its recipient reads.
func printMails(w io.Writer, list []catcher.Mail) error {
	for i, m := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s by %s, from %s to %s\n", when(m.At), m.Via, m.From, strings.Join(m.To, ", "))
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			for _, value := range m.Headers[name] {
				fmt.Fprintf(w, "%s: %s\n", name, value)
			}
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(m.Text)); err != nil {
			return err
		}
	}
	return nil
}

// attached names what a mail had with it.
func attached(m catcher.Mail) string {
	names := make([]string, len(m.Attachments))
	for i, a := range m.Attachments {
		names[i] = fmt.Sprintf("%s (%s, %d bytes)", a.Name, cmp.Or(a.Type, "no type"), a.Size)
	}
	return cmp.Or(strings.Join(names, ", "), "-")
}

// catcherAt is where the mailbox of deed dev listens: as the flag says, the
// environment, or deed.yaml.
func (a *app) catcherAt(flag string) (string, error) {
	file, err := a.config()
	if err != nil {
		return "", err
	}
	return setting(flag, "DEED_CATCH_HTTP", file.Dev.CatchHTTP, defaultCatchHTTP), nil
}

// readMailbox is what a deed dev has caught, and the folder of its data.
func readMailbox(ctx context.Context, address string) (data string, list []catcher.Mail, err error) {
	var said struct {
		Data    string         `json:"data"`
		Mailbox []catcher.Mail `json:"mailbox"`
	}
	err = askCatcher(ctx, address, "/mailbox", &said)
	return said.Data, said.Mailbox, err
}

// askCatcher reads what the catcher of a deed dev says.
func askCatcher(ctx context.Context, address, path string, said any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return usagef("--catch-http %q is not an address and a port", address)
	}
	client := &http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("mailbox: %w; is deed dev running?", errors.Unwrap(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 100<<20))
	if err != nil {
		return fmt.Errorf("mailbox: %w", err)
	}
	if err := json.Unmarshal(text, said); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("mailbox: %s is not deed dev (status %d)", address, response.StatusCode)
	}
	return nil
}
