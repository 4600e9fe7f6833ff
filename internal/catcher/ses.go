package catcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/deedhq/deed/internal/uuid"
)

// SES answers as the API v2 of Amazon SES does, as far as its reference says. It verifies
// signatures.
type SES struct {
	answers
	Mailbox         *Mailbox
	AccessKeyID     string
	SecretAccessKey string
	SessionToken    string // "": none goes with the key
	Region          string // "": any

	MayOnlySend bool // the user may not look at the account
	Paused      bool // the account's sending is

	Topic            string // the ARN of that which the configuration sets publish to
	SignatureVersion string // of what it publishes: 1 or 2. Default 1

	sns sns
}

type sesEmail struct {
	From        string `json:"FromEmailAddress"`
	Destination struct {
		To []string `json:"ToAddresses"`
		CC []string `json:"CcAddresses"`
	} `json:"Destination"`
	ReplyTo []string `json:"ReplyToAddresses"`
	Content struct {
		Simple *struct {
			Subject *sesPart `json:"Subject"`
			Body    struct {
				Text *sesPart `json:"Text"`
				HTML *sesPart `json:"Html"`
			} `json:"Body"`
			Headers     []sesPair `json:"Headers"`
			Attachments []struct {
				FileName                string `json:"FileName"`
				RawContent              []byte `json:"RawContent"`
				ContentType             string `json:"ContentType"`
				ContentDisposition      string `json:"ContentDisposition"`
				ContentID               string `json:"ContentId"`
				ContentTransferEncoding string `json:"ContentTransferEncoding"`
			} `json:"Attachments"`
		} `json:"Simple"`
	} `json:"Content"`
	Tags             []sesPair `json:"EmailTags"`
	ConfigurationSet string    `json:"ConfigurationSetName"`
}

type sesPart struct {
	Data    string `json:"Data"`
	Charset string `json:"Charset"`
}

type sesPair struct {
	Name  string `json:"Name"`
	Value string `json:"Value"`
}

// ServeHTTP takes POST /v2/email/outbound-emails and answers GET /v2/email/account. Below
// /sns/ is the topic.
func (s *SES) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 40<<20))
	if err != nil {
		return
	}
	if strings.HasPrefix(r.URL.Path, "/sns/") {
		s.sns.ServeHTTP(w, r)
		return
	}
	if name := s.unsigned(r, body); name != "" {
		sesRefuses(w, http.StatusForbidden, name, "The request is not signed as it should be.")
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /v2/email/outbound-emails":
		s.send(w, r, body)
	case "GET /v2/email/account":
		if s.MayOnlySend {
			sesRefuses(w, http.StatusForbidden, "AccessDeniedException", "User is not authorized to perform: ses:GetAccount")
			return
		}
		answer(w, http.StatusOK, map[string]any{
			"SendingEnabled": !s.Paused, "ProductionAccessEnabled": false, "EnforcementStatus": "HEALTHY",
			"SendQuota": map[string]float64{"Max24HourSend": 200, "MaxSendRate": 1, "SentLast24Hours": 0},
		})
	default:
		sesRefuses(w, http.StatusNotFound, "UnknownOperationException", "")
	}
}

