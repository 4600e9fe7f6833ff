package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/webhook"
)

// Headers go nowhere but to hosts that the operator has named.
func TestHeaders_NeedHosts(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"Authorization": "Bearer canary"}
	_, err := webhook.New(webhook.Options{Secret: secret, Headers: headers})
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "Hosts") || strings.Contains(err.Error(), "canary") {
		t.Errorf("without hosts: %v", err)
	}
	for _, bad := range []string{"", "*", "*.", "https://a.example", "a.example/x", "u@a.example", "a.*.example", "*.10.0.0.1", "a b", "a.example:", "a.example:x", "bücher.example"} {
		if _, err := webhook.New(webhook.Options{Secret: secret, Headers: headers, Hosts: []string{bad}}); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%q is taken: %v", bad, err)
		}
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	p, err := webhook.New(webhook.Options{
		Secret: secret, Headers: map[string]string{"Authorization": "Bearer canary"},
		Hosts: []string{"Hooks.example.com", "*.example.org", "port.example:8443", "http://10.1.2.3:8080", "http://[FD00::0:1]", "default.example:443"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for url, ok := range map[string]bool{
		"https://hooks.example.com/a": true, "https://HOOKS.example.com.:9443/": true, "https://hooks.example.com/?u=https://evil.example": true,
		"http://hooks.example.com/": false, "https://x.hooks.example.com/": false, "https://hooks.example.com.evil.example/": false, "https://evilhooks.example.com/": false,
		"https://a.example.org/": true, "https://a.b.example.org/": true, "https://example.org/": false, "https://evilexample.org/": false,
		"https://evil.example%2f.example.org/": false, "https://evil.example\u3002example.org/": false, "https://evil.example\uff0f.example.org/": false,
		"https://port.example:8443/": true, "https://port.example/": false, "https://default.example/": true, "https://default.example:444/": false,
		"http://10.1.2.3:8080/": true, "https://10.1.2.3:8080/": true, "http://10.1.2.3/": false, "http://10.1.2.4:8080/": false,
		"http://[fd00::1]/": true, "https://evil.example/": false, "https://evil.example/hooks.example.com": false, "https://evil.example#hooks.example.com": false,
	} {
		if _, err := p.Render(delivery.Draft{Recipient: url, Payload: payload}); (err == nil) != ok || err != nil && strings.Contains(url, "/evil.example/") && !strings.Contains(err.Error(), "provider's hosts") {
			t.Errorf("%s: %v", url, err)
		}
		// The operator has named the sandbox.
		if _, err := p.Render(delivery.Draft{Recipient: "https://sandbox.example/", SandboxFor: url, Payload: payload}); err != nil {
			t.Errorf("the sandbox for %s: %v", url, err)
		}
	}
}

// What a delivery names is called with the operator's headers only if the
// operator has named its host, also with a request that was stored before: else
// it has failed, and says why.
func TestHosts_OthersAreNotCalled(t *testing.T) {
	t.Parallel()
	var calls, secrets atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Header.Get("Authorization") == "Bearer canary" {
			secrets.Add(1)
		}
	}))
	defer server.Close()
	bound := func(host string) *webhook.Provider {
		p, err := webhook.New(webhook.Options{
			Secret: secret, AllowHosts: []string{"127.0.0.1"}, Hosts: []string{host}, Headers: map[string]string{"Authorization": "Bearer canary"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	open, err := webhook.New(webhook.Options{Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	named, other := bound("http://127.0.0.1"), bound("hooks.example.com")
	for name, c := range map[string]struct {
		provider delivery.Provider
		want     delivery.Status
	}{
		"named": {named, delivery.Sent}, "another": {other, delivery.Failed}, "another, stored": {stored{other, open}, delivery.Failed},
	} {
		h := harness(t, 0)
		h.Provider, h.Recipient, h.Accepted = c.provider, server.URL, nil
		before := calls.Load()
		e := providertest.Deliver(t, h)
		if e.Status != c.want || (c.want == delivery.Failed) != strings.Contains(e.LastError, "provider's hosts") || (calls.Load() == before) != (c.want == delivery.Failed) {
			t.Errorf("%s: %s with %q, %d calls", name, e.Status, e.LastError, calls.Load()-before)
		}
	}
	if secrets.Load() != 1 {
		t.Errorf("the header was sent %d times", secrets.Load())
	}
}

// stored is a provider whose requests another one has made.
type stored struct {
	delivery.Provider
	render delivery.Provider
}

func (s stored) Render(d delivery.Draft) ([]byte, error) { return s.render.Render(d) }
