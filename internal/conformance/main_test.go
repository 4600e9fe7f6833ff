package main

import (
	"strings"
	"testing"
)

const register = "| clause | promise | status | tests | seed |\n" +
	"| O1 | Publish in the transaction | kept | `TestContract_O1_A`, `TestContract_O1_B`, `TestOther` | 004 Overview |\n" +
	"| O2 | One signature | partly: not all | `TestContract_O2_A` | 003 NO OVERLOADS |\n" +
	"| O3 | A face | to come | | 003 Schema |\n" +
	"| O4 | Another | kept | `TestContract_O4_A` | 004 Smoke |\n"

const stream = `{"Action":"run","Package":"p","Test":"TestContract_O1_A"}
{"Action":"output","Package":"p","Test":"TestContract_O1_A","Output":"why it failed\n"}
{"Action":"fail","Package":"p","Test":"TestContract_O1_A"}
{"Action":"pass","Package":"q","Test":"TestContract_O1_A"}
{"Action":"output","Package":"p","Test":"TestContract_O1_B","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestContract_O1_B"}
{"Action":"pass","Package":"p","Test":"TestContract_O2_A"}
{"Action":"fail","Package":"p"}
`

func TestReport(t *testing.T) {
	t.Parallel()
	clauses := parse(register)
	if len(clauses) != 4 || len(clauses[0].tests) != 2 {
		t.Fatalf("parsed %+v", clauses)
	}
	var said, out strings.Builder
	got, err := read(strings.NewReader(stream), &said)
	if err != nil {
		t.Fatal(err)
	}
	if said.String() != "why it failed\n" {
		t.Errorf("told of failures: %q", said.String())
	}
	if wrong := report(&out, clauses, got); wrong != 2 {
		t.Errorf("%d clauses failed, want 2", wrong)
	}
	for _, want := range []string{"O1     FAIL ", "TestContract_O1_A\n", "O2     partly ", "O3     to come ", "O4     FAIL ", "TestContract_O4_A (did not run)", "0 clauses pass, 1 partly, 1 to come, 2 fail"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "TestContract_O1_B") {
		t.Errorf("the table names a test that passed:\n%s", out.String())
	}
	if _, err := read(strings.NewReader("no JSON\n"), &said); err == nil {
		t.Error("what is no JSON was read")
	}
}
