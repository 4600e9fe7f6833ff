package webhook

import (
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/signing"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// The vector is the specification's own.
func TestSignatureVector(t *testing.T) {
	t.Parallel()
	keys, err := signingKeys(testSecret, "")
	if err != nil {
		t.Fatal(err)
	}
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := signatureHeader(keys, id, timestamp, []byte(body)); got != want {
		t.Errorf("signature = %s, want %s", got, want)
	}
	h := http.Header{headerID: {id}, headerTimestamp: {timestamp}, headerSignature: {want}}
	if err := Verify([]string{testSecret}, h, []byte(body), 0, time.Unix(1614265330, 0)); err != nil {
		t.Error(err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	const previous = "an older secret, any string"
	srv, got := receiver(t, httptest.NewServer)
	s := newSink(t, srv.URL, func(o *Options) { o.PreviousSecret = previous })
	if err := deliverOne(t, s, testMessage()); err != nil {
		t.Fatal(err)
	}
	r := got()[0]
	if n := len(strings.Fields(r.header.Get(headerSignature))); n != 2 {
		t.Errorf("%d signatures, want 2", n)
	}
	for _, secrets := range [][]string{{testSecret}, {previous}, {"neither", previous}} {
		if err := Verify(secrets, r.header, r.body, 0, time.Now()); err != nil {
			t.Errorf("Verify with %v: %v", secrets, err)
		}
	}
	if err := Verify([]string{"neither"}, r.header, r.body, 0, time.Now()); err == nil {
		t.Error("Verify took an unknown secret")
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	key, _ := signing.Key(testSecret)
	valid := func() http.Header {
		return http.Header{
			headerID: {"id-1"}, headerTimestamp: {"1700000000"},
			headerSignature: {signatureHeader([][]byte{key}, "id-1", "1700000000", []byte("body"))},
		}
	}
	for _, tt := range []struct {
		name   string
		change func(http.Header)
		body   string
		now    time.Time
		want   string // in the error; "" means accepted
	}{
		{"Accepted", func(http.Header) {}, "body", now, ""},
		{"AcceptedAtTheEdge", func(http.Header) {}, "body", now.Add(5 * time.Minute), ""},
		{"AcceptedAmongOthers", func(h http.Header) { h.Set(headerSignature, "v1a,xx v1,?? "+h.Get(headerSignature)) }, "body", now, ""},
		{"AcceptedOnASecondLine", func(h http.Header) { h[headerSignature] = []string{"v1,AAAA", h.Get(headerSignature)} }, "body", now, ""},
		{"ErrTooOld", func(http.Header) {}, "body", now.Add(5*time.Minute + time.Second), "another time"},
		{"ErrTooNew", func(http.Header) {}, "body", now.Add(-5*time.Minute - time.Second), "another time"},
		{"ErrOtherBody", func(http.Header) {}, "bodY", now, "no signature matches"},
		{"ErrOtherID", func(h http.Header) { h.Set(headerID, "id-2") }, "body", now, "no signature matches"},
		{"ErrOtherTimestamp", func(h http.Header) { h.Set(headerTimestamp, "1700000001") }, "body", now, "no signature matches"},
		{"ErrNoID", func(h http.Header) { h.Del(headerID) }, "body", now, "missing"},
		{"ErrNoTimestamp", func(h http.Header) { h.Del(headerTimestamp) }, "body", now, "missing"},
		{"ErrNoSignature", func(h http.Header) { h.Del(headerSignature) }, "body", now, "no v1"},
		{"ErrBadTimestamp", func(h http.Header) { h.Set(headerTimestamp, "now") }, "body", now, "number"},
		{"ErrDotInID", func(h http.Header) { h.Set(headerID, "id.1") }, "body", now, "dot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := valid()
			tt.change(h)
			err := Verify([]string{testSecret}, h, []byte(tt.body), 0, tt.now)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("Verify = %v, want %q", err, tt.want)
			}
		})
	}
	if err := Verify(nil, valid(), []byte("body"), 0, now); err == nil {
		t.Error("Verify without a secret accepted")
	}
	if err := Verify([]string{""}, valid(), []byte("body"), 0, now); err == nil {
		t.Error("Verify with an empty secret accepted")
	}
}

func FuzzParseSignatures(f *testing.F) {
	f.Add("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	f.Add("v1a,AAAA v1,???? v1 ,, v1,")
	f.Fuzz(func(t *testing.T, header string) {
		for _, sum := range parseSignatures(header) {
			if len(sum) != 32 {
				t.Fatalf("a signature of %d bytes", len(sum))
			}
		}
		// A genuine signature is found behind any rubbish of bounded length.
		genuine := strings.Repeat("A", 43) + "="
		if strings.Count(header, "v1,") < maxSignatures {
			want, _ := base64.StdEncoding.DecodeString(genuine)
			list := parseSignatures(header + " v1," + genuine)
			if len(list) == 0 || string(list[len(list)-1]) != string(want) {
				t.Fatalf("the signature after %q was not found", header)
			}
		}
	})
}
