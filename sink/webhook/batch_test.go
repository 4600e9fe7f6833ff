package webhook_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/sink/sinktest"
	"github.com/deedhq/deed/sink/webhook"
)

// element is a message of a batch, as a receiver reads it.
type element struct {
	ID          string            `json:"id"`
	Topic       string            `json:"topic"`
	Key         string            `json:"key"`
	Type        string            `json:"type"`
	Attempt     int               `json:"attempt"`
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	Data        json.RawMessage   `json:"data"`
	DataBase64  []byte            `json:"data_base64"`
}

func (e element) payload() []byte {
	if e.Data != nil {
		return e.Data
	}
	return append([]byte{}, e.DataBase64...)
}

// batchEndpoint is an endpoint that takes batches. If it tells, it takes each
// message or not, and none whose key has one that it did not take; else it takes
// all of a batch or none.
type batchEndpoint struct {
	endpoint
	tells bool
}

func (e *batchEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if err := webhook.Verify([]string{secret}, r.Header, body, 0, time.Now()); err != nil {
		e.t.Error(err)
	}
	var batch []element
	if err := json.Unmarshal(body, &batch); err != nil || r.Header.Get("content-type") != "application/vnd.deed.batch+json" {
		e.t.Errorf("a batch of type %q: %v", r.Header.Get("content-type"), err)
	}
	e.mu.Lock()
	slow, judge := e.slow, e.judge
	e.mu.Unlock()
	if slow > 0 && !pause(r.Context(), slow) {
		return
	}
	type failure struct {
		ID    string `json:"id"`
		Error string `json:"error"`
		Final bool   `json:"final,omitempty"`
	}
	var failed []failure
	status := http.StatusOK
	undelivered := map[string]bool{}
	var taken []sinktest.Arrival
	for _, m := range batch {
		verdict := sinktest.Accept
		if judge != nil {
			verdict = judge(m.payload())
		}
		if verdict == sinktest.ForGood && !e.tells {
			status = http.StatusUnprocessableEntity
		} else if verdict == sinktest.ForNow && !e.tells {
			status = max(status, http.StatusConflict)
		}
		if verdict != sinktest.Accept || m.Key != "" && undelivered[m.Key] && e.tells {
			undelivered[m.Key] = true
			failed = append(failed, failure{ID: m.ID, Error: "no: " + string(m.payload()), Final: verdict == sinktest.ForGood})
			continue
		}
		taken = append(taken, sinktest.Arrival{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.payload(), Headers: m.Headers})
	}
	if status != http.StatusOK {
		http.Error(w, "refused: "+string(body), status)
		return
	}
	e.mu.Lock()
	e.arrived = append(e.arrived, taken...)
	e.mu.Unlock()
	if failed != nil {
		w.Header().Set("Content-Type", "application/vnd.deed.outcomes+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"failed": failed}) // a client that is gone is its own affair
	}
}

func newBatchHarness(t *testing.T, tells bool) sinktest.Harness {
	e := &batchEndpoint{endpoint: endpoint{t: t}, tells: tells}
	e.srv = httptest.NewUnstartedServer(e)
	g := &gate{Listener: e.srv.Listener}
	e.srv.Listener = g
	e.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.srv.StartTLS()
	t.Cleanup(e.srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(e.srv.Certificate())
	sink, err := webhook.NewBatch(webhook.Options{URL: e.srv.URL, Secret: secret, AllowHosts: []string{"127.0.0.1"}, RootCAs: roots}, 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	h := e.harness(g)
	h.Sink = sink
	h.Features.Batch = true
	h.Features.InTurn = !tells // one that tells holds the key back itself
	return h
}

func TestBatch_Conformance(t *testing.T) {
	t.Parallel()
	for name, tells := range map[string]bool{"OneAnswerForAll": false, "AnAnswerForEach": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, func(t *testing.T) sinktest.Harness { return newBatchHarness(t, tells) })
		})
	}
}

func batchOf(attempts ...int) (ms []deed.Message) {
	at := time.UnixMilli(1760000000123).UTC()
	for i, n := range attempts {
		ms = append(ms, deed.Message{
			Topic: "orders", Key: fmt.Sprint("k", i), Payload: fmt.Appendf(nil, `{"n": %d}`, i), ContentType: "application/json",
			ID: deed.NewID(at, int64(i+1)), Seq: int64(i + 1), CreatedAt: at, Attempt: n,
		})
	}
	return ms
}

