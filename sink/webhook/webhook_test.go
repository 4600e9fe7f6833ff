package webhook

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func testMessage() deed.Message {
	at := time.UnixMilli(1760000000123).UTC()
	return deed.Message{
		Topic: "orders", Key: "o-1", Type: "order.placed", Payload: []byte("{\"n\": 1,\n \"s\":\"<é>\"}"),
		ContentType: "application/json", ID: deed.NewID(at, 42), Seq: 42, CreatedAt: at, Attempt: 3,
	}
}

// newSink makes a sink for a server on this machine.
func newSink(t *testing.T, url string, change ...func(*Options)) *Sink {
	t.Helper()
	opts := Options{URL: url, Secret: testSecret, AllowHosts: []string{"127.0.0.1", "::1"}}
	for _, f := range change {
		f(&opts)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func deliverOne(t *testing.T, s *Sink, m deed.Message) error {
	t.Helper()
	outcomes := s.Deliver(t.Context(), []deed.Message{m})
	if outcomes == nil {
		return nil
	}
	return outcomes[0]
}

// kindOf names an outcome as the package's table does.
func kindOf(err error) string {
	switch after, ok := deed.RetryAfter(err); {
	case err == nil:
		return "delivered"
	case deed.IsPermanent(err):
		return "dead"
	case deed.IsUnavailable(err):
		return "unavailable"
	case ok:
		return "after " + after.String()
	default:
		return "attempt"
	}
}

type received struct {
	header http.Header
	body   []byte
	proto  string
}

// receiver records requests and answers 204.
func receiver(t *testing.T, start func(http.Handler) *httptest.Server) (*httptest.Server, func() []received) {
	t.Helper()
	var mu sync.Mutex
	var list []received
	srv := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		list = append(list, received{r.Header.Clone(), body, r.Proto})
		mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(srv.Close)
	return srv, func() []received {
		mu.Lock()
		defer mu.Unlock()
		return append([]received(nil), list...)
	}
}

func TestDeliver(t *testing.T) {
	t.Parallel()

	t.Run("BodyAndHeaders", func(t *testing.T) {
		t.Parallel()
		srv, got := receiver(t, httptest.NewServer)
		s := newSink(t, srv.URL, func(o *Options) {
			o.Headers = map[string]string{"authorization": "Bearer t0ken", "X-Team": "ours"}
		})
		m := testMessage()
		m.Key = "schlüssel 100%\n"
		m.Headers = map[string]string{
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
			"correlation-id": "c 50%", "x-team": "theirs", "x-name": "é%", "host": "evil", "content-length": "1",
			"transfer-encoding": "chunked", "connection": "close", "authorization": "Basic x", "cookie": "a=b",
			"idempotency-key": "k", "x-idempotency-key": "k", "deed-topic": "other", "webhook-id": "other",
			"user-agent": "other", "content-type": "text/html", "bad name": "x",
		}
		before := time.Now().Unix()
		if err := deliverOne(t, s, m); err != nil {
			t.Fatal(err)
		}
		r := got()[0]
		if !bytes.Equal(r.body, m.Payload) {
			t.Errorf("body = %q, want %q", r.body, m.Payload)
		}
		for name, want := range map[string]string{
			"webhook-id": m.ID.String(), "deed-topic": "orders", "deed-type": "order.placed", "deed-attempt": "3",
			"deed-key": "schl%C3%BCssel 100%25%0A", "content-type": "application/json", "x-team": "ours",
			"authorization": "Bearer t0ken", "tracestate": "a=b", "correlation-id": "c 50%", "x-name": "%C3%A9%25",
			"traceparent": m.Headers["traceparent"], "idempotency-key": "", "x-idempotency-key": "", "cookie": "",
			"accept-encoding": "", "bad name": "",
		} {
			if got := r.header.Get(name); got != want {
				t.Errorf("header %s = %q, want %q", name, got, want)
			}
		}
		if ua := r.header.Get("User-Agent"); !strings.HasPrefix(ua, "deed/") {
			t.Errorf("User-Agent = %q", ua)
		}
		var at int64
		if _, err := fmt.Sscan(r.header.Get(headerTimestamp), &at); err != nil || at < before || at > time.Now().Unix() {
			t.Errorf("webhook-timestamp = %q", r.header.Get(headerTimestamp))
		}
		if err := Verify([]string{testSecret}, r.header, r.body, 0, time.Now()); err != nil {
			t.Error(err)
		}
	})

	t.Run("EmptyFieldsAreOmitted", func(t *testing.T) {
		t.Parallel()
		srv, got := receiver(t, httptest.NewServer)
		m := testMessage()
		m.Key, m.Type, m.Payload, m.ContentType = "", "", nil, "text/plain\r\nx: y"
		if err := deliverOne(t, newSink(t, srv.URL), m); err != nil {
			t.Fatal(err)
		}
		r := got()[0]
		if r.header.Values("deed-key") != nil || r.header.Values("deed-type") != nil {
			t.Errorf("empty fields came as headers: %v", r.header)
		}
		if got := r.header.Get("content-type"); got != "text/plain%0D%0Ax: y" || len(r.body) != 0 {
			t.Errorf("content type %q, body %q", got, r.body)
		}
	})

	t.Run("CredentialsOfTheURL", func(t *testing.T) {
		t.Parallel()
		srv, got := receiver(t, httptest.NewServer)
		if err := deliverOne(t, newSink(t, strings.Replace(srv.URL, "://", "://ada:s3same@", 1)), testMessage()); err != nil {
			t.Fatal(err)
		}
		if auth := got()[0].header.Get("Authorization"); auth != "Basic YWRhOnMzc2FtZQ==" {
			t.Errorf("Authorization = %q", auth)
		}
	})

	t.Run("SeveralMessagesHaveTheirOwnOutcomes", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("deed-key") == "bad" {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		})
		ms := []deed.Message{testMessage(), testMessage(), testMessage()}
		ms[1].Key = "bad"
		outcomes := newSink(t, srv.URL).Deliver(t.Context(), ms)
		if len(outcomes) != 3 || outcomes[0] != nil || !deed.IsPermanent(outcomes[1]) || outcomes[2] != nil {
			t.Errorf("outcomes = %v", outcomes)
		}
	})

	t.Run("ConcurrentCalls", func(t *testing.T) {
		t.Parallel()
		srv, got := receiver(t, httptest.NewServer)
		s := newSink(t, srv.URL)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if outcomes := s.Deliver(t.Context(), []deed.Message{testMessage()}); outcomes != nil {
						t.Error(outcomes)
					}
				}
			})
		}
		wg.Wait()
		if n := len(got()); n != 160 {
			t.Errorf("%d requests arrived, want 160", n)
		}
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	start := func(h http.Handler) *httptest.Server {
		srv := httptest.NewUnstartedServer(h)
		srv.EnableHTTP2 = true
		srv.Config.ErrorLog = quiet()
		srv.StartTLS()
		return srv
	}
	srv, got := receiver(t, start)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())

	if err := deliverOne(t, newSink(t, srv.URL, func(o *Options) { o.RootCAs = roots }), testMessage()); err != nil {
		t.Fatal(err)
	}
	if r := got()[0]; r.proto != "HTTP/2.0" {
		t.Errorf("protocol = %s, want HTTP/2.0", r.proto)
	}
	err := deliverOne(t, newSink(t, srv.URL), testMessage())
	if kindOf(err) != "unavailable" || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with an unknown authority: %v", err)
	}
	if n := len(got()); n != 1 {
		t.Errorf("%d requests arrived, want 1", n)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		status     int
		retryAfter string
		date       string // "" means none
		want       string
	}{
		{200, "", "", "delivered"},
		{202, "", "", "delivered"},
		{204, "", "", "delivered"},
		{299, "", "", "delivered"},
		{301, "", "", "dead"},
		{302, "", "", "dead"},
		{304, "", "", "dead"},
		{307, "", "", "dead"},
		{308, "", "", "dead"},
		{400, "", "", "dead"},
		{405, "", "", "dead"},
		{406, "", "", "dead"},
		{410, "", "", "dead"},
		{411, "", "", "dead"},
		{413, "", "", "dead"},
		{414, "", "", "dead"},
		{415, "", "", "dead"},
		{422, "", "", "dead"},
		{431, "", "", "dead"},
		{401, "", "", "attempt"},
		{403, "", "", "attempt"},
		{404, "", "", "attempt"},
		{408, "", "", "attempt"},
		{409, "", "", "attempt"},
		{418, "", "", "attempt"},
		{425, "", "", "attempt"},
		{429, "", "", "attempt"},
		{500, "", "", "attempt"},
		{502, "", "", "attempt"},
		{503, "", "", "attempt"},
		{599, "", "", "attempt"},
		{799, "", "", "attempt"},
		{429, "7", "", "after 7s"},
		{503, "120", "", "after 2m0s"},
		{429, "0", "", "after 1s"},
		{429, "999999", "", "after 24h0m0s"},
		{429, "soon", "", "attempt"},
		{500, "7", "", "attempt"},
		{413, "7", "", "dead"},
		{429, "Wed, 02 Jan 2030 03:05:05 GMT", "", "after 1m0s"},
		{429, "Wed, 02 Jan 2030 03:05:05 GMT", "Wed, 02 Jan 2030 03:05:00 GMT", "after 5s"},
		{503, "Wed, 02 Jan 2030 03:00:00 GMT", "", "after 1s"},
		{503, "Wed, 02 Jan 2040 03:00:00 GMT", "", "after 24h0m0s"},
	} {
		t.Run(fmt.Sprintf("%d/%s", tt.status, tt.retryAfter), func(t *testing.T) {
			t.Parallel()
			var elsewhere atomic.Bool
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					elsewhere.Store(true)
					return
				}
				w.Header()["Date"] = nil
				if tt.date != "" {
					w.Header().Set("Date", tt.date)
				}
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
			})
			s := newSink(t, srv.URL+"/hook?token=tell-nobody")
			s.now = func() time.Time { return now }
			err := deliverOne(t, s, testMessage())
			if got := kindOf(err); got != tt.want {
				t.Errorf("outcome = %s (%v), want %s", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), fmt.Sprint("status ", tt.status)) {
				t.Errorf("error %q does not name the status", err)
			}
			if elsewhere.Load() {
				t.Error("a redirect was followed")
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	m := testMessage()
	m.Payload = []byte(`{"card":"4000-0000-0000-0002","name":"Ada"}`)
	for _, tt := range []struct {
		name, contentType, body, want string
	}{
		{"TextIsOneLine", "text/plain", "no\r\n  such\x00 \x1b[31mtenant\xff ", ": no such [31mtenant"},
		{"JSON", "application/problem+json", `{"title":"nope"}`, `: {"title":"nope"}`},
		{"OtherMediaAreLeftOut", "image/png", "PNG", ""},
		{"LongIsCut", "text/plain", strings.Repeat("ab ", 1000), ": " + strings.TrimSpace(strings.Repeat("ab ", 67)[:200])},
		{"PayloadIsTakenOut", "text/plain", "bad: " + string(m.Payload) + "!", ": bad: […]!"},
		{"CredentialsAreTakenOut", "text/plain", "you sent Bearer t0ken", ": you sent […]"},
		{"WithoutTheirScheme", "text/plain", "t0ken is wrong", ": […] is wrong"},
		{"CutOff", "text/plain", strings.Repeat("x", 192) + "Bearer t0ken", ": " + strings.Repeat("x", 192) + "[…]"},
		{"PathIsTakenOut", "text/plain", "Cannot POST /path-token", ": Cannot POST […]"},
		{"QueryIsTakenOut", "text/plain", "who is tell-nobody", ": who is […]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(http.StatusForbidden)
				io.WriteString(w, tt.body)
			})
			host := strings.TrimPrefix(srv.URL, "http://")
			s := newSink(t, "http://ada:s3same@"+host+"/path-token?q=tell-nobody", func(o *Options) {
				o.Headers = map[string]string{"Authorization": "Bearer t0ken"}
			})
			want := "webhook " + host + ": status 403" + tt.want
			if err := deliverOne(t, s, m); err == nil || err.Error() != want {
				t.Errorf("error = %q, want %q", err, want)
			}
		})
	}
}

