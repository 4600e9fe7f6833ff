package ses

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
)

const topic = "arn:aws:sns:eu-central-1:123456789012:events"

// sns is SNS as far as it is asked: for its certificate, and to confirm.
type sns struct {
	*httptest.Server
	private          *rsa.PrivateKey
	asked, confirmed atomic.Int32
}

func newSNS(t *testing.T, until time.Time) *sns {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: until}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	s := &sns{private: private}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cert.pem" {
			s.asked.Add(1)
			_ = pem.Encode(w, &pem.Block{Type: "CERTIFICATE", Bytes: raw})
			return
		}
		if r.URL.Query().Get("Action") != "ConfirmSubscription" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.confirmed.Add(1)
	}))
	t.Cleanup(s.Close)
	return s
}

// sign completes a notification as SNS does.
func (s *sns) sign(t *testing.T, n notification) notification {
	t.Helper()
	n.MessageID, n.Timestamp = "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "2026-02-22T23:41:12.126Z"
	if n.TopicARN == "" {
		n.TopicARN = topic
	}
	if n.SigningCertURL == "" {
		n.SigningCertURL = s.URL + "/cert.pem"
	}
	one, two := sha1.Sum([]byte(n.signed())), sha256.Sum256([]byte(n.signed()))
	hash, sum := crypto.SHA256, two[:]
	if n.SignatureVersion == "" {
		n.SignatureVersion = "2"
	}
	if n.SignatureVersion == "1" {
		hash, sum = crypto.SHA1, one[:]
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.private, hash, sum)
	if err != nil {
		t.Fatal(err)
	}
	n.Signature = base64.StdEncoding.EncodeToString(signature)
	return n
}