func newBatch(t *testing.T, url string, change ...func(*webhook.Options)) *webhook.BatchSink {
	t.Helper()
	opts := webhook.Options{URL: url, Secret: secret, AllowHosts: []string{"127.0.0.1"}}
	for _, f := range change {
		f(&opts)
	}
	s, err := webhook.NewBatch(opts, 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The same messages have the same webhook-id, others another; what has failed
// before goes alone.
func TestBatch_Requests(t *testing.T) {
	t.Parallel()
	var bodies, ids, counts []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies, ids, counts = append(bodies, string(body)), append(ids, r.Header.Get("webhook-id")), append(counts, r.Header.Get("deed-batch"))
	}))
	t.Cleanup(srv.Close)
	s := newBatch(t, srv.URL)
	for _, ms := range [][]deed.Message{batchOf(1, 1, 2, 1), batchOf(1, 1), batchOf(1, 1, 1)} {
		if err := errors.Join(s.Deliver(t.Context(), ms)...); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"2", "1", "1", "2", "3"}, counts); diff != "" {
		t.Errorf("messages of each request (-want +got):\n%s", diff)
	}
	if ids[0] != ids[3] || ids[0] == ids[4] || strings.Contains(ids[0], ".") {
		t.Errorf("webhook-ids: %q", ids)
	}
	want := `[{"id":"0199c82c-c07b-7000-8000-000000000003","topic":"orders","key":"k2","attempt":2,"time":"2025-10-09T08:53:20.123Z","content_type":"application/json","data":{"n": 2}}]`
	if diff := cmp.Diff(want, bodies[1]); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}

	events := newBatch(t, srv.URL, func(o *webhook.Options) { o.Body = webhook.CloudEvents })
	if err := errors.Join(events.Deliver(t.Context(), batchOf(1, 1))...); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal([]byte(bodies[5]), &list); err != nil || len(list) != 2 || list[1]["specversion"] != "1.0" || list[1]["subject"] != "k1" {
		t.Errorf("a batch of CloudEvents: %v, %s", err, bodies[5])
	}
}

func TestBatch_Outcomes(t *testing.T) {
	t.Parallel()
	const outcomes = "application/vnd.deed.outcomes+json; charset=utf-8"
	ids := batchOf(1, 1, 1)
	for name, tt := range map[string]struct {
		status     int
		kind, body string
		want       []string
		requests   int32
	}{
		"all taken":      {204, "", "", []string{"", "", ""}, 1},
		"another answer": {200, "application/json", `{"failed":[{"id":"x"}]}`, []string{"", "", ""}, 1},
		"each of its own": {
			200, outcomes,
			fmt.Sprintf(`{"failed":[{"id":%q,"error":"busy","retry_after":30},{"id":%q,"error":"bad {\"n\": 2}","final":true}]}`, ids[0].ID, ids[2].ID),
			[]string{"after 30s: refused: busy", "", "discard: refused: bad"},
			1,
		},
		"unknown message": {200, outcomes, `{"failed":[{"id":"x"}]}`, slices.Repeat([]string{"outcome unknown"}, 3), 1},
		"no JSON":         {200, outcomes, `{"failed":`, slices.Repeat([]string{"outcome unknown"}, 3), 1},
		"too long":        {200, outcomes, strings.Repeat(" ", 5000), slices.Repeat([]string{"outcome unknown"}, 3), 1},
		"failed":          {500, "text/plain", "no", slices.Repeat([]string{"status 500: no"}, 3), 1},
		"refused for good": {
			413, "text/plain", "too much", slices.Repeat([]string{"discard: status 413"}, 3), 4, // once together, then each alone
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests.Add(1)
				w.Header().Set("Content-Type", tt.kind)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(srv.Close)
			s := newBatch(t, srv.URL, func(o *webhook.Options) { o.MaxResponse = 4096 })
			for i, err := range s.Deliver(t.Context(), batchOf(1, 1, 1)) {
				got := ""
				if err != nil {
					got = strings.Replace(err.Error(), "webhook "+strings.TrimPrefix(srv.URL, "http://")+": ", "", 1)
				}
				if after, ok := deed.RetryAfter(err); ok {
					got = fmt.Sprintf("after %s: %s", after, got)
				}
				if deed.IsPermanent(err) {
					got = "discard: " + got
				}
				if !strings.HasPrefix(got, tt.want[i]) || tt.want[i] == "" && got != "" || strings.Contains(got, `{"n"`) {
					t.Errorf("message %d: %q, want %q", i, got, tt.want[i])
				}
			}
			if n := requests.Load(); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
}

// An answer that says what was taken is waited for as long as the request may take, also behind its headers; a call that ends
// meanwhile ends with its context.
func TestBatch_AnswerAfterAWhile(t *testing.T) {
	t.Parallel()
	ms := batchOf(1, 1)
	begin := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/vnd.deed.outcomes+json")
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}

	t.Run("Waited", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin(w, r)
			if pause(r.Context(), 1500*time.Millisecond) {
				_, _ = fmt.Fprintf(w, `{"failed":[{"id":%q,"error":"busy"}]}`, ms[1].ID)
			}
		}))
		t.Cleanup(srv.Close)
		s := newBatch(t, srv.URL, func(o *webhook.Options) { o.Timeout = pgtest.Patience })
		got := s.Deliver(t.Context(), ms)
		if got[0] != nil || got[1] == nil || !strings.Contains(got[1].Error(), "refused: busy") {
			t.Errorf("outcomes %v, want the first delivered and the second refused", got)
		}
	})

	t.Run("ContextEnds", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begin(w, r)
			cancel()
			<-r.Context().Done()
		}))
		t.Cleanup(srv.Close)
		s := newBatch(t, srv.URL, func(o *webhook.Options) { o.Timeout = pgtest.Patience })
		for _, err := range s.Deliver(ctx, ms) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("outcome %v, want the context's error", err)
			}
		}
	})
}