var sesSignature = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/([0-9]{8})/([^/]+)/ses/aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=[0-9a-f]{64}$`)

// unsigned says what is wrong with a signature, which is made again of what it covers.
func (s *SES) unsigned(r *http.Request, body []byte) (name string) {
	given := r.Header.Get("Authorization")
	parts := sesSignature.FindStringSubmatch(given)
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	switch {
	case given == "":
		return "MissingAuthenticationTokenException"
	case parts == nil || err != nil || parts[2] != at.Format("20060102"):
		return "IncompleteSignature"
	case parts[1] != s.AccessKeyID, r.Header.Get("X-Amz-Security-Token") != s.SessionToken:
		return "UnrecognizedClientException"
	case s.Region != "" && parts[3] != s.Region, time.Since(at).Abs() > 5*time.Minute:
		return "InvalidSignatureException"
	}
	again := &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: http.Header{}}
	for name := range strings.SplitSeq(parts[4], ";") {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = int64(len(body))
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	sum := sha256.Sum256(body)
	credentials := aws.Credentials{AccessKeyID: s.AccessKeyID, SecretAccessKey: s.SecretAccessKey, SessionToken: s.SessionToken}
	err = v4.NewSigner().SignHTTP(context.Background(), credentials, again, hex.EncodeToString(sum[:]), "ses", parts[3], at)
	if err != nil || again.Header.Get("Authorization") != given {
		return "InvalidSignatureException"
	}
	return ""
}

func (s *SES) send(w http.ResponseWriter, r *http.Request, body []byte) {
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		sesRefuses(w, http.StatusBadRequest, "MessageRejected", "Email address is not verified.")
		return
	case ForNow:
		sesRefuses(w, http.StatusTooManyRequests, "TooManyRequestsException", "Maximum sending rate exceeded.")
		return
	case ForNowAfter:
		w.Header().Set("Retry-After", "1")
		sesRefuses(w, http.StatusTooManyRequests, "TooManyRequestsException", "Maximum sending rate exceeded.")
		return
	case OverQuota:
		sesRefuses(w, http.StatusTooManyRequests, "TooManyRequestsException", "Daily message quota exceeded.")
		return
	case Unauthorized:
		sesRefuses(w, http.StatusForbidden, "UnrecognizedClientException", "The security token included in the request is invalid.")
		return
	}
	e, problem := checkSES(r, body)
	if problem != "" {
		sesRefuses(w, http.StatusBadRequest, "BadRequestException", problem)
		return
	}
	m := Mail{ID: uuid.New().String(), Via: "ses", From: e.From, To: append(e.Destination.To, e.Destination.CC...), Subject: e.Content.Simple.Subject.Data, At: time.Now(), Raw: body}
	if text := e.Content.Simple.Body.Text; text != nil {
		m.Text = text.Data
	}
	s.Mailbox.Add(m)
	s.Events.tell(func() []said { return s.says("http://"+r.Host, e, m) })
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]string{"MessageId": m.ID})
	}
}

var (
	sesHeaderName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[!-9;-@A-~]{1,126}$`) })
	sesHeaderValue = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[ -~]{1,870}$`) })
	sesAddress     = regexp.MustCompile(`^[ -~]+$`)
)

// checkSES finds what the reference says is refused.
func checkSES(r *http.Request, body []byte) (*sesEmail, string) {
	var e sesEmail
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" || dec.Decode(&e) != nil {
		return nil, "The request cannot be read."
	}
	m := e.Content.Simple
	switch {
	case len(e.Destination.To) == 0 || len(e.Destination.To)+len(e.Destination.CC) > 50:
		return nil, "There are no recipients, or over 50."
	case m == nil || m.Subject == nil || m.Subject.Data == "":
		return nil, "There is no subject."
	case m.Body.Text == nil && m.Body.HTML == nil:
		return nil, "There is no body."
	}
	for _, a := range slices.Concat([]string{e.From}, e.Destination.To, e.Destination.CC, e.ReplyTo) {
		if _, err := mail.ParseAddress(a); err != nil || !sesAddress.MatchString(a) {
			return nil, "An address is not valid."
		}
	}
	for _, a := range m.Attachments {
		inline := a.ContentDisposition == "INLINE"
		if len(a.FileName) < 1 || len(a.FileName) > 255 || len(a.RawContent) == 0 || len(a.ContentID) > 78 || inline == (a.ContentID == "") ||
			!inline && a.ContentDisposition != "ATTACHMENT" || a.ContentTransferEncoding != "BASE64" {
			return nil, "An attachment is not valid."
		}
	}
	for _, t := range e.Tags {
		if !isTag(t.Name) || !isTag(t.Value) {
			return nil, "A tag is not valid."
		}
	}
	for _, h := range m.Headers {
		if !sesHeaderName().MatchString(h.Name) || !sesHeaderValue().MatchString(h.Value) {
			return nil, "A header is not valid."
		}
	}
	return &e, ""
}

// sesRefuses names the error where Amazon does: in a header, with a URL behind it.
func sesRefuses(w http.ResponseWriter, status int, name, message string) {
	w.Header().Set("X-Amzn-Errortype", name+":http://internal.amazon.com/coral/com.amazonaws.services.simpleemailv2/")
	answer(w, status, map[string]string{"message": message})
}
