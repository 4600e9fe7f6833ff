package providertest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m) }

// own is an adapter as a user would write it, with nothing but the exported
// API: a chat service behind one URL, without an idempotency key.
type own struct {
	url    string
	client *http.Client
}

func (o own) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "own", Channels: []delivery.Channel{delivery.Chat}, Key: delivery.NoKey}
}

func (o own) Render(d delivery.Draft) ([]byte, error) {
	if bytes.Contains(d.Payload, []byte("no such field")) {
		return nil, errors.New("the payload has a field that chat does not know")
	}
	return d.Payload, nil
}

func (o own) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url+"/"+r.Recipient(), bytes.NewReader(body))
	if err != nil {
		return delivery.Refused(err)
	}
	request.GetBody = nil // no repeat behind our back
	request.Header.Set("Webhook-Id", r.ID())
	answer, err := o.client.Do(request)
	switch {
	case err != nil && connected:
		return delivery.Unknown(errors.New("chat: no answer"))
	case err != nil:
		return delivery.Outage(errors.New("chat: no connection"), 0)
	}
	defer answer.Body.Close()
	err = fmt.Errorf("chat: status %d", answer.StatusCode)
	switch {
	case answer.StatusCode < 300:
		return delivery.Accepted("")
	case answer.StatusCode == http.StatusTooManyRequests:
		return delivery.NotNow(err, 0)
	case answer.StatusCode < 500:
		return delivery.Refused(err)
	}
	return delivery.Unknown(err)
}

// The adapter that docs/providers.md shows is the one that is tested here.
func TestDocs_AUsersOwn(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("providertest_test.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\ntype own struct")
	code, _, found := strings.Cut(code, "\n// The adapter that docs")
	if !found || !strings.Contains(string(page), strings.TrimSpace(code)) {
		t.Error("docs/providers.md shows another adapter than providertest_test.go tests")
	}
}

// A user's own adapter passes the suite that ours do.
func TestConformance_AUsersOwn(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		box := &catcher.Mailbox{}
		receiver := &catcher.Receiver{Mailbox: box}
		url, gate := providertest.Serve(t, receiver)
		transport := &http.Transport{DisableKeepAlives: true}
		client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			receiver.Close()
		})
		return providertest.Harness{
			Provider: own{url, client}, Channel: delivery.Chat, Recipient: "@bob", Sandbox: "@me", Payload: []byte(`{"text": "canary-7f3a"}`),
			Accepted: box.Raw,
			Recipients: func() (list []string) {
				for _, m := range box.List() {
					list = append(list, strings.TrimPrefix(m.To[0], "/"))
				}
				return list
			},
			Calls: receiver.Faults.Count,
			Fail:  func(how providertest.Fault, times int) { receiver.Faults.First(catcher.Fault(how), times) },

			Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
			Faults: []providertest.Fault{
				providertest.ForGood, providertest.ForNow, providertest.HangBefore, providertest.HangAccepted, providertest.ResetBefore,
				providertest.ResetAccepted, providertest.ServerError, providertest.Redirect,
			},
		}
	}, nil)
}
