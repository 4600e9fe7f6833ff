package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/httpcall"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/sink/webhook"
)

// httpTimeout bounds a request of a step that says nothing of its own.
const httpTimeout = 30 * time.Second

// newClient makes the connections of steps of kind http: to public addresses, and to those that allow names.
func newClient(allow []string) (*http.Transport, error) {
	dial, err := webhook.Dialer(allow, 10*time.Second)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		DialContext: httpcall.Count(dial), ForceAttemptHTTP2: true, HTTP2: httpcall.Pings(), MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}, nil
}

// oneEach has the connections of t, each for one request, of a step at most once: net/http makes one that was to
// change nothing again by itself where a connection that was kept breaks (persistConn.shouldRetryRequest), and
// never one over a connection of its own. By HTTP/1.1, since over HTTP/2 it repeats what is answered by a
// PROTOCOL_ERROR, too.
func oneEach(t *http.Transport) *http.Transport {
	return &http.Transport{
		DialContext: t.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: t.TLSHandshakeTimeout, MaxResponseHeaderBytes: t.MaxResponseHeaderBytes,
	}
}

// asked is a request as a step's plan has it.
type asked struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// request does a step of kind http: one request, under the key of the step.
func (e *Engine) request(ctx context.Context, it *item, p *plan.Plan, st *plan.Step, data plan.Data, started time.Time) error {
	var err error
	if it.guard, err = e.secrets(ctx, it, st); err != nil {
		if it.end == nil {
			it.end = it.failed(err, started)
			it.end.notDone = it.first()
		}
		return err
	}
	data.Secrets = it.guard.values
	r, err := it.asks(p, st, data)
	if err != nil {
		_, err = it.guard.checked(nil, err)
		return err
	}
	if may, err := e.mayBegin(ctx, it); !may || err != nil {
		it.end = it.unbegun(time.Second)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(st.Timeout, httpTimeout))
	defer cancel()
	defer e.announcing(it).Stop()
	client := e.client
	if it.once {
		client = e.once
	}
	crash.Point("requesting")
	answer := httpcall.Do(ctx, client, r.method, r.url, r.header, r.body)
	crash.Point("requested")
	output, err := it.guard.checked(outputOf(answer), it.refusal(r, answer))
	if err != nil {
		return err
	}
	it.end = it.completed(output, started)
	it.end.instead = httpOutput{Status: answer.Status, Omitted: true} // where the database does not take the body: the request was done
	return nil
}

// asks resolves what a step asks for.
func (it *item) asks(p *plan.Plan, st *plan.Step, data plan.Data) (r asked, err error) {
	target, err := st.URL(p, data)
	if err != nil {
		return r, err
	}
	if r.url, err = url.Parse(target); err != nil || r.url.Scheme != "http" && r.url.Scheme != "https" || r.url.Host == "" || r.url.User != nil {
		return r, &plan.ConditionError{Err: errors.New("url: what was computed is no URL of http or https")} // which may hold what it should not
	}
	body, err := st.Resolve(p, "body", data)
	if err != nil {
		return r, err
	}
	headers, err := it.headers(p, st, data)
	if err != nil {
		return r, err
	}
	r.header = http.Header{"User-Agent": {"deed"}}
	r.method = cmp.Or(st.Method, http.MethodGet)
	if body != nil {
		r.method = cmp.Or(st.Method, http.MethodPost)
		r.body = body
		r.header.Set("Content-Type", "application/json")
		var text string
		if body[0] == '"' && json.Unmarshal(body, &text) == nil {
			r.body = []byte(text)
			r.header.Set("Content-Type", "text/plain; charset=utf-8")
		}
	}
	// Of those that differ in letters alone, which an older plan may have, the same one is sent at each attempt: it goes under the same key.
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch {
		case !header.IsToken(name):
			return r, &plan.ConditionError{Err: fmt.Errorf("headers: no header can have the name %q", name)}
		case !httpguts.ValidHeaderFieldValue(headers[name]): // which may be a secret, and is not repeated
			return r, &plan.ConditionError{Err: fmt.Errorf("headers: what was computed for %q has a line end, or another character that no header can have", name)}
		}
		r.header.Set(name, headers[name])
	}
	r.header.Set("Idempotency-Key", it.key())
	return r, nil
}

// refusal is why a request has failed, and what is known of it; nil for one that was done.
func (it *item) refusal(r asked, a httpcall.Answer) error {
	if a.Err != nil {
		f := &run.Failure{Category: "infrastructure", Code: "HTTP_UNREACHABLE", NotDone: it.first() && !a.Connected, Err: fmt.Errorf("%s %s: %w", r.method, r.url.Host, withoutURL(a.Err))}
		switch refused := webhook.RefusedAddress(a.Err); {
		case refused != nil:
			f.Category, f.Code, f.Final, f.Err = "user", "HTTP_HOST_NOT_ALLOWED", true, refused
		case errors.Is(a.Err, context.DeadlineExceeded):
			f.Code = "TIMEOUT"
		case a.Connected:
			f.Code = "HTTP_CUT"
		}
		return it.unsure(f, a.Connected)
	}
	if a.Status >= 200 && a.Status <= 299 {
		return nil
	}
	// Of a conflict the first request with this key may still be under way, and of a time-out it may be done all the same.
	known := a.Status >= 400 && a.Status <= 499 && a.Status != http.StatusRequestTimeout && a.Status != http.StatusConflict
	if it.guard.inText(string(a.Body)) { // a line of it is stored, whatever is kept of it else, and may end within a value
		if it.once && !known {
			return errUnknownLeak()
		}
		return errLeak()
	}
	f := &run.Failure{Category: "provider", Code: fmt.Sprintf("HTTP_%d", a.Status), Err: fmt.Errorf("%s %s answers %d: %s", r.method, r.url.Host, a.Status, httpcall.Line(a.Body))}
	if known {
		f.Category, f.NotDone = "user", it.first()
	}
	f.Final = a.Status < 400 // a redirect is not followed, and would come again
	return it.unsure(f, !known)
}

// unsure makes a failure of which nobody knows whether it was done one that a person decides, where it must not be repeated.
func (it *item) unsure(f *run.Failure, may bool) error {
	if it.once && may {
		f.Code, f.Final = "OUTCOME_UNKNOWN", true
	}
	return f
}

// withoutURL is err without the URL that net/http puts into it.
func withoutURL(err error) error {
	if said, ok := errors.AsType[*url.Error](err); ok {
		return said.Err
	}
	return err
}

// httpOutput is what later steps see of an answer.
type httpOutput struct {
	Status  int  `json:"status"`
	Body    any  `json:"body,omitempty"`
	Omitted bool `json:"body_omitted,omitempty"`
}

// outputOf is a's: its status, and its body where that is JSON or text and fits. What the
// database does not take of JSON, such as half a character or a number that is too large, it says itself.
func outputOf(a httpcall.Answer) json.RawMessage {
	out := httpOutput{Status: a.Status}
	media, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	body := bytes.TrimSpace(a.Body)
	storable := utf8.Valid(body) && !bytes.ContainsRune(body, 0) && !bytes.Contains(body, []byte(`\u0000`))
	switch {
	case len(body) == 0:
	case !storable:
		out.Omitted = true
	case (media == "application/json" || strings.HasSuffix(media, "+json")) && json.Valid(body):
		out.Body = json.RawMessage(body)
	default:
		out.Body = string(body)
	}
	text, err := json.Marshal(out)
	if err != nil || len(text) > maxOutput {
		out.Body, out.Omitted = nil, true
		text, _ = json.Marshal(out) // a number and a flag
	}
	return text
}
