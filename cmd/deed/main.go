// Command deed publishes, relays, inspects and operates: see deed --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
)

func main() { os.Exit(program()) }

func program() int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() { // ends with the process
		<-signals
		stop()
		<-signals
		os.Exit(exitFailed)
	}()
	return execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func execute(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	columns, _ := strconv.Atoi(os.Getenv("COLUMNS")) // watch(1) exports it
	return executeOn(ctx, args, in, &escaper{to: out, columns: max(columns, 0)}, &escaper{to: errs})
}

func executeOn(ctx context.Context, args []string, in io.Reader, out, errs *escaper) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if text := ofFlags(err); text != "" {
		err = usagef("%s; see %s --help", text, cmd.CommandPath())
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		if e.err == nil {
			return e.code
		}
		code = e.code
	} else if deed.CodeOf(err) == deed.Invalid || errors.Is(err, contact.ErrInvalid) {
		code = exitUsage
	}
	fmt.Fprintln(errs, "deed:", worded(cmd, err))
	return code
}

func newRoot() *cobra.Command {
	a := &app{}
	var wide bool
	root := &cobra.Command{
		Use:     "deed",
		Version: version,
		Short:   "Reliable side effects on PostgreSQL",
		Long: `deed is a transactional outbox for PostgreSQL, with a job queue, ordered streams, webhooks and e-mail. What a system
owes the outside world is written to its own database in the transaction that owes it, attempted by one owner at a
time, and ends in a recorded outcome.

Settings come from flags, then from the environment (--database-url is DEED_DATABASE_URL), then from
deed.yaml (--config, DEED_CONFIG, ./deed.yaml). The database may also be named by PGHOST, PGDATABASE, ….

Exit status: 0 ok, 1 failed, 2 usage or configuration, 3 partly done.`,
		Example: `  deed dev                                   a private PostgreSQL, migrated, with a relay that prints
  deed publish --topic orders --payload '{"order": 42}'
  deed relay --config deed.yaml
  deed status`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// A file that somebody has named is there, whether the command needs it or not.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if out, ok := cmd.OutOrStdout().(*escaper); ok {
				out.wide = wide
			}
			helps := cmd.Name() == "help" || cmd.HasParent() && cmd.Parent().Name() == "completion"
			if helps || a.configFile == "" && os.Getenv("DEED_CONFIG") == "" {
				return nil
			}
			_, err := a.config()
			return err
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%s%s; see %s --help", notGo(err.Error()), orWhichFlag(cmd, err), cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.databaseURL, "database-url", "", "the database, as a URL or keywords; also DEED_DATABASE_URL")
	f.StringVar(&a.configFile, "config", "", "the configuration file; also DEED_CONFIG (default ./deed.yaml if it exists)")
	f.StringVar(&a.logLevel, "log-level", "", "debug, info, warn or error; also DEED_LOG_LEVEL (default info)")
	f.StringVar(&a.logFormat, "log-format", "", "text or json; also DEED_LOG_FORMAT (default text)")
	f.StringVar(&a.worker, "worker", "", "this process's name in claims and receipts; also DEED_WORKER (default host:pid)")
	f.StringVar(&a.environment, "environment", "", "where this runs, such as production: relays hold in a copy that is another's; also DEED_ENVIRONMENT")
	f.StringVar(&a.onNewCluster, "on-new-cluster", "", "hold or continue in a copy; also DEED_ON_NEW_CLUSTER (default hold with deliveries, webhooks, sources, links, campaigns or steps of runs)")
	f.BoolVar(&wide, "wide", false, "tables with all of their columns, times and texts (default: as wide as the terminal, COLUMNS or 100 characters)")
	root.AddCommand(newDev(a), newRelay(a), newListen(a), newPublish(a), newTail(a), newMigrate(a), newUninstall(a), newVersion(a))
	for _, add := range []func(*app) *cobra.Command{
		newStatus, newMessages, newShow, newDead, newReschedule, newAudit, newDeliver, newDeliveries, newContent, newInbound, newContacts, newConsents, newSuppressions, newProviders, newEvents, newRun, newPlan, newCampaign,
		newTenant, newTopic, newSubscription, newKeys, newSettings, newVerify, newAdopt, newRetention, newInbox, newDoctor,
	} {
		root.AddCommand(a.bounded(add(a)))
	}
	root.SetVersionTemplate("deed {{.Version}}\n")
	root.InitDefaultHelpCmd()
	fitHelp(root)
	root.InitDefaultCompletionCmd()
	checkArguments(root)
	complete(a, root)
	return root
}

