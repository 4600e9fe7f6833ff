package ses

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/httpcall"
)

// notification is what SNS posts.
type notification struct {
	Type             string `json:"Type"`
	MessageID        string `json:"MessageId"`
	TopicARN         string `json:"TopicArn"`
	Subject          string `json:"Subject"`
	Message          string `json:"Message"`
	Timestamp        string `json:"Timestamp"`
	Token            string `json:"Token"`
	SignatureVersion string `json:"SignatureVersion"`
	Signature        string `json:"Signature"`
	SigningCertURL   string `json:"SigningCertURL"`
	SubscribeURL     string `json:"SubscribeURL"`
}

// signed is the text that SNS signs: some of the fields, each with its name, in order.
func (n notification) signed() string {
	fields := [][2]string{{"Message", n.Message}, {"MessageId", n.MessageID}}
	if n.Type == "Notification" {
		if n.Subject != "" {
			fields = append(fields, [2]string{"Subject", n.Subject})
		}
	} else {
		fields = append(fields, [2]string{"SubscribeURL", n.SubscribeURL})
	}
	fields = append(fields, [2]string{"Timestamp", n.Timestamp})
	if n.Type != "Notification" {
		fields = append(fields, [2]string{"Token", n.Token})
	}
	fields = append(fields, [2]string{"TopicArn", n.TopicARN}, [2]string{"Type", n.Type})
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f[0] + "\n" + f[1] + "\n")
	}
	return b.String()
}

// snsHost is where SNS is, in each part of AWS. Nothing is asked of any other host, whatever a request names.
var snsHost = regexp.MustCompile(`^sns\.[a-z0-9-]{1,40}\.amazonaws\.(com|com\.cn|eu)$`)

// ofSNS returns a URL that a request names, if it is SNS's.
func (p *Provider) ofSNS(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Fragment != "" {
		return nil, errors.New("a URL is none of SNS's")
	}
	if p.opts.EventsEndpoint != "" {
		if at, err := url.Parse(p.opts.EventsEndpoint); err != nil || u.Scheme != at.Scheme || u.Host != at.Host {
			return nil, errors.New("a URL is none of SNS's")
		}
		return u, nil
	}
	if u.Scheme != "https" || !snsHost.MatchString(u.Host) {
		return nil, errors.New("a URL is none of SNS's")
	}
	return u, nil
}

// keys are those of SNS's certificates, by their URLs.
type keys struct {
	mu    sync.Mutex
	byURL map[string]key // guarded by mu
}

type key struct {
	public *rsa.PublicKey
	until  time.Time
}

const mostKeys = 20 // SNS has one or two at a time

// key returns the key of a certificate of SNS's, which is asked for once.
func (p *Provider) key(ctx context.Context, certificate string, now time.Time) (*rsa.PublicKey, error) {
	target, err := p.ofSNS(certificate)
	if err != nil || !strings.HasSuffix(target.Path, ".pem") || target.RawQuery != "" {
		return nil, delivery.ErrUnverified
	}
	p.keys.mu.Lock()
	known, ok := p.keys.byURL[certificate]
	p.keys.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.public, nil
	}
	a := httpcall.Get(ctx, p.transport, target, http.Header{"User-Agent": {"deed"}})
	if a.Err != nil || a.Status != http.StatusOK {
		return nil, fmt.Errorf("%w: SNS's certificate cannot be had: %w", delivery.ErrAgain, failure(a))
	}
	block, _ := pem.Decode(a.Body)
	if block == nil {
		return nil, delivery.ErrUnverified
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil || now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return nil, delivery.ErrUnverified
	}
	public, ok := c.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, delivery.ErrUnverified
	}
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	if p.keys.byURL == nil || len(p.keys.byURL) >= mostKeys {
		p.keys.byURL = map[string]key{}
	}
	p.keys.byURL[certificate] = key{public, c.NotAfter}
	return public, nil
}

// failure says why there is no answer that helps.
func failure(a httpcall.Answer) error {
	if a.Err != nil {
		return a.Err
	}
	return fmt.Errorf("status %d", a.Status)
}

// verify checks that SNS has signed a notification, of our topic. What names another
// topic, or another host than SNS's for the certificate, is refused before anybody is
// asked for anything.
func (p *Provider) verify(ctx context.Context, n notification, now time.Time) error {
	if n.TopicARN != p.opts.EventTopic {
		return delivery.ErrUnverified
	}
	signature, err := base64.StdEncoding.DecodeString(n.Signature)
	if err != nil || len(signature) == 0 {
		return delivery.ErrUnverified
	}
	var hash crypto.Hash
	var sum []byte
	switch text := []byte(n.signed()); n.SignatureVersion {
	case "1":
		one := sha1.Sum(text)
		hash, sum = crypto.SHA1, one[:]
	case "2":
		two := sha256.Sum256(text)
		hash, sum = crypto.SHA256, two[:]
	default:
		return delivery.ErrUnverified
	}
	public, err := p.key(ctx, n.SigningCertURL, now)
	if err != nil {
		return err
	}
	if rsa.VerifyPKCS1v15(public, hash, sum, signature) != nil {
		return delivery.ErrUnverified
	}
	return nil
}

// confirm answers SNS's question whether we want what the topic publishes.
func (p *Provider) confirm(ctx context.Context, n notification) error {
	target, err := p.ofSNS(n.SubscribeURL)
	if err != nil {
		return err
	}
	a := httpcall.Get(ctx, p.transport, target, http.Header{"User-Agent": {"deed"}})
	if a.Err != nil || a.Status != http.StatusOK {
		return fmt.Errorf("%w: the subscription cannot be confirmed: %w", delivery.ErrAgain, failure(a))
	}
	return nil
}

// ReadEvents implements [delivery.EventReader]: it reads what SNS posts of the topic. A
// subscription to it is confirmed.
func (p *Provider) ReadEvents(r *http.Request, body []byte, now time.Time) (delivery.Told, error) {
	if p.opts.EventTopic == "" {
		return delivery.Told{}, delivery.ErrNoEvents
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	var n notification
	if json.Unmarshal(body, &n) != nil {
		return delivery.Told{}, delivery.ErrUnverified
	}
	if err := p.verify(ctx, n, now); err != nil {
		return delivery.Told{}, err
	}
	switch n.Type {
	case "Notification":
		return read(n), nil
	case "SubscriptionConfirmation":
		return delivery.Told{Other: 1}, p.confirm(ctx, n)
	}
	return delivery.Told{Other: 1}, nil
}
