package adapter

import (
	"errors"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/httpcall"
)

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://api.example.com": "https://api.example.com/", "http://127.0.0.1:8080/v1/": "http://127.0.0.1:8080/v1/",
		"": "", "api.example.com": "", "ftp://api.example.com": "", "https://user@api.example.com": "", "https://": "", "https://a b": "",
	} {
		base, err := Endpoint(text)
		if (err == nil) != (want != "") || err == nil && base.String() != want {
			t.Errorf("%q: %v, %v", text, base, err)
		}
	}
}

// What is wrong with a payload is said by its field, and nothing of it is repeated.
func TestReadPayload(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"text": "secret"}`:       "",
		`{"text": 77001}`:          "the payload's text is not what a post has",
		`{"other": "secret"}`:      `the payload is no JSON object of text: it has "other"`,
		`["secret"]`:               "the payload's value is not what a post has",
		`{"text": "secret"`:        "the payload is no JSON object of text",
		`{"text": "a", "text": 5}`: "the payload's text is not what a post has",
	} {
		var p struct {
			Text string `json:"text"`
		}
		err := ReadPayload([]byte(payload), &p, "what a post has", "text")
		if got := strings.TrimSpace(errorText(err)); got != want {
			t.Errorf("%s: %q", payload, got)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A call that may have reached the service is unknown, and no outage.
func TestUnanswered(t *testing.T) {
	t.Parallel()
	for connected, want := range map[bool]string{true: delivery.Unknown(errors.New("x")).String(), false: delivery.Outage(errors.New("x"), 0).String()} {
		if got := Unanswered("post", httpcall.Answer{Err: errors.New("cut"), Connected: connected}).String(); got != want {
			t.Errorf("connected %t: %s, want %s", connected, got, want)
		}
	}
}