// checkArguments makes wrong arguments a matter of usage, and a group of
// commands refuse what it does not know.
func checkArguments(cmd *cobra.Command) {
	check := cmd.Args
	if cmd.Name() == "help" {
		check = func(cmd *cobra.Command, args []string) error {
			if _, rest, err := cmd.Root().Find(args); err != nil || len(rest) > 0 {
				return fmt.Errorf("unknown command %q%s", strings.Join(args, " "), orWhich(cmd.Root(), args))
			}
			return nil
		}
	}
	if cmd.HasSubCommands() {
		check = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("unknown command %q of %s%s", args[0], cmd.CommandPath(), orWhich(cmd, args))
		}
		if cmd.RunE == nil {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(cmd, args)
		if err == nil {
			return nil
		}
		if !cmd.HasSubCommands() && cmd.Name() != "help" {
			err = wrongCount(cmd, check, args)
		}
		return usagef("%w; see %s --help", err, cmd.CommandPath())
	}
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
}

// wrongCount says which argument is too many, or that one is missing.
func wrongCount(cmd *cobra.Command, check cobra.PositionalArgs, args []string) error {
	for i, extra := range slices.Backward(args) {
		if check(cmd, args[:i]) != nil {
			continue
		}
		hint := ""
		if topic := cmd.Flags().Lookup("topic"); topic != nil && !topic.Changed {
			hint = fmt.Sprintf(" (did you mean --topic %s?)", extra)
		}
		return fmt.Errorf("%q is an argument too many for %s%s", extra, cmd.CommandPath(), hint)
	}
	return fmt.Errorf("an argument is missing: %s", cmd.UseLine())
}

var (
	unknownFlag = regexp.MustCompile(`^unknown flag: --([a-z0-9-]+)$`)
	flagNames   = regexp.MustCompile(`--([a-z0-9-]+)`)
)

// unparsed is what Go says of a flag's value that it cannot read.
var unparsed = regexp.MustCompile(`strconv\.(Parse\w+|Atoi): parsing "[^"]*": (invalid syntax|value out of range)`)

// notGo says of a flag's value what it is not, without the names of Go's functions.
func notGo(text string) string {
	return unparsed.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasSuffix(s, "range"):
			return "it is too large, or too small"
		case strings.HasPrefix(s, "strconv.ParseBool"):
			return "it is neither true nor false"
		}
		return "it is not a number without a unit"
	})
}

// orWhichFlag asks the same of a flag.
func orWhichFlag(cmd *cobra.Command, err error) string {
	unknown := unknownFlag.FindStringSubmatch(err.Error())
	if unknown == nil {
		return ""
	}
	flags := &cobra.Command{}
	for _, name := range flagNames.FindAllStringSubmatch(cmd.LocalFlags().FlagUsages()+cmd.InheritedFlags().FlagUsages(), -1) {
		flags.AddCommand(&cobra.Command{Use: name[1], Run: func(*cobra.Command, []string) {}})
	}
	return strings.NewReplacer("did you mean ", "did you mean --", " or ", " or --").Replace(orWhich(flags, unknown[1:]))
}

// orWhich asks whether a command was meant whose name is like the one given.
func orWhich(cmd *cobra.Command, args []string) string {
	cmd.SuggestionsMinimumDistance = 2
	like := cmd.SuggestionsFor(args[0])
	if len(like) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(like, " or ") + "?)"
}
