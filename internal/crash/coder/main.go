// Command coder is a process that tests kill. It is an engine, whose handler "code", which is the function "f" as well, has inner steps of all
// kinds. Those that charge ask the payment service VICTIM_PSP, with their key and the secret of the step; what Tx does is a row of
// public.orders, and an artifact is in the directory VICTIM_ARTIFACTS.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/process"
	"github.com/deedhq/deed/run"
)

func main() { process.Main(work) }

func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) error {
	files, err := run.NewFiles(os.Getenv("VICTIM_ARTIFACTS"))
	if err != nil {
		return err
	}
	secrets := map[string]string{"key": "secret://psp"}
	e, err := local.New(ctx, pool, local.Options{
		Handlers: []local.Handler{
			local.Step("code", code),
			local.Func("f", 1, code).With(local.Policy{Secrets: secrets}),
			local.Func("f", 2, code).With(local.Policy{Secrets: secrets, AtMostOnce: true}),
		},
		Secrets: run.SecretSources{{Ref: "secret://psp", From: "env:VICTIM_SECRET"}}, Artifacts: files,
		Lease: time.Second, PollInterval: 20 * time.Millisecond, Concurrency: 4,
		OnNewCluster: deed.Continue, Logger: log,
	})
	if err != nil {
		return err
	}
	process.Runs()
	return e.Run(ctx)
}

// charge asks the payment service, and returns what that says: the key that it knows the charge by.
func charge(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("VICTIM_PSP"), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", run.Key(ctx))
	req.Header.Set("Authorization", "Bearer "+run.Secret(ctx, "key"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("the service says %s", resp.Status)
	}
	return string(said), err
}

// code passes on what the steps before it have returned, so that one that is not remembered shows.
func code(ctx context.Context, _ map[string]any) (string, error) {
	first, err := run.Step(ctx, "first", charge)
	if err != nil {
		return "", err
	}
	if err := run.Tx(ctx, "order", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into public.orders (first) values ($1)`, first)
		return err
	}); err != nil {
		return "", err
	}
	if err := run.Sleep(ctx, "cool-off", 1100*time.Millisecond); err != nil {
		return "", err
	}
	if err := run.Parallel(ctx, run.Branch{Name: "left", Do: left}, run.Branch{Name: "right", Do: right}); err != nil {
		return "", err
	}
	if _, err := run.Step(ctx, "report", func(ctx context.Context) (string, error) {
		made, err := run.Put(ctx, "report", strings.NewReader("charged "+first))
		return made.SHA256, err
	}); err != nil {
		return "", err
	}
	return run.Step(ctx, "last", func(ctx context.Context) (string, error) {
		_, err := charge(ctx)
		return first, err
	})
}

func left(ctx context.Context) error {
	if _, err := run.Step(ctx, "a", charge); err != nil {
		return err
	}
	_, err := run.Step(ctx, "b", charge)
	return err
}

func right(ctx context.Context) error {
	if err := run.Sleep(ctx, "short", time.Millisecond); err != nil {
		return err
	}
	_, err := run.Step(ctx, "a", charge)
	return err
}
