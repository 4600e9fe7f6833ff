package plan_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/run/plan"
)

func TestFetch(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /plan", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(shipOrder)) })
	mux.Handle("GET /away", http.RedirectHandler("/plan", http.StatusFound))
	mux.HandleFunc("GET /large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2*plan.MaxBytes)) })
	server := httptest.NewServer(mux)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	opts := plan.FetchOptions{Hosts: []string{host}, Schemes: []string{"http", "https"}}
	got, err := plan.FetchLocal(t.Context(), server.URL+"/plan", opts, []string{"127.0.0.1"})
	if err != nil || string(got) != shipOrder {
		t.Errorf("%s %v", got, err)
	}
	if got, err := plan.FetchLocal(t.Context(), server.URL+"/large", opts, []string{"127.0.0.1"}); err != nil || len(got) != plan.MaxBytes+1 {
		t.Error(len(got), err) // which Parse refuses
	}
	if _, err := plan.FetchLocal(t.Context(), server.URL+"/away", opts, []string{"127.0.0.1"}); deed.CodeOf(err) != deed.NotFound {
		t.Error(err)
	}
	for _, uri := range []string{
		server.URL + "/plan",              // local
		"file:///etc/passwd", "plan.yaml", // no such scheme
		"http://plans.example/x", "https://other.example/x", "https://u:p@plans.example/x", "https://plans.example:8443/x", "https://plans.example.test/x", "://",
	} {
		o := plan.FetchOptions{Hosts: []string{"plans.example"}}
		if strings.HasPrefix(uri, server.URL) {
			o = opts
		}
		if _, err := plan.Fetch(t.Context(), uri, o); !errors.Is(err, plan.ErrURI) || deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v", uri, err)
		}
	}
	if _, err := plan.Fetch(t.Context(), "https://plans.example/x", plan.FetchOptions{}); !errors.Is(err, plan.ErrURI) {
		t.Error(err)
	}
}