func TestConnectionIsReused(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	peers := map[string]bool{}
	srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		peers[r.RemoteAddr] = true
		mu.Unlock()
		io.WriteString(w, strings.Repeat("x", 10_000))
	})
	s := newSink(t, srv.URL)
	for range 5 {
		if err := deliverOne(t, s, testMessage()); err != nil {
			t.Fatal(err)
		}
	}
	if len(peers) > 2 { // net/http gives up one whose request it does not know to be written for 50 ms
		t.Errorf("%d connections for 5 messages, want 1", len(peers))
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := New(Options{
		URL: "ftp://ada:s3same@/x#y", PreviousSecret: "whsec_??", AllowHosts: []string{"", "http://x", "*.example", "fe80::1%eth0", "::ffff:10.0.0.0/104"},
		Body: "xml", Timeout: -1, MaxResponse: -1, Breaker: Breaker{Failures: -1, Pause: 2, MaxPause: 1},
		Headers: map[string]string{"webhook-id": "x", "b d": "x", "Host": "x", "idempotency-key": "x", "x-v": "tell\nnobody", "x-w": "1", "X-W": "2"},
	})
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("New = %v, want an invalid error", err)
	}
	text := err.Error()
	for _, want := range []string{
		"http://", "no host", "fragment", "Secret is empty", "PreviousSecret begins", `""`, `"http://x"`, `"*.example"`, `"fe80::1%eth0"`,
		`"::ffff:10.0.0.0/104"`, `"xml"`, "Timeout", "MaxResponse", "Breaker.Failures", "Breaker.Pause", `"webhook-id"`, `"b d"`, `"Host"`,
		`"idempotency-key"`, `"x-v"`, "twice",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the error does not mention %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "s3same") || strings.Contains(text, "nobody") {
		t.Errorf("the error tells a secret:\n%s", text)
	}
}
