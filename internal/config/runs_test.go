package config_test

import (
	"path/filepath"
	"strings"
	"testing"

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
