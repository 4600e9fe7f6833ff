package run_test

import (
	"testing"

	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/tenant"
)

// The line end of a variable is none of the value, as that of a file is not: no header can have one.
func TestSecretSources_LineEnds(t *testing.T) {
	t.Setenv("DEED_TEST_LINE", "of a line\r\n")
	t.Setenv("DEED_TEST_LINE_ALONE", "\n")
	sources := run.SecretSources{{Ref: "secret://psp", From: "env:DEED_TEST_LINE"}, {Ref: "secret://none", From: "env:DEED_TEST_LINE_ALONE"}}
	got, err := sources.Resolve(t.Context(), []string{"secret://psp"}, tenant.ID{}, "default")
	if err != nil || got["secret://psp"] != "of a line" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := sources.Resolve(t.Context(), []string{"secret://none"}, tenant.ID{}, "default"); err == nil {
		t.Errorf("%q", got)
	}
}
