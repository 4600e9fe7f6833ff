// Command bench measures deed beside River on one private PostgreSQL: the same
// server, the same settings, the same payloads, in turns. What it counts comes
// from the handlers and from the databases; a count that is wrong fails it, a
// goal that is missed does not. See docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// version is deed's, set by the linker.
var version = "unknown"

type options struct {
	runs     int
	messages int
	batch    int
	clients  int
	rate     int
	business time.Duration
	steady   time.Duration
	backlog  []int
	crowd    int
	members  int
	smtp     string
	burst    int
	later    int
	pages    int
	idle     time.Duration
	only     []string
	json     string
	profile  string
}

// errCounts says that something was lost or came twice, which the report has
// said.
var errCounts = errors.New("counts are wrong")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleaning up
	var err error
	if url := os.Getenv(childEnv); url != "" {
		err = workAsChild(context.Background(), url, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:])
	}
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errCounts):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	b, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report()
}

func parse(args []string) (options, error) {
	var o options
	var only, backlog string
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.runs, "runs", 5, "how often each measure is taken; medians are reported")
	f.IntVar(&o.messages, "messages", 100_000, "messages of a bulk, drain or cost run")
	f.IntVar(&o.batch, "batch", 1000, "messages a transaction when publishing in bulk")
	f.IntVar(&o.clients, "clients", 8, "connections that publish at once in business transactions")
	f.DurationVar(&o.business, "business", 5*time.Second, "how long each run of business transactions takes, and of the app face at the most")
	f.IntVar(&o.rate, "rate", 1000, "messages a second when latency is measured")
	f.DurationVar(&o.steady, "steady", 20*time.Second, "how long each run of latency takes, after a second to warm up")
	f.StringVar(&backlog, "backlog", "10000", "pending messages among which the app face is measured; several by commas, such as 10000,5000000")
	f.IntVar(&o.crowd, "crowd", 1_000_000, "finished messages among which a stream is drained; a tenth as many are parked, and scheduled")
	f.IntVar(&o.members, "members", 1_000_000, "members of the campaign that is reserved and stays")
	f.StringVar(&o.smtp, "smtp", "", "an SMTP server of yours, host:port without TLS, for 'campaigns smtp'. Default: one of the program's own")
	f.IntVar(&o.burst, "burst", 100_000, "messages that one transaction publishes to a stream")
	f.IntVar(&o.later, "later", 200_000, "messages that others publish to a stream, and that are drained, while a transaction stays open")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "how long a worker is observed that has nothing to do, after half as long to settle")
	f.IntVar(&o.pages, "pages", 20_000, "pages that a stream's lane records beside a snapshot that is held")
	f.StringVar(&only, "only", "", "take these measures only, of "+strings.Join(measureNames(), ","))
	f.StringVar(&o.json, "json", "", "write the figures to this file, too")
	f.StringVar(&o.profile, "cpuprofile", "", "write a profile of this program; its samples have the labels peer and measure")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if o.pages < 40 {
		errs = append(errs, fmt.Errorf("--pages %d is below 40", o.pages))
	}
	if o.crowd < 10 {
		errs = append(errs, fmt.Errorf("--crowd %d is below 10", o.crowd))
	}
	for name, n := range map[string]int{"runs": o.runs, "messages": o.messages, "batch": o.batch, "clients": o.clients, "rate": o.rate, "burst": o.burst, "later": o.later, "members": o.members} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("--%s %d is below 1", name, n))
		}
	}
	if o.business <= 0 || o.steady <= 0 || o.idle <= 0 {
		errs = append(errs, errors.New("--business, --steady and --idle must be above 0"))
	}
	for _, text := range strings.Split(backlog, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 2*faceBatch {
			errs = append(errs, fmt.Errorf("--backlog %q is not a number from %d on", text, 2*faceBatch))
		}
		o.backlog = append(o.backlog, n)
	}
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(measureNames(), name) {
			errs = append(errs, fmt.Errorf("--only: there is no measure %q; there are %s", name, strings.Join(measureNames(), ", ")))
		}
	}
	return o, errors.Join(errs...)
}
