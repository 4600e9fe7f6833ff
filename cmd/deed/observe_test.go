package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/deedhq/deed/internal/pgtest"
)

// otlp is an endpoint that remembers the spans it is sent.
type otlp struct {
	mu       sync.Mutex
	spans    []*tracev1.Span // guarded by mu
	services []string        // guarded by mu
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil || r.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, rs := range request.ResourceSpans {
		for _, kv := range rs.Resource.Attributes {
			if kv.Key == "service.name" {
				o.services = append(o.services, kv.Value.GetStringValue())
			}
		}
		for _, ss := range rs.ScopeSpans {
			o.spans = append(o.spans, ss.Spans...)
		}
	}
}

// A relay sends its spans where OpenTelemetry's variables say, and the webhook
// is handed the delivery's.
func TestRelay_Traces(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	far := &otlp{}
	endpoint := httptest.NewServer(far)
	t.Cleanup(endpoint.Close)
	parents := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("traceparent")
	}))
	t.Cleanup(hook.Close)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	text := `topics: {t: {sink: hook}}
sinks: {hook: {type: webhook, url: "` + hook.URL + `", secret: "env:HOOK_SECRET", allow_hosts: [127.0.0.1]}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	deedOK(t, db.URL(pgtest.App), "publish", "--topic", "t", "--payload", "{}")
	env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint.URL, "OTEL_SERVICE_NAME=relay-of-orders"}
	p := startWith(t, env, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "", "--until-empty")
	if code := p.wait(); code != 0 {
		t.Fatalf("exit status %d", code)
	}
	parent := <-parents
	far.mu.Lock()
	defer far.mu.Unlock()
	if len(far.spans) != 1 || far.spans[0].Name != "deliver t" || !slices.Contains(far.services, "relay-of-orders") {
		t.Fatalf("services %v, spans %v", far.services, far.spans)
	}
	if id := far.spans[0].SpanId; !strings.Contains(parent, hex.EncodeToString(id)) {
		t.Errorf("the webhook was handed %q, the span is %x", parent, id)
	}
}

func TestRelay_Metrics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	file := filepath.Join(t.TempDir(), "deed.yaml")
	if err := os.WriteFile(file, []byte("topics: {t: {sink: p}}\nsinks: {p: {type: print}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	deedOK(t, db.URL(pgtest.App), "publish", "--topic", "t", "--payload", "{}")
	p := start(t, db.URL(pgtest.Worker), "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := p.prints(&p.errOut, `listening address=(\S+)`)
	var text string
	for _, want := range []string{
		"\ndeed_partitions_ahead ", "\n" + `deed_build_info{version="dev"} 1`, "\n" + `deed_process_claimed_total{subscription="p",topic="t"} `,
		"\ngo_goroutines ", "\nprocess_resident_memory_bytes ",
	} {
		if !pgtest.Wait(pgtest.Patience, func() bool {
			r, err := http.Get("http://" + address + "/metrics")
			if err != nil {
				return false
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			text = string(body)
			return err == nil && strings.Contains(text, want)
		}) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}
