// The run command runs a command with a Kafka server of its own, which the
// tests of the sink find through the environment, and removes it afterwards:
//
//	go run ./broker/run -- go test ./kafka
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/deedhq/deed/e2e/broker"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: run -- COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	status, err := run(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
	}
	os.Exit(status)
}

// run returns the command's exit status, or 1 for an error of our own.
func run(args []string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "deed-kafka-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cluster, err := broker.Start(starting, broker.Options{Dir: dir})
	if err != nil {
		return 1, err
	}
	defer cluster.Kill()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KAFKA_SEEDS="+strings.Join(cluster.Addresses(), ","))
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
