package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/schema"
)

func newDev(a *app) *cobra.Command {
	var data, address string
	var port int
	var payload bool
	var outbox outboxSettings
	var catch catchers
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "A private PostgreSQL, migrated, with a relay and a mailbox",
		Long: `Run everything on a private PostgreSQL: start it (or make it), migrate, and relay. The topics of deed.yaml go to
their sinks; what is published to any other topic is printed here. Deliveries through the built-in providers (smtp,
bluesky, mastodon, postmark, resend, sendgrid, ses, slack, telegram, twilio, whatsapp) are caught by fakes that refuse
what the services refuse: deed dev mailbox lists them, and nobody is written to; --fault has the fakes fail. They say
later what became of it, as deed deliveries show tells: it was delivered, or what bounce@…, soft@…, complaint@…,
unsubscribe@… and silent@… say (of numbers, 0101 to 0105 at their ends). The sources of deed.yaml are served, and two
more that deed dev say writes to: dev answers by mail, whatsapp there. What webhooks post to /hook beside the mailbox
is checked and printed, as by deed listen. Steps of runs are done, but for those of kind go, and the plan hello is there
to start. Ctrl-C stops it all; the data stay. Its environment is the one that the data
have, unless --environment names one.

A project has a deed dev of its own with a folder for it in its deed.yaml: dev: {data: .deed}. Addresses that nobody gave
make way for free ones where they are taken, and are printed; they can be fixed there, too (docs/configuration.md).`,
		Example: `  deed dev
  deed dev --data ./devdata --payload
  deed dev --fault reset/3
  deed dev --events reverse
  deed dev mailbox --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			if a.databaseURL != "" {
				return usagef("deed dev has a database of its own: --database-url is for the other commands")
			}
			file, err := a.config()
			if err != nil {
				return err
			}
			if err := lacks(file); err != nil {
				return err
			}
			log, err := a.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			deliveries, _, err := outbox.options(cmd, withDeliveries(file).Outbox)
			if err != nil {
				return err
			}
			listener, err := listenOrElsewhere(cmd, address, file)
			if err != nil {
				return err
			}
			if listener != nil {
				defer listener.Close()
			}
			if data, err = dataFolder(setting(data, "DEED_DATA", file.Dev.Data, "")); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			catch.hooks.out, catch.data = out, data
			if err := catch.hooks.findSecrets(a, false); err != nil {
				return err
			}
			catch.nobodyListens = !deliveries
			stopCatching, err := catch.start(ctx, file.Dev, log)
			if err != nil {
				return err
			}
			defer stopCatching()
			fmt.Fprintf(out, "starting a private PostgreSQL in %s …\n", data)
			cluster, err := pgembed.Start(ctx, pgembed.Options{Dir: data, Port: cmp.Or(port, file.Dev.Port), Logger: log})
			if err != nil {
				return err
			}
			defer func() {
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
				defer cancel()
				err = errors.Join(err, cluster.Stop(stop))
			}()
			url := cluster.URL("postgres")
			if a.environment, err = migrateDev(ctx, url, setting(a.environment, "DEED_ENVIRONMENT", "", "")); err != nil {
				return err
			}
			file.Environment = "" // that of the file is its relays'
			if err := putHelloPlan(ctx, url); err != nil {
				return err
			}
			r := &relay{app: a, file: devRuns(file), log: log, out: out, url: url, listener: listener, catchAll: &printer{out: out, payload: payload}}
			if deliveries {
				public, err := devPublic(ctx, file)
				if err != nil {
					return err
				}
				defer public.Close()
				catch.public.Store(public.Addr().String())
				if r.dispatcher, err = a.devDispatcher(cmd, &outbox, file, &catch, public.Addr().String(), log); err != nil {
					return err
				}
				defer closeProviders(r.dispatcher.opts.Providers)
				if err := r.dispatcher.register(ctx, url); err != nil {
					return err
				}
				if err := file.CheckReplies(slices.Collect(maps.Keys(r.dispatcher.opts.Providers))...); err != nil {
					return &exitError{exitUsage, err}
				}
				if r.receiving, err = a.devReceiving(ctx, file, public, log); err != nil {
					return err
				}
			}
			fmt.Fprint(out, devReady(url, &catch, file.Dev, deliveries, listener))
			if r.onNewCluster, r.environment, err = a.newCluster(); err != nil {
				return err
			}
			if r.dispatcher != nil {
				r.onNewCluster = cmp.Or(r.onNewCluster, deed.Hold)
			}
			return r.run(ctx)
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "the folder of the private PostgreSQL; also DEED_DATA (default in the user's data folder)")
	cmd.Flags().StringVar(&address, "listen", defaultListen, "the address of /healthz, /readyz and /metrics, or a free port if that is taken; '' for none; also DEED_LISTEN")
	cmd.Flags().IntVar(&port, "port", 0, "the port of the private PostgreSQL (default a free one, which it keeps)")
	cmd.Flags().BoolVar(&payload, "payload", false, "print contents too")
	catch.add(cmd)
	outbox.add(cmd)
	cmd.AddCommand(a.bounded(newMailbox(a)), a.bounded(newSay(a)))
	return cmd
}

// devReady says what may be done with a deed dev that is there.
func devReady(url string, catch *catchers, dev config.Dev, deliveries bool, listener net.Listener) string {
	hint := catch.hint(dev)
	offers, off := fmt.Sprintf(`  deed deliver --provider smtp --to you@example.com --subject Hello --text 'It works.'
  deed dev say 'Is anybody there?'%s
  deed run start hello --wait 30s
`, hint), ""
	if !deliveries {
		offers, off = "", "\ndeliveries are off: sources are not served (channels.outbox.enabled)\n"
	}
	return fmt.Sprintf(`ready. In another terminal:

  export DEED_DATABASE_URL='%s'
  deed publish --topic hello --payload '{"n": 1}'
  deed status
%s  deed dev mailbox%s

Messages of topics that nobody declared appear here, and what webhooks post to http://%s/hook
(allow_hosts: [127.0.0.1]).%s Ctrl-C stops.
%s
`, url, offers, hint, catch.httpAddress, healthAt(listener), off)
}

// listenOrElsewhere listens where it is told to; where nobody said it, and the usual
// port is taken, at a free one.
func listenOrElsewhere(cmd *cobra.Command, flag string, file *config.Config) (net.Listener, error) {
	address := listenAddress(cmd, flag, file)
	listener, err := listen(cmd.Context(), address)
	if errors.Is(err, syscall.EADDRINUSE) && !cmd.Flags().Changed("listen") && cmp.Or(os.Getenv("DEED_LISTEN"), file.Listen) == "" {
		return listen(cmd.Context(), "127.0.0.1:0")
	}
	return listener, err
}

// healthAt says where health and metrics are, unless it is where they usually are.
func healthAt(listener net.Listener) string {
	if listener == nil || listener.Addr().String() == defaultListen {
		return ""
	}
	return fmt.Sprintf(" Health and metrics are at http://%s.", listener.Addr())
}

// migrateDev returns the environment that is named, or else the installation's:
// what a deed.yaml in the folder says is of its relays.
func migrateDev(ctx context.Context, url, named string) (environment string, err error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err = schema.Up(ctx, conn); err != nil || named != "" {
		return named, err
	}
	err = conn.QueryRow(ctx, `select coalesce(s.environment, '') from deed.settings s`).Scan(&environment)
	return environment, err
}

// dataFolder is where deed dev keeps its cluster: where it is told to, or in the
// user's data folder. As root the server runs as another user, who could not
// pass through root's home.
func dataFolder(named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if os.Getuid() == 0 {
		return "/var/lib/deed/dev", os.MkdirAll("/var/lib/deed", 0o755)
	}
	dir := os.Getenv("XDG_DATA_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("where to keep the data: %w; give --data", err)
		}
		dir = filepath.Join(home, ".local", "share")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Abs(filepath.Join(dir, "deed"))
}
