package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"index/suffixarray"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/header"
)

// attempt makes one request.
func (s *Sink) attempt(ctx context.Context, keep int64, build func(context.Context) (*http.Request, [][]byte)) attempt {
	var asked, connected atomic.Bool
	rctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	rctx = httptrace.WithClientTrace(rctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	request, sent := build(rctx)
	// RoundTrip follows no redirect and keeps no cookie.
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return s.noAnswer(ctx, rctx, err, asked.Load(), connected.Load(), sent)
	}
	defer response.Body.Close()
	// The status is the answer, unless the body says what was taken. Else that is only
	// read for the excerpt and for the connection's next use, and a receiver that never
	// ends it is not waited for.
	tells := tellsOutcomes(request, response)
	if !tells {
		drained := time.AfterFunc(drainTimeout, cancel)
		defer drained.Stop()
	}
	start, readErr := readAnswer(response.Body, keep, s.opts.MaxResponse)
	if tells && readErr != nil {
		return s.noAnswer(ctx, rctx, readErr, true, true, sent)
	}
	a := s.classify(response, start[:min(len(start), excerptBytes)], sent)
	if tells {
		a.tells, a.answer, a.tooLong = true, start, int64(len(start)) >= keep
	}
	return a
}

// tellsOutcomes reports whether an answer's body says which messages were taken, as it was asked to.
func tellsOutcomes(request *http.Request, response *http.Response) bool {
	return response.StatusCode >= 200 && response.StatusCode < 300 &&
		request.Header.Get("Accept") == outcomesType && mediaType(response.Header.Get("Content-Type")) == outcomesType
}

// noAnswer judges a request without a complete answer.
func (s *Sink) noAnswer(ctx, rctx context.Context, err error, asked, connected bool, sent [][]byte) attempt {
	if ctx.Err() != nil {
		// A deadline is the endpoint's doing, any other end the caller's.
		err := s.errorf("no answer yet: %w", ctx.Err())
		switch {
		case !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return attempt{err: err, outcome: err, verdict: neutral}
		case connected:
			return attempt{err: err, outcome: err, verdict: failed}
		default:
			return attempt{err: err, outcome: deed.Unavailable(err, 0), verdict: unreachable}
		}
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		err := s.errorf("%w", r)
		return attempt{err: err, outcome: err, verdict: neutral}
	}
	text := s.printable([]byte(err.Error()), sent)
	if rctx.Err() != nil {
		text = fmt.Sprintf("no complete answer within %s", s.opts.Timeout)
	}
	switch {
	case connected:
		err := s.errorf("outcome unknown: %s", text)
		return attempt{err: err, outcome: err, verdict: failed}
	case asked:
		err := s.errorf("no connection: %s", text)
		return attempt{err: err, outcome: deed.Unavailable(err, 0), verdict: unreachable}
	case rctx.Err() != nil:
		// The process stood still for so long. That says nothing of the endpoint, nor of the message.
		err := s.errorf("not sent: %s were over before a connection was asked for", s.opts.Timeout)
		return attempt{err: err, outcome: deed.Unavailable(err, 0), verdict: neutral}
	default:
		// net/http refused the request itself.
		err := s.errorf("not sent: %s", text)
		return attempt{err: err, outcome: err, verdict: neutral}
	}
}

// classify judges an answer by its status.
func (s *Sink) classify(response *http.Response, start []byte, sent [][]byte) attempt {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return attempt{verdict: answered}
	}
	err := s.errorf("status %d%s", code, s.excerpt(response.Header.Get("Content-Type"), start, sent))
	a := attempt{err: err, outcome: err, verdict: answered}
	switch {
	case isFinal(code):
		a.outcome = deed.Permanent(err)
	case code == http.StatusTooManyRequests, code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout:
		a.verdict = failed
	case code >= 500:
		a.verdict = erred
	}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		if after, ok := header.RetryAfter(response.Header, s.now()); ok {
			a.after = after
			a.outcome = deed.AfterError(after, err)
		}
	}
	return a
}

