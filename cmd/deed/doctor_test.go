package main

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/doctor"
)

func TestPrintFindings(t *testing.T) {
	t.Parallel()
	well := doctor.Findings{{Name: "recovery", Level: doctor.OK, Detail: "it takes writes"}}
	trouble := append(doctor.Findings{{
		Name: "horizon-session", Level: doctor.Warn, Subject: "pid 7 (a\x1b[31m)",
		Detail: "keeps vacuum from removing dead rows of all tables", Remedy: "select pg_terminate_backend(7);",
	}}, well...)
	for name, test := range map[string]struct {
		findings doctor.Findings
		width    int
		verbose  bool
		want     string
	}{
		"well":    {well, 0, false, "1 checks, all well\n"},
		"verbose": {well, 0, true, "ok    recovery\n      it takes writes\n1 checks, all well\n"},
		"a pipe": {trouble, 0, false, `warn  horizon-session  pid 7 (a [31m)
      keeps vacuum from removing dead rows of all tables
      to do: select pg_terminate_backend(7);
2 checks: 0 findings fail, 1 warn
`},
		"a terminal": {trouble, 32, false, `warn  horizon-session  pid 7 (a [31m)
      keeps vacuum from removing
      dead rows of all tables
      to do: select
             pg_terminate_backend(7);
2 checks: 0 findings fail, 1 warn
`},
	} {
		var out strings.Builder
		if err := printFindings(&out, test.width, test.findings, test.verbose); err != nil {
			t.Fatal(err)
		}
		if out.String() != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, &out, test.want)
		}
	}
}
