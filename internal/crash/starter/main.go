// Command starter is a process that tests kill. It asks a Starter for the runs of VICTIM_REQUESTS requests of the plan p, each of two
// goroutines, and says of each what it was answered: "answered REQUEST RUN". Every fourth comes beside one that is refused, so that
// those of its statement are tried alone.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, _ *slog.Logger) error {
	requests, err := strconv.Atoi(os.Getenv("VICTIM_REQUESTS"))
	if err != nil {
		return err
	}
	s, err := run.NewStarter(pool, run.StarterOptions{Deadline: time.Minute}) // or what a busy machine holds up fails
	if err != nil {
		return err
	}
	process.Runs()
	starting, stop := context.WithCancel(ctx)
	var starter, callers sync.WaitGroup
	starter.Go(func() { err = s.Run(starting) })
	for n := range requests {
		for _, version := range []string{"", "1"} {
			callers.Go(func() { ask(ctx, s, run.Request{Plan: "p", Version: version, ID: strconv.Itoa(n)}) })
		}
		if n%4 == 0 {
			callers.Go(func() { ask(ctx, s, run.Request{Plan: "unknown", ID: strconv.Itoa(n)}) })
		}
		if n%10 == 9 {
			callers.Wait()
		}
	}
	callers.Wait()
	stop()
	starter.Wait()
	return err
}

// ask says what it is answered in one write, which is whole or not there.
func ask(ctx context.Context, s *run.Starter, req run.Request) {
	started, err := s.Start(ctx, req)
	switch {
	case err == nil:
		fmt.Printf("answered %s %s\n", req.ID, started.ID)
	case deed.CodeOf(err) == deed.NotFound && req.Plan != "p":
		fmt.Printf("refused %s\n", req.ID)
	default:
		fmt.Fprintf(os.Stderr, "request %s: %v\n", req.ID, err)
		os.Exit(1)
	}
}
