package providertest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/provider/providertest"
)

// notOf are the faults that a protocol lacks, and why. The suite itself insists on those that
// every provider has.
var notOf = map[string][]providertest.Fault{
	// A server says when a session begins whether it knows who asks (answer_test.go, TestCheck), has no
	// redirects, and no answers that do not end or mean nothing: any line that is no reply breaks the session.
	"smtp": {providertest.ForNowAfter, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage, providertest.ServerError, providertest.Unauthorized, providertest.OptedOut},
	// A receiver has no account: 401 is its refusal of the request.
	"webhook": {providertest.Unauthorized, providertest.BadAddress, providertest.OptedOut},
	// A refusal of a number, or since they want no more, has a code with these two alone.
	"twilio": nil, "whatsapp": {providertest.BadAddress},
}

// ofHTTP are faults that no service over HTTP has: what follows its answer says nothing; and
// those of which most say nothing but by events.
var ofHTTP = []providertest.Fault{providertest.CutAfterOK}

// Each adapter runs the suite with every fault that its protocol has, and compares the bytes
// that it sends with a fixture that names its source.
func TestAdapters_AreProved(t *testing.T) {
	t.Parallel()
	all := []providertest.Fault{
		providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted, providertest.ResetBefore, providertest.ResetAccepted,
		providertest.SlowAccepted, providertest.Redirect, providertest.Garbage, providertest.ServerError, providertest.CutAfterOK, providertest.Unauthorized, providertest.BadAddress, providertest.OptedOut,
	}
	folders, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	adapters := 0
	for _, f := range folders {
		if !f.IsDir() || f.Name() == "providertest" || f.Name() == "stub" { // which calls nobody
			continue
		}
		adapters++
		name := f.Name()
		tests, err := filepath.Glob(filepath.Join("..", name, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var source strings.Builder
		for _, file := range tests {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(text)
		}
		if !strings.Contains(source.String(), "providertest.Run(") {
			t.Errorf("%s does not run the suite", name)
		}
		if name != "smtp" && !strings.Contains(source.String(), "gate.Reused") {
			t.Errorf("%s does not say how many requests came over a connection that had been used", name)
		}
		lacks, known := notOf[name]
		if !known { // services that tell of addresses and of those who want no more by events
			lacks = []providertest.Fault{providertest.BadAddress, providertest.OptedOut}
		}
		if name != "smtp" {
			lacks = append(slices.Clone(lacks), ofHTTP...)
		}
		for _, fault := range all {
			runs := strings.Contains(source.String(), "providertest."+string(fault)+",")
			if runs == slices.Contains(lacks, fault) {
				t.Errorf("%s: the suite is run with %s: %t", name, fault, runs)
			}
		}
		if !hasFixture(t, name, source.String()) {
			t.Errorf("%s has no fixture in testdata that names its source and that a test compares with", name)
		}
	}
	if adapters != 12 {
		t.Errorf("%d adapters, want 12", adapters)
	}
}

// The header that says that a request may be repeated goes to services that promise to know it, and to
// no other: there it would promise what nobody keeps, and Go's client repeats a request that has it.
func TestAdapters_TheKeyIsSentWhereItIsHonoured(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "*", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	sets := regexp.MustCompile(`(?i)\.(Set|Add)\("idempotency-key"|\["idempotency-key"\] *=|"idempotency-key":`)
	var send []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sets.Match(text) {
			send = append(send, filepath.Base(filepath.Dir(file)))
		}
	}
	if got := slices.Compact(send); !slices.Equal(got, []string{"mastodon", "resend"}) {
		t.Errorf("Idempotency-Key is sent by %q, and honoured by Mastodon and Resend", got)
	}
}

// hasFixture reports whether a test reads a file of testdata that names where it is from.
func hasFixture(t *testing.T, name, source string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", name, "testdata", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false // a folder
		}
		var fixture struct{ Source string }
		named := json.Unmarshal(text, &fixture) == nil && fixture.Source != "" || strings.Contains(strings.ToLower(string(text)), "source: ")
		return named && strings.Contains(source, `"testdata/`+filepath.Base(file)+`"`)
	})
}
