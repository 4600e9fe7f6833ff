package config_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/tenant"
)

// Secrets of plans are sources, for all or for a tenant and an environment; what is none is not repeated.
func TestParse_SecretsOfRuns(t *testing.T) {
	t.Parallel()
	got, err := parse(`runs: {enabled: true, secrets: {psp: "env:PSP", shop/key: [{from: "file:/run/shop", environment: test}, {from: "file:rel", tenant: 6f1c2d3e-0000-4000-8000-000000000001}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := tenant.Parse("6f1c2d3e-0000-4000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Runs.Secrets); n != 3 || filepath.Base(got.Runs.Secrets[2].From) != "rel" {
		t.Fatalf("%+v", got.Runs.Secrets)
	}
	got.Runs.Secrets[2].From = "file:rel"
	want := []config.RunSecret{
		{Ref: "secret://psp", From: "env:PSP"},
		{Ref: "secret://shop/key", From: "file:/run/shop", Environment: "test"},
		{Ref: "secret://shop/key", From: "file:rel", Tenant: &owner},
	}
	if diff := cmp.Diff(want, got.Runs.Secrets); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	for _, text := range []string{"psp: hunter2", "psp: {from: hunter2}", "psp: [{from: hunter2}]", "psp: [{environment: test}]", `psp: ["env:A"]`, `"a b": "env:A"`, `psp: "env:hunter 2"`, `psp: [{from: "env:A", tenant: x}]`} {
		if _, err := parse("runs: {secrets: {" + text + "}}"); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The budget stands under the names of seed 001; a class in both lists, or an end in the first, is refused.
func TestParse_StateStoreOfRuns(t *testing.T) {
	t.Parallel()
	got, err := parse(`runs: {journal: /var/lib/j, stateStore: {writeLatencyBudgetMs: 3000, failOpenForEventClass: ["StepStarted"], neverFailOpen: ["StepCompleted", "StepFailed"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	want := config.StateStore{WriteLatencyBudget: 3 * time.Second, FailOpenForEventClass: []string{"StepStarted"}, NeverFailOpen: []string{"StepCompleted", "StepFailed"}}
	if diff := cmp.Diff(want, got.Runs.StateStore); diff != "" || got.Runs.Journal != "/var/lib/j" {
		t.Errorf("journal %q, (-want +got):\n%s", got.Runs.Journal, diff)
	}
	if got, err = parse(`runs: {stateStore: {failOpenForEventClass: []}}`); err != nil || got.Runs.StateStore.FailOpenForEventClass == nil {
		t.Errorf("none that fails open: %+v, %v", got.Runs.StateStore, err)
	}
	for _, text := range []string{
		`failOpenForEventClass: [StepCompleted]`, `failOpenForEventClass: [StepSkipped]`, `failOpenForEventClass: [StepStarted], neverFailOpen: [StepStarted]`, `failOpenForEventClass: [RunStarted]`,
		`neverFailOpen: [StepStartled]`, `writeLatencyBudgetMs: 3s`, `writeLatencyBudgetMs: 0`, `failOpen: []`,
	} {
		if _, err := parse("runs: {stateStore: {" + text + "}}"); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
