package webhook

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/header"
)

func FuzzRetryAfter(f *testing.F) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Add("120", "")
	f.Add("99999999999999999999", "")
	f.Add("-1", "x")
	f.Add("Wed, 02 Jan 2030 03:05:05 GMT", "Wed, 02 Jan 2030 03:05:00 GMT")
	f.Add("Wednesday, 02-Jan-30 03:05:05 GMT", "Mon, 01 Jan 0001 00:00:00 GMT")
	f.Fuzz(func(t *testing.T, text, date string) {
		d, ok := header.RetryAfter(http.Header{"Retry-After": {text}, "Date": {date}}, now)
		if ok && (d < time.Second || d > 24*time.Hour) || !ok && d != 0 {
			t.Fatalf("retryAfter(%q, %q) = %s, %v", text, date, d, ok)
		}
	})
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	srv, got := receiver(t, httptest.NewServer)
	s := newSink(t, srv.URL, func(o *Options) { o.Body = CloudEvents })
	m := testMessage()
	m.Headers = map[string]string{"traceparent": "00-a-b-01", "tracestate": "a=b"}
	if err := deliverOne(t, s, m); err != nil {
		t.Fatal(err)
	}
	r := got()[0]
	if ct := r.header.Get("Content-Type"); ct != cloudEventsType {
		t.Errorf("Content-Type = %q", ct)
	}
	if err := Verify([]string{testSecret}, r.header, r.body, 0, time.Now()); err != nil {
		t.Errorf("the signature does not cover what was sent: %v", err)
	}
	want := `{"specversion":"1.0","id":"` + m.ID.String() + `","source":"/deed/orders","type":"order.placed",` +
		`"time":"2025-10-09T08:53:20.123Z","subject":"o-1","datacontenttype":"application/json",` +
		`"traceparent":"00-a-b-01","tracestate":"a=b","data":` + string(m.Payload) + `}`
	if string(r.body) != want {
		t.Errorf("body = %s\nwant %s", r.body, want)
	}
	if !json.Valid(r.body) {
		t.Error("the body is not JSON")
	}
}

func TestCloudEventData(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, contentType string
		payload           []byte
		inBase64          bool
	}{
		{"JSON", "application/json", []byte(" [1, 2]\n"), false},
		{"Default", "", []byte(`"x"`), false},
		{"JSONSuffix", "application/vnd.x+json; v=1", []byte(`{"a":1}`), false},
		{"Text", "text/plain", []byte(`{"a":1}`), true},
		{"Binary", "application/octet-stream", []byte{0, 0xff}, true},
		{"BrokenJSON", "application/json", []byte(`{"a":`), true},
		{"JSONThatIsNotUTF8", "application/json", []byte("\"\xff\""), true},
		{"Empty", "text/plain", nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := deed.Message{Topic: "a/b", ContentType: tt.contentType, Payload: tt.payload}
			var got struct {
				Type, Source string
				Data         json.RawMessage
				DataBase64   []byte `json:"data_base64"`
			}
			raw := cloudEvent(m, "urn:x")
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatalf("%v in %s", err, raw)
			}
			if got.Type != "a/b" || got.Source != "urn:x" {
				t.Errorf("type %q, source %q", got.Type, got.Source)
			}
			if tt.inBase64 {
				if got.Data != nil || !bytes.Equal(got.DataBase64, tt.payload) {
					t.Errorf("data %s, data_base64 %q", got.Data, got.DataBase64)
				}
			} else if !bytes.Contains(raw, append([]byte(`"data":`), tt.payload...)) || got.DataBase64 != nil {
				t.Errorf("the payload is not in %s as it is", raw)
			}
		})
	}
}
