package inbound_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/inbound"
)

// What a webhook executor answers is a result, or a failure: what is misspelt asks for
// nothing that nobody would miss.
func TestCall_Answers(t *testing.T) {
	t.Parallel()
	for answer, good := range map[string]bool{
		``:                               true,
		`{}`:                             true,
		`{"deny": "spam"}`:               true,
		`{"replies": [{"text": "yes"}]}`: true,
		`{"replies": [{"payload": {"n": 1}}]}` + "\n": true,
		`{"error": "db down"}`:                        false,
		`{"denied": "spam"}`:                          false,
		`{"reply": [{"text": "yes"}]}`:                false,
		`{"replies": [{"body": "yes"}]}`:              false,
		`{"replies": [{"text": "yes"}]} {}`:           false,
		`null`:                                        false,
		`[]`:                                          false,
		`"ok"`:                                        false,
		`ok`:                                          false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		t.Cleanup(server.Close)
		do, err := inbound.Call(inbound.CallOptions{URL: server.URL, Secret: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", AllowHosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := do(t.Context(), inbound.Message{ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c"}); (err == nil) != good {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

// A connection that the executor closed while it was idle fails no message: the request,
// of which nothing was written, goes over another.
func TestCall_AnIdleConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	var made, closed atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { made.Add(1) }))
	defer server.Close()
	do, err := inbound.Call(inbound.CallOptions{URL: server.URL, Secret: "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", AllowHosts: []string{"127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			return
		}
		closed.Add(1)
		server.CloseClientConnections()
		for i.Conn.SetReadDeadline(time.Time{}) == nil { // until the client has seen it
			runtime.Gosched()
		}
	}})
	calls := int32(0)
	for ; closed.Load() == 0 && calls < 50; calls++ { // the client keeps none where it hears for 50 ms that its request was written
		if _, err := do(ctx, inbound.Message{ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c"}); err != nil {
			t.Fatal(err)
		}
	}
	if made.Load() != calls || closed.Load() != 1 {
		t.Errorf("%d calls: the executor was called %d times; %d connections were closed", calls, made.Load(), closed.Load())
	}
}
