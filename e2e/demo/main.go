// Command demo shows deed's main job and measures it: flights are published in
// the transactions that store them, two relay processes deliver them to a
// webhook receiver and to a Go handler, relays and the server are killed on the
// way, and a table says what arrived. What it counts comes from the flights
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
	sabotage bool
	keep     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// The demo starts itself again for the parts that get killed.
	if len(args) > 0 && args[0] == "relay" {
		return relay(ctx)
	}
	if len(args) > 0 && args[0] == "receiver" {
		return receiver(ctx)
	}
	var o options
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.StringVar(&o.input, "input", "../examples/flights.ndjson", "the flights, one JSON object with an id a line")
	f.StringVar(&o.dir, "dir", "", "where to keep the files (default: a temporary folder, removed)")
	f.IntVar(&o.flights, "flights", 5000, "how many of them")
	f.DurationVar(&o.pace, "pace", 20*time.Second, "how long publishing should take")
	f.BoolVar(&o.sabotage, "sabotage", false, "acknowledge before delivering, to see that the demo can fail")
	f.BoolVar(&o.keep, "keep", false, "keep the files")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if o.flights < 1 || o.pace < 0 {
		return errors.New("--flights must be at least 1, --pace not negative")
	}
	return stage(ctx, o)
}