// isFinal reports whether the same request would get the same refusal again.
func isFinal(code int) bool {
	switch code {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusGone,
		http.StatusLengthRequired, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
		http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	return code >= 300 && code < 400
}

const (
	excerptBytes = 200
	drainTimeout = time.Second
)

// readAnswer reads up to limit bytes and returns the first ones, up to keep. An answer that
// is longer is complete enough; its connection will not be used again.
func readAnswer(r io.Reader, keep, limit int64) ([]byte, error) {
	r = io.LimitReader(r, limit)
	start, err := io.ReadAll(io.LimitReader(r, keep))
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return start, err
}

// excerpt is what an error may say of an answer's body.
func (s *Sink) excerpt(contentType string, start []byte, sent [][]byte) string {
	media := mediaType(contentType)
	if len(start) == 0 || media != "" && !strings.HasPrefix(media, "text/") && !isJSON(media) {
		return ""
	}
	text := s.printable(start, sent)
	if text == "" {
		return ""
	}
	return ": " + text
}

// echo is from how many bytes in a row on an answer is taken to repeat the
// payload; of a short payload, half as many or all of it.
const echo = 16

// printable makes one line of an answer and takes out what it repeats of the
// request, so that no payload and no credential gets into errors and logs. sent is
// the request's body, and if that holds several payloads, these.
func (s *Sink) printable(text []byte, sent [][]byte) string {
	text = s.withoutHidden(text)
	for _, body := range sent {
		text = withoutEcho(text, min(echo, max(len(body), echo/2)), func(part []byte) bool { return bytes.Contains(body, part) })
	}
	return oneLine(text)
}

// printables returns what makes such lines of many texts, in a time that hardly grows with what was
// sent: each may be as long as the answer, and repeat much, or nearly, of it.
func (s *Sink) printables(sent [][]byte) func(text string) string {
	var short [][]byte
	var long []byte
	for _, body := range sent {
		switch {
		case len(body) >= echo:
			long = append(long, body...)
		case len(body) >= echo/2:
			short = append(short, body)
		}
	}
	index := sync.OnceValue(func() *suffixarray.Index { return suffixarray.New(long) })
	return func(said string) string {
		text := s.withoutHidden([]byte(said))
		for _, body := range short {
			text = bytes.ReplaceAll(text, body, []byte("[…]"))
		}
		text = withoutEcho(text, echo, func(part []byte) bool { return index().Lookup(part, 1) != nil })
		return oneLine(text)
	}
}

// shortestHidden is from how many bytes on a credential is known in a text.
const shortestHidden = 4

// withoutHidden takes credentials out of a text, and cuts it to the most that is looked at of one. The text may
// have been cut before, within one.
func (s *Sink) withoutHidden(text []byte) []byte {
	for _, value := range s.hidden {
		text = bytes.ReplaceAll(text, []byte(value), []byte("[…]"))
	}
	if n := s.begun(text); n > 0 {
		text = append(text[:len(text)-n:len(text)-n], "[…]"...)
	}
	return text[:min(len(text), 4*excerptBytes)]
}

// begun returns with how many bytes a text ends that begin a credential.
func (s *Sink) begun(text []byte) (most int) {
	for _, value := range s.hidden {
		for n := min(len(value)-1, len(text)); n >= max(shortestHidden, most+1); n-- {
			if string(text[len(text)-n:]) == value[:n] {
				most = n
			}
		}
	}
	return most
}

func oneLine(text []byte) string {
	line := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(text))
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > excerptBytes {
		line = strings.ToValidUTF8(line[:excerptBytes], "") + "…"
	}
	return line
}

// withoutEcho takes out of a text what was sent, from window bytes in a row on.
func withoutEcho(text []byte, window int, wasSent func(part []byte) bool) (kept []byte) {
	for len(text) > 0 {
		n := 0
		if len(text) >= window && wasSent(text[:window]) {
			for n = window; n < len(text) && wasSent(text[:n+1]); {
				n++
			}
		}
		if n == 0 {
			kept, text = append(kept, text[0]), text[1:]
			continue
		}
		kept, text = append(kept, "[…]"...), text[n:]
	}
	return kept
}
