//go:build brokers

// Package aws_test tests the provider ses, and what it believes of SNS, with moto's server
// and Python's cryptography: neither is ours. `make test-brokers` brings both.
package aws_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/deedhq/deed/e2e/gate"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const region = "eu-central-1"

// python is a command of the Python that has what DEED_MOTO names.
func python(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path := os.Getenv("DEED_MOTO")
	if path == "" {
		t.Fatal("DEED_MOTO is not set: run make test-brokers")
	}
	cmd := exec.Command("python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

// moto is a running server.
type moto struct {
	t   *testing.T
	url string
}

func startMoto(t *testing.T) *moto {
	t.Helper()
	l, err := gate.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	_ = l.Close()
	m := &moto{t, fmt.Sprintf("http://127.0.0.1:%d", address.Port)}
	cmd := python(t, "-m", "moto.server", "-H", "127.0.0.1", "-p", fmt.Sprint(address.Port))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("moto said:\n%s", &out)
		}
	})
	ready := pgtest.Wait(pgtest.Patience, func() bool {
		answer, err := http.Get(m.url + "/moto-api/")
		if err != nil {
			return false
		}
		return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	})
	if !ready {
		t.Fatal("moto's server is not reached")
	}
	return m
}

// unsigned names a service. The signature is none: moto looks at none until it is told to.
func unsigned(service string) string {
	return "AWS4-HMAC-SHA256 Credential=any/20260101/" + region + "/" + service + "/aws4_request, SignedHeaders=host, Signature=none"
}

// ask asks a service.
func (m *moto) ask(service, path, contentType, body string) string {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodPost, m.url+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Authorization", unsigned(service))
	r.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: status %d, %v: %s", service, answer.StatusCode, err, text)
	}
	return string(text)
}

// query asks one of the services whose requests are forms.
func (m *moto) query(service string, form url.Values) string {
	m.t.Helper()
	return m.ask(service, "/", "application/x-www-form-urlencoded", form.Encode())
}

// inside is what stands in an element of an answer.
func (m *moto) inside(text, element string) string {
	m.t.Helper()
	found := regexp.MustCompile("<" + element + ">([^<]*)</" + element + ">").FindStringSubmatch(text)
	if found == nil {
		m.t.Fatalf("there is no %s in %s", element, text)
	}
	return found[1]
}

// messages are the e-mails that moto has.
func (m *moto) messages() (list []message) {
	m.t.Helper()
	answer, err := http.Get(m.url + "/moto-api/data.json")
	if err != nil {
		m.t.Fatal(err)
	}
	defer answer.Body.Close()
	var has struct {
		SES struct{ Message []message }
	}
	if err := json.NewDecoder(answer.Body).Decode(&has); err != nil {
		m.t.Fatal(err)
	}
	return has.SES.Message
}

type message struct {
	ID, Source, Subject, Body string
	Destinations              struct{ ToAddresses []string }
}

// notary signs and verifies notifications, in Python.
type notary struct {
	t           *testing.T
	key         string
	Certificate []byte
}

func newNotary(t *testing.T) *notary {
	n := &notary{t: t, key: filepath.Join(t.TempDir(), "key.pem")}
	n.Certificate = n.run(nil, "certificate", n.key)
	return n
}

func (n *notary) run(input []byte, args ...string) []byte {
	n.t.Helper()
	cmd := python(n.t, append([]string{"sns.py"}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("sns.py %s: %v\n%s", args[0], err, &problem)
	}
	return out
}

// sign returns the notification, signed.
func (n *notary) sign(fields map[string]string) []byte {
	n.t.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.run(text, "sign", n.key)
}

// running runs something until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}
