package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
)

// Each provider of deed dev finds its service, and nothing of theirs is anybody else's.
func TestFakes_AreFoundByTheirProviders(t *testing.T) {
	t.Parallel()
	all := newFakes(&catcher.Mailbox{}, nil)
	mux := http.NewServeMux()
	all.handle(mux)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(all.close)
	mail, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- all.smtp.Serve(t.Context(), mail) }()
	t.Cleanup(func() {
		_ = mail.Close()
		<-done
	})
	built, err := builtIn(mail.Addr().String(), strings.TrimPrefix(server.URL, "http://"), devEvents{})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range built {
		checks := p.(delivery.Checker).Check(t.Context())
		for _, c := range checks {
			if !c.OK {
				t.Errorf("%s: %s: %s", name, c.What, c.Info)
			}
		}
		if len(checks) < 2 {
			t.Errorf("%s looked at %d things", name, len(checks))
		}
		if _, fake := all.byName[name]; !fake && name != "smtp" {
			t.Errorf("%s has no fake", name)
		}
	}
	if len(built) != len(all.byName)+1 {
		t.Errorf("%d providers, %d fakes", len(built), len(all.byName))
	}
}

func TestFakes_Fail(t *testing.T) {
	t.Parallel()
	all := newFakes(&catcher.Mailbox{}, nil)
	for _, good := range []string{"429", "5xx", "reset/3", "slow/1"} {
		if err := all.fail(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "404", "reset/0", "reset/", "reset/x", "/3"} {
		if err := all.fail(bad); err == nil || !strings.Contains(err.Error(), "none of 429, 5xx, reset and slow") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What a file has for others to reach is no address of deed dev, whose source everybody
// knows the secret of.
func TestDev_ListensOnThisMachineAlone(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:8443": true, "localhost:8443": true, "[::1]:0": true, ":8443": false, "0.0.0.0:8443": false, "[::]:8443": false, "10.0.0.5:8443": false, "example.com:8443": false, "": false, "8443": false,
	} {
		if isOwn(address) != want {
			t.Errorf("%q: %t", address, !want)
		}
	}
}
