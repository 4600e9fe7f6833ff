// The cluster command runs a command with a PostgreSQL of its own, which
// package pgtest finds through the environment, and removes it afterwards:
//
//	go run ./internal/pgtest/cluster -- go test ./...
//
// With -pooler the tests' logins reach it through PgBouncer in transaction mode.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

func main() {
	pooled := flag.Bool("pooler", false, "put PgBouncer in transaction mode between the tests' logins and the server")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: cluster [-pooler] -- COMMAND [ARGUMENT...]")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	status, err := run(flag.Args(), *pooled)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
	}
	os.Exit(status)
}

// run returns the command's exit status, or 1 for an error of our own.
func run(args []string, pooled bool) (status int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cluster, err := pgembed.Start(ctx, pgtest.Options())
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := cluster.Stop(context.Background()); stopErr != nil {
			status, err = max(status, 1), errors.Join(err, stopErr)
		}
	}()

	env := append(os.Environ(), pgtest.Env+"="+cluster.URL("postgres"))
	if pooled {
		url, stop, startErr := pgtest.StartPooler(ctx, cluster)
		if startErr != nil {
			return 1, startErr
		}
		defer func() {
			if stopErr := stop(); stopErr != nil {
				status, err = max(status, 1), errors.Join(err, stopErr)
			}
		}()
		env = append(env, pgtest.PoolerEnv+"="+url)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended just now
		case err := <-ended:
			return exitStatus(err)
		}
	}
}

func exitStatus(err error) (int, error) {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 0, err
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal()), nil
	}
	return exit.ExitCode(), nil
}
