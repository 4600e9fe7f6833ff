package main

import (
	"context"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/run/plan"
)

// helloPlan is what deed dev has to start: a message, a pause and an e-mail that is waited for.
const helloPlan = `
plan: hello
version: "1"
params: {to: you@example.com}
steps:
  tell: {kind: publish, topic: hello, payload: {input: "${input}"}}
  rest: {kind: sleep, after: [tell], for: 100ms}
  mail: {kind: deliver, after: [rest], channel: email, provider: smtp, to: "${params.to}", payload: {subject: Hello, text: It works.}, wait: sent}
`

// putHelloPlan stores it, for an installation without other tenants, unless somebody has stored another under its name.
func putHelloPlan(ctx context.Context, url string) error {
	p, err := plan.Parse("hello", []byte(helloPlan))
	if err != nil {
		return err
	}
	conn, err := connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = plan.Put(ctx, conn, nil, p, "deed dev")
	if code := deed.CodeOf(err); code == deed.Conflict || code == deed.Forbidden {
		return nil
	}
	return err
}

// devRuns is file, and keeps the snapshots of runs and does their steps, also those that call this machine.
func devRuns(file *config.Config) *config.Config {
	with := *file
	with.Runs.Enabled, with.Runs.Project = true, true
	with.Runs.AllowHosts = append([]string{"127.0.0.1", "::1"}, file.Runs.AllowHosts...)
	return &with
}
