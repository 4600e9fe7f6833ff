package catcher

import (
	"context"
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
	"math/big"
	"net/http"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// sns is the topic that a fake SES publishes to, with a key and a certificate of its own.
type sns struct {
	made        sync.Once
	private     *rsa.PrivateKey
	certificate []byte // PEM

	asking    sync.Mutex // one asks at a time
	mu        sync.Mutex
	token     string
	confirmed bool
}

func (s *sns) make() {
	s.made.Do(func() {
		private, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err) // there is no randomness
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
		if err != nil {
			panic(err) // the template is a constant
		}
		s.private, s.certificate = private, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	})
}

// ServeHTTP shows the certificate, and confirms the subscription.
func (s *sns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch q := r.URL.Query(); {
	case r.URL.Path == "/sns/certificate.pem":
		s.make()
		_, _ = w.Write(s.certificate)
	case q.Get("Action") == "ConfirmSubscription":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.token == "" || q.Get("Token") != s.token {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.confirmed = true
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// notification has its fields in the order in which they are signed.
type notification struct {
	Message          string
	MessageID        string `json:"MessageId"`
	SubscribeURL     string `json:",omitempty"`
	Timestamp        string
	Token            string `json:",omitempty"`
	TopicARN         string `json:"TopicArn"`
	Type             string
	Signature        string
	SignatureVersion string
	SigningCertURL   string
}

// signed completes a notification: own is where the topic is.
func (s *sns) signed(n notification, own, topic, version string) []byte {
	s.make()
	n.MessageID, n.Timestamp, n.TopicARN, n.SignatureVersion, n.SigningCertURL = uuid.New().String(), instant(time.Now()), topic, version, own+"/sns/certificate.pem"
	text := "Message\n" + n.Message + "\nMessageId\n" + n.MessageID + "\n"
	if n.SubscribeURL != "" {
		text += "SubscribeURL\n" + n.SubscribeURL + "\n"
	}
	text += "Timestamp\n" + n.Timestamp + "\n"
	if n.Token != "" {
		text += "Token\n" + n.Token + "\n"
	}
	text += "TopicArn\n" + n.TopicARN + "\nType\n" + n.Type + "\n"
	one, two := sha1.Sum([]byte(text)), sha256.Sum256([]byte(text))
	hash, sum := crypto.SHA1, one[:]
	if version == "2" {
		hash, sum = crypto.SHA256, two[:]
	}
	signature, err := rsa.SignPKCS1v15(nil, s.private, hash, sum)
	if err != nil {
		panic(err) // the key is ours
	}
	n.Signature = base64.StdEncoding.EncodeToString(signature)
	body, err := json.Marshal(n)
	if err != nil {
		panic(err) // it is all text
	}
	return body
}

// subscribe asks who is told whether they want to be, unless they have said so.
func (s *sns) subscribe(ctx context.Context, e Events, own, topic, version string) bool {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	if s.confirmed {
		s.mu.Unlock()
		return true
	}
	s.token = uuid.New().String()
	n := notification{
		Type: "SubscriptionConfirmation", Token: s.token, SubscribeURL: own + "/sns/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=" + s.token,
		Message: "You have chosen to subscribe to the topic " + topic + ".\nTo confirm the subscription, visit the SubscribeURL included in this message.",
	}
	s.mu.Unlock()
	e.Teller.post(ctx, snsSays(e.Path, n.Type, s.signed(n, own, topic, version)))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// snsSays is a request of SNS's, whose signature is in its body.
func snsSays(path, kind string, body []byte) said {
	return said{url: path, contentType: "text/plain; charset=UTF-8", body: body, sign: func(r *http.Request, _ []byte, _ time.Time) {
		r.Header.Set("X-Amz-Sns-Message-Type", kind)
	}}
}
