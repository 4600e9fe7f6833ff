// Command demo shows deed's main job and measures it: flights are published in
// the transactions that store them, two relay processes deliver them to a
// webhook receiver and to a Go handler, relays and the server are killed on the
// way, and a table says what arrived. In a second act campaigns reach airports by
// e-mail and by posts, and a relay is killed. What it counts comes from the flights
// table and from the receivers' own records, never from deed's tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	input    string
	dir      string
	flights  int
	pace     time.Duration
	list     string
	members  int
	sabotage bool
	keep     bool
}

// errVerdict says that the demo ran to its end and found something wrong,
// which the report has said.
var errVerdict = errors.New("the report names failures")

func main() {
	// The demo starts itself again for the parts that get killed.
	if part := os.Getenv("DEMO_PART"); part != "" {
		if err := runPart(part); err != nil {
			fmt.Fprintf(os.Stderr, "demo %s: %v\n", part, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleaning up
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil:
	case errors.Is(err, errVerdict):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.StringVar(&o.input, "input", "../examples/flights.ndjson", "the flights: NDJSON, each line an object with its own `id`")
	f.IntVar(&o.flights, "flights", 5000, "how many of them")
	f.DurationVar(&o.pace, "pace", 24*time.Second, "how long publishing takes, without the outages")
	f.StringVar(&o.list, "airports", "../examples/airports.csv", "whom the campaigns of the second act reach: CSV")
	f.IntVar(&o.members, "members", 3376, "how many of them; 0 leaves that act out")
	f.BoolVar(&o.sabotage, "sabotage", false, "acknowledge before delivering, to see that the demo can fail")
	f.BoolVar(&o.keep, "keep", false, "keep the files: what arrived, what was committed, the logs, the cluster")
	f.StringVar(&o.dir, "dir", "", "keep them in this folder, which must be empty or absent")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q", f.Arg(0)))
	}
	if o.flights < 1 {
		errs = append(errs, fmt.Errorf("--flights %d is below 1", o.flights))
	}
	if o.pace < time.Second {
		errs = append(errs, fmt.Errorf("--pace %s is below 1s, too short to kill anything on the way", o.pace))
	}
	if o.members < 0 {
		errs = append(errs, fmt.Errorf("--members %d is below 0", o.members))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var airports []airport
	if o.members > 0 {
		var err error
		if airports, err = readAirports(o.list, o.members); err != nil {
			return err
		}
	}
	flights, err := readFlights(o.input, o.flights)
	if err != nil {
		return err
	}
	return perform(ctx, o, flights, airports)
}