// What an answer says of its messages is read soon, however long it is, and whatever of them it repeats: the receiver may
// mean harm, and nothing ends the reading.
func TestBatch_LongErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ messages, bytes int }{
		"of one message": {1, 900_000}, "of each of many": {1000, 900},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			digits := func(n int) string {
				b := make([]byte, n)
				for i := range b {
					b[i] = '0' + byte(random.IntN(10))
				}
				return string(b)
			}
			type failure struct {
				ID    string `json:"id"`
				Error string `json:"error"`
			}
			ms := batchOf(slices.Repeat([]int{1}, tt.messages)...)
			failed := make([]failure, len(ms))
			for i := range ms {
				ms[i].Payload = []byte(digits(tt.bytes))
				failed[i] = failure{ms[i].ID.String(), string(ms[i].Payload[:tt.bytes/2]) + digits(tt.bytes/2)} // half of it sounds alike
			}
			answer, err := json.Marshal(map[string]any{"failed": failed})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/vnd.deed.outcomes+json")
				_, _ = w.Write(answer)
			}))
			t.Cleanup(srv.Close)
			s, err := webhook.NewBatch(webhook.Options{URL: srv.URL, Secret: secret, AllowHosts: []string{"127.0.0.1"}, Timeout: pgtest.Patience}, 1000)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			outcomes := make(chan []error, 1)
			go func() { outcomes <- s.Deliver(t.Context(), ms) }() // ends with the test at the latest
			select {
			case got := <-outcomes:
				for i, err := range got {
					if err == nil || !strings.Contains(err.Error(), ": refused: […]") || len(err.Error()) > 400 || strings.Contains(err.Error(), string(ms[i].Payload[:20])) {
						t.Fatalf("message %d: %v", i, err)
					}
				}
			case <-time.After(pgtest.Patience):
				t.Fatalf("the answer is still being read after %s", pgtest.Patience)
			}
		})
	}
}

func TestBatch_Options(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{0: false, 1: true, 1000: true, 1001: false} {
		s, err := webhook.NewBatch(webhook.Options{URL: "https://h", Secret: secret}, size)
		if (err == nil) != ok || err != nil && deed.CodeOf(err) != deed.Invalid {
			t.Errorf("a batch of %d: %v", size, err)
		}
		if ok && s.BatchSize() != size {
			t.Errorf("a batch of %d: BatchSize is %d", size, s.BatchSize())
		}
	}
	_, err := webhook.NewBatch(webhook.Options{}, 0)
	for _, want := range []string{"URL is empty", "batch of 0"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