func (s *sns) reader(t *testing.T) *Provider {
	t.Helper()
	p, err := New(Options{Region: "eu-central-1", AccessKeyID: "AKIA", SecretAccessKey: "x", EventTopic: topic, EventsEndpoint: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func readAs(t *testing.T, p *Provider, n notification) (delivery.Told, error) {
	t.Helper()
	body, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return p.ReadEvents(httptest.NewRequest(http.MethodPost, "/events/bulk", nil), body, time.Now())
}

// The order of what is signed is that of Amazon's documentation.
func TestNotification_Signed(t *testing.T) {
	t.Parallel()
	n := notification{Type: "Notification", MessageID: "i", TopicARN: "a", Subject: "s", Message: "m", Timestamp: "t", Token: "k", SubscribeURL: "u"}
	want := "Message\nm\nMessageId\ni\nSubject\ns\nTimestamp\nt\nTopicArn\na\nType\nNotification\n"
	if n.signed() != want {
		t.Errorf("%q", n.signed())
	}
	n.Type, n.Subject = "SubscriptionConfirmation", ""
	if want := "Message\nm\nMessageId\ni\nSubscribeURL\nu\nTimestamp\nt\nToken\nk\nTopicArn\na\nType\nSubscriptionConfirmation\n"; n.signed() != want {
		t.Errorf("%q", n.signed())
	}
}

func TestReadEvents_WhatIsSaid(t *testing.T) {
	t.Parallel()
	s := newSNS(t, time.Now().Add(time.Hour))
	p := s.reader(t)
	at := time.Date(2026, 2, 22, 23, 41, 12, 0, time.UTC)
	event := func(said delivery.Said, id, address, reason, code string, at time.Time) delivery.StatusEvent {
		return delivery.StatusEvent{Said: said, ID: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324" + id, Delivery: "d-1", MessageID: "m-1", Address: address, Reason: reason, Code: code, At: at}
	}
	for more, want := range map[string]delivery.Told{
		`"eventType":"Send"`: {Events: []delivery.StatusEvent{event(delivery.SaidAccepted, "", "", "", "", time.Time{})}},
		`"eventType":"Delivery","delivery":{"timestamp":"2026-02-22T23:41:12.000Z"}`: {Events: []delivery.StatusEvent{event(delivery.SaidDelivered, "", "", "", "", at)}},
		`"eventType":"Delivery","delivery":{"timestamp":"2026-02-22T23:41:12.000Z","recipients":["copy@example.com"]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidDelivered, "", "copy@example.com", "", "", at)},
		},
		`"eventType":"Delivery","delivery":{"timestamp":"2026-02-22T23:41:12.000Z","recipients":["a@example.com","b@example.com"]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidDelivered, "", "a@example.com", "", "", at), event(delivery.SaidDelivered, ":2", "b@example.com", "", "", at)},
		},
		`"eventType":"Open","open":{"timestamp":"2026-02-22T23:41:12.000Z"}`:   {Events: []delivery.StatusEvent{event(delivery.SaidOpened, "", "", "", "", at)}},
		`"eventType":"Click","click":{"timestamp":"2026-02-22T23:41:12.000Z"}`: {Events: []delivery.StatusEvent{event(delivery.SaidClicked, "", "", "", "", at)}},
		`"eventType":"Reject","reject":{"reason":"Bad content"}`:               {Events: []delivery.StatusEvent{event(delivery.SaidDropped, "", "", "Bad content", "", time.Time{})}},
		`"eventType":"Rendering Failure","failure":{"errorMessage":"no name"}`: {Events: []delivery.StatusEvent{event(delivery.SaidDropped, "", "", "no name", "", time.Time{})}},
		`"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"General","timestamp":"2026-02-22T23:41:12.000Z","bouncedRecipients":[{"emailAddress":"a@example.com","diagnosticCode":"550 5.1.1"},{"emailAddress":"b@example.com"}]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidBounced, "", "a@example.com", "550 5.1.1", "General", at), event(delivery.SaidBounced, ":2", "b@example.com", "", "General", at)},
		},
		`"eventType":"Bounce","bounce":{"bounceType":"Permanent","bounceSubType":"General","bouncedRecipients":[{"emailAddress":"a@example.com","status":"5.7.1"}]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidDropped, "", "a@example.com", "", "General", time.Time{})},
		},
		`"eventType":"Bounce","bounce":{"bounceType":"Transient","bounceSubType":"MailboxFull","bouncedRecipients":[{"emailAddress":"a@example.com"}]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidSoftBounced, "", "a@example.com", "", "MailboxFull", time.Time{})},
		},
		`"eventType":"Complaint","complaint":{"complaintFeedbackType":"abuse","timestamp":"2026-02-22T23:41:12.000Z","complainedRecipients":[{"emailAddress":"a@example.com"}]}`: {
			Events: []delivery.StatusEvent{event(delivery.SaidComplained, "", "a@example.com", "", "abuse", at)},
		},
		`"eventType":"Complaint","complaint":{"complaintFeedbackType":"not-spam","complainedRecipients":[{"emailAddress":"a@example.com"}]}`: {Other: 1},
		`"eventType":"Bounce","bounce":{"bounceType":"Permanent"}`:                                                                           {Unreadable: 1},
		`"eventType":"DeliveryDelay"`: {Other: 1},
		`"eventType":7`:               {Unreadable: 1},
	} {
		for _, version := range []string{"1", "2"} {
			got, err := readAs(t, p, s.sign(t, notification{Type: "Notification", SignatureVersion: version, Message: `{"mail":{"messageId":"m-1","tags":{"deed_id":["d-1"],"ses:from-domain":["x"]}},` + more + `}`}))
			if err != nil {
				t.Errorf("%s: %v", more, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", more, diff)
			}
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the certificate was asked for %d times", n)
	}
}

// A subscription to our topic is confirmed, once it is verified, and nobody else's.
func TestReadEvents_TheSubscriptionIsConfirmed(t *testing.T) {
	t.Parallel()
	s := newSNS(t, time.Now().Add(time.Hour))
	p := s.reader(t)
	right := notification{Type: "SubscriptionConfirmation", Token: "t", SubscribeURL: s.URL + "/?Action=ConfirmSubscription&Token=t"}
	if told, err := readAs(t, p, s.sign(t, right)); err != nil || told.Other != 1 || s.confirmed.Load() != 1 {
		t.Errorf("%+v, %v; confirmed %d times", told, err, s.confirmed.Load())
	}
	elsewhere := right
	elsewhere.SubscribeURL = "https://evil.example.com/?Action=ConfirmSubscription"
	if _, err := readAs(t, p, s.sign(t, elsewhere)); err == nil {
		t.Error("a subscription elsewhere is confirmed")
	}
	missing := right
	missing.SubscribeURL = s.URL + "/gone"
	if _, err := readAs(t, p, s.sign(t, missing)); !errors.Is(err, delivery.ErrAgain) {
		t.Errorf("a confirmation that failed: %v", err)
	}
	if s.confirmed.Load() != 1 {
		t.Errorf("confirmed %d times", s.confirmed.Load())
	}
}

// What SNS has not signed, of our topic, by a certificate of its own host that holds now,
// is not believed; and for what names another topic or host nobody is asked.
func TestReadEvents_WhatIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newSNS(t, time.Now().Add(time.Hour))
	right := s.sign(t, notification{Type: "Notification", Message: `{"eventType":"Send"}`})
	for what, change := range map[string]func(n *notification){
		"another message":    func(n *notification) { n.Message += " " },
		"another time":       func(n *notification) { n.Timestamp = "2027" },
		"another id":         func(n *notification) { n.MessageID = "x" },
		"a subject":          func(n *notification) { n.Subject = "x" },
		"another type":       func(n *notification) { n.Type = "SubscriptionConfirmation" },
		"another version":    func(n *notification) { n.SignatureVersion = "1" },
		"an unknown version": func(n *notification) { n.SignatureVersion = "3" },
		"no signature":       func(n *notification) { n.Signature = "" },
		"another topic": func(n *notification) {
			*n = s.sign(t, notification{Type: "Notification", TopicARN: topic + "2", Message: n.Message})
		},
		"another certificate": func(n *notification) { n.SigningCertURL = "https://evil.example.com/cert.pem" },
		"no certificate":      func(n *notification) { n.SigningCertURL = s.URL + "/cert.pem?x=1" },
	} {
		n := right
		change(&n)
		if told, err := readAs(t, s.reader(t), n); !errors.Is(err, delivery.ErrUnverified) || len(told.Events) > 0 {
			t.Errorf("%s: %+v, %v", what, told, err)
		}
	}
	gone := s.sign(t, notification{Type: "Notification", SigningCertURL: s.URL + "/gone.pem", Message: "{}"})
	if _, err := readAs(t, s.reader(t), gone); !errors.Is(err, delivery.ErrAgain) {
		t.Errorf("a certificate that cannot be had: %v", err)
	}
	over := newSNS(t, time.Now().Add(-time.Minute))
	if _, err := readAs(t, over.reader(t), over.sign(t, notification{Type: "Notification", Message: `{"eventType":"Send"}`})); !errors.Is(err, delivery.ErrUnverified) {
		t.Errorf("a certificate that is over: %v", err)
	}
	p, err := New(Options{Region: "eu-central-1", AccessKeyID: "AKIA", SecretAccessKey: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAs(t, p, right); !errors.Is(err, delivery.ErrNoEvents) {
		t.Errorf("without a topic: %v", err)
	}
}

// The hosts are SNS's alone, whatever looks like one.
func TestOfSNS_Hosts(t *testing.T) {
	t.Parallel()
	p, err := New(Options{Region: "eu-central-1", AccessKeyID: "AKIA", SecretAccessKey: "x", EventTopic: topic})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"https://sns.eu-central-1.amazonaws.com/x.pem": true, "https://sns.cn-north-1.amazonaws.com.cn/x.pem": true, "https://sns.eusc-de-east-1.amazonaws.eu/x.pem": true,
		"https://" + "sns.eusc-de-east-1.amazonaws.eu.cn/x.pem": false, "https://sns.eusc-de-east-1.amazonaws.eu.evil.example/x.pem": false, "https://" + "sns.eusc-de-east-1.amazonaws.europa/x.pem": false,
		"https://" + "sns.eusc-de-east-1xamazonaws.eu/x.pem": false, "https://" + "sns.evil.example.amazonaws.eu/x.pem": false, "https://" + "sns.amazonaws.eu/x.pem": false, "http://sns.eusc-de-east-1.amazonaws.eu/x.pem": false,
		"http://sns.eu-central-1.amazonaws.com/x.pem": false, "https://sns.eu-central-1.amazonaws.com.evil.example/x.pem": false, "https://evil.example/sns.eu-central-1.amazonaws.com/x.pem": false,
		"https://sns.eu-central-1.amazonaws.com:8443/x.pem": false, "https://u@sns.eu-central-1.amazonaws.com/x.pem": false, "https://sns.amazonaws.com/x.pem": false,
		"https://sns.evil.example#.amazonaws.com/x.pem": false, "https://s3.amazonaws.com/sns.x.amazonaws.com/x.pem": false, "": false, "file:///x.pem": false,
	} {
		if _, err := p.ofSNS(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
