package inbound

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// maxBody bounds a request, unless its platform sends [lengthy] ones, and what a message has in it.
const maxBody = 1 << 20

// lengthy is a source whose platform sends requests that are larger than maxBody.
type lengthy interface{ mostBody() int64 }

// mostBodyOf bounds a request of a source's.
func mostBodyOf(s Source) int64 {
	if l, ok := s.(lengthy); ok {
		return l.mostBody()
	}
	return maxBody
}

// Handler answers platforms' requests at /in/SOURCE, and nothing else:
//
//	200  all messages of the request are stored, and with [AfterExecuted] have ended; or
//	     are held for a person
//	400  it is no request of the platform's; 401, its signature is wrong; nothing is stored
//	404, 405, 413  no such source, method, or a body of over 1 MiB, WhatsApp's over 3
//	500  a message has failed: repeat it
//	503  the database is away, somebody has a message or its sender locked, the process
//	     is held or has too much to do: repeat it
//
// It is made for a listener of its own, which everybody may reach (server.Serve has the
// limits). While [Receiver.Run] does not run it answers 503, and for a source that waits
// for its provider ([Receiver.Waiting]).
func (r *Receiver) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/in/{source}", func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		s := r.sources[req.PathValue("source")]
		switch {
		case s == nil || s.opts.Source == nil:
			reply(w, http.StatusNotFound, "there is no such source")
		case req.Method != http.MethodPost && req.Method != http.MethodGet:
			w.Header().Set("Allow", "GET, POST")
			reply(w, http.StatusMethodNotAllowed, "want POST")
		default:
			s.serve(w, req)
		}
	})
	return mux
}

func reply(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": text}) // the platform may be gone; there is nobody to tell
}

// serve answers one request of a source's platform.
func (s *source) serve(w http.ResponseWriter, req *http.Request) {
	r := s.receiver
	ctx, cancel := context.WithTimeout(req.Context(), r.opts.Wait)
	defer cancel()
	if s.ready() != nil {
		reply(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	answer, list, ok := s.take(ctx, w, req)
	if !ok || !s.isWellWith(ctx, w, list) {
		return
	}
	if answer != nil {
		w.Header().Set("Content-Type", answer.ContentType)
		w.WriteHeader(answer.Status)
		_, _ = w.Write(answer.Body)
		return
	}
	reply(w, http.StatusOK, "ok")
}

// take reads a request and stores its messages; !ok: it has answered.
func (s *source) take(ctx context.Context, w http.ResponseWriter, req *http.Request) (answer *Answer, list []accepted, ok bool) {
	r := s.receiver
	if known, ok := s.opts.Source.(HeaderVerifier); ok {
		if err := known.VerifyHeaders(req.Header); err != nil {
			w.Header().Set("Connection", "close") // or the body is read for the next request's sake
			s.refuse(w, err)
			return nil, nil, false
		}
	}
	if !s.enter(w, s.reading) {
		return nil, nil, false
	}
	defer func() { <-s.reading }()
	body, ok := s.readBody(w, req)
	if !ok {
		return nil, nil, false
	}
	received, err := s.opts.Source.Read(req, body, r.now())
	if err != nil {
		s.refuse(w, err)
		return nil, nil, false
	}
	for _, n := range received.Ignored {
		r.counts.add(s.name, "ignored", n)
	}
	if n := received.Unreadable; n > 0 {
		r.counts.add(s.name, "unreadable", n)
		s.log.Error("messages that cannot be read were passed over: see whether the platform's format has changed", "messages", n)
	}
	if len(received.Events) > 0 {
		list, ok = s.keep(ctx, w, received.Events, correlation(req))
	}
	if !ok && ctx.Err() != nil { // all of it comes again
		return nil, nil, false
	}
	if !s.keepStatuses(ctx, received.Statuses) && ok { // neither waits for the other
		s.wake()
		reply(w, http.StatusServiceUnavailable, "try again")
		return nil, nil, false
	}
	return received.Answer, list, ok
}

// refuse answers a request that is not the platform's, or cannot be read.
func (s *source) refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnverified) {
		s.receiver.counts.add(s.name, "unverified", 1)
		s.unverified.tell(func(more int) {
			s.log.Warn("a request without the platform's signature was refused", "more_since", more)
		})
		reply(w, http.StatusUnauthorized, "the signature is not the platform's")
		return
	}
	s.receiver.counts.add(s.name, "invalid", 1)
	text := "it is no request of the platform's"
	if why, ok := errors.AsType[unreadable](err); ok { // another source's words may be the sender's
		text += ": " + string(why)
	}
	s.unverified.tell(func(more int) { s.log.Warn("a request was refused: "+text, "more_since", more) })
	reply(w, http.StatusBadRequest, text)
}

// keepStatuses records what became of messages of ours; false: it is to be brought again.
func (s *source) keepStatuses(ctx context.Context, events []delivery.StatusEvent) bool {
	if len(events) == 0 {
		return true
	}
	outcome := "ignored"
	if s.opts.Statuses != nil {
		outcome = "status"
		if err := s.opts.Statuses(ctx, events); err != nil {
			s.receiver.counts.add(s.name, "failed", 1)
			s.log.Error("what became of messages could not be recorded; the platform will repeat it", "error", err)
			return false
		}
	}
	s.receiver.counts.add(s.name, outcome, len(events))
	return true
}

// enter takes a place in room; without one it answers that there is none.
func (s *source) enter(w http.ResponseWriter, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	default:
		s.receiver.counts.add(s.name, "busy", 1)
		reply(w, http.StatusServiceUnavailable, "too many requests at once")
		return false
	}
}

// readBody reads a request's body; !ok: it has answered. Who sends a byte now and then
// keeps no place for long, and a fifth of that while more than half of the places are taken.
func (s *source) readBody(w http.ResponseWriter, req *http.Request) (body []byte, ok bool) {
	within, hurry := s.receiver.opts.Wait/2, len(s.reading) > cap(s.reading)/2
	if hurry {
		within /= 5
	}
	control := http.NewResponseController(w) // some writers have no deadline
	_ = control.SetReadDeadline(time.Now().Add(within))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, s.mostBody))
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // or it ends the waiting, too
		return body, true
	}
	w.Header().Set("Connection", "close")
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		s.receiver.counts.add(s.name, "invalid", 1)
		reply(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d MiB", s.mostBody>>20))
	case hurry && errors.Is(err, os.ErrDeadlineExceeded): // with more time it might have come
		s.receiver.counts.add(s.name, "busy", 1)
		reply(w, http.StatusServiceUnavailable, "too many requests at once")
	default:
		reply(w, http.StatusBadRequest, "the body was cut")
	}
	return nil, false
}

// Take takes messages of a source that came otherwise than by a request, such as by mail:
// verified by the caller. It returns when they are stored and, with [AfterExecuted], have
// ended or are held; an error means that they are to be brought again, unless it is
// [deed.Invalid], and nothing of them is stored: [deed.NotFound] for a source that there is
// not.
func (r *Receiver) Take(ctx context.Context, name, correlation string, events ...Event) error {
	const op = "take messages"
	s := r.sources[name]
	if s == nil {
		return &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no source %q", name)}
	}
	if err := s.ready(); err != nil {
		return fmt.Errorf("deed: %s: %w", op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.opts.Wait)
	defer cancel()
	list, err := s.accept(ctx, events, correlation)
	if err != nil {
		r.counts.add(s.name, "failed", 1)
		return err
	}
	if s.opts.At == AfterAccepted {
		s.wake()
		return nil
	}
	switch s.await(ctx, list) {
	case allEnded:
		return nil
	case someFailed:
		return fmt.Errorf("deed: %s: a message has failed", op)
	}
	return fmt.Errorf("deed: %s: not all have ended", op)
}

// Ignored counts what a source sent that is nobody's message, as [Received.Ignored] does.
func (r *Receiver) Ignored(source, word string, n int) {
	if s := r.sources[source]; s != nil {
		r.counts.add(s.name, "ignored", n)
		s.log.Debug("nobody's message was passed over", "word", word)
	}
}

// keep stores a request's messages; !ok: it has answered.
func (s *source) keep(ctx context.Context, w http.ResponseWriter, events []Event, correlation string) (list []accepted, ok bool) {
	list, err := s.accept(ctx, events, correlation)
	switch {
	case err == nil:
		return list, true
	case errors.Is(ctx.Err(), context.Canceled): // many at once, where this process was frozen
		s.gone.tell(func(more int) {
			s.log.Warn("who sent a request has gone before its messages were stored; the platform will repeat them", "more_since", more)
		})
		reply(w, http.StatusServiceUnavailable, "try again")
	case errors.Is(err, errBusy):
		s.crowded.tell(func(more int) {
			s.log.Warn("messages waited too long for others to be stored; the platform will repeat them", "more_since", more)
		})
		s.receiver.counts.add(s.name, "busy", 1)
		reply(w, http.StatusServiceUnavailable, "too many requests at once")
		return nil, false
	case sqlstate.Locked(err):
		s.log.Warn("somebody has a message or its sender locked; the platform will repeat it", "messages", len(events)-len(list))
		reply(w, http.StatusServiceUnavailable, "try again")
	case deed.CodeOf(err) == deed.Invalid:
		s.log.Error("a message could not be stored", "error", err)
		reply(w, http.StatusBadRequest, "it cannot be stored")
	default:
		s.log.Error("messages could not be stored; the platform will repeat them", "error", err)
		reply(w, http.StatusServiceUnavailable, "try again")
	}
	s.receiver.counts.add(s.name, "failed", 1)
	return nil, false
}

// isWellWith waits for the outcomes of a request's messages, if the source says so;
// false: it has answered, that not all is well.
func (s *source) isWellWith(ctx context.Context, w http.ResponseWriter, list []accepted) bool {
	if len(list) == 0 {
		return true
	}
	if s.opts.At == AfterAccepted {
		s.wake()
		return true
	}
	if !s.enter(w, s.waiting) {
		s.wake() // they are stored, and run nevertheless
		return false
	}
	defer func() { <-s.waiting }()
	switch s.await(ctx, list) {
	case allEnded:
		return true
	case someFailed:
		reply(w, http.StatusInternalServerError, string(DispatchFailed))
	default:
		reply(w, http.StatusServiceUnavailable, "not done yet")
	}
	return false
}

// correlationID is what may come from outside and be written into logs.
var correlationID = regexp.MustCompile(`^[A-Za-z0-9._:/=+-]{1,100}$`)

// correlation is the request's correlation id, if it has one.
func correlation(req *http.Request) string {
	if id := req.Header.Get("X-Correlation-Id"); correlationID.MatchString(id) {
		return id
	}
	return ""
}

// accepted is what became of an event when it was stored.
type accepted struct {
	id          string
	status      Status
	did         string // new, again, waits, held, repeat
	correlation string
	came        chan outcome
	drop        func()
}

// accept stores the events of a request.
func (s *source) accept(ctx context.Context, events []Event, correlation string) (list []accepted, err error) {
	for i, e := range events {
		if err := e.check(); err != nil {
			return nil, invalidf("accept message", "message %d: %w", i+1, err)
		}
	}
	if len(events) == 0 {
		return nil, nil
	}
	crash.Point("inbound accepting")
	list, err = s.storeAgain(ctx, events, correlation)
	if sqlstate.Locked(err) {
		list, err = s.storeEach(ctx, events, correlation)
	}
	if err != nil && len(list) == 0 {
		return nil, deed.WrapError("accept message", err)
	}
	crash.Point("inbound accepted")
	for _, a := range list {
		log := s.log.With("channel_message_id", a.id, "correlation_id", a.correlation)
		if a.did == "new" {
			s.receiver.counts.add(s.name, "new", 1)
			log.Info("message received", "status", a.status)
		} else {
			s.receiver.counts.add(s.name, "repeat", 1)
			log.Info("message repeated by its platform", "status", a.status, "did", a.did)
		}
		if a.status != Accepted && a.did == "new" {
			s.receiver.counts.add(s.name, "denied", 1)
		}
	}
	if err != nil {
		s.wake() // those that are stored are run
		return list, deed.WrapError("accept message", err)
	}
	return list, nil
}

// storeAgain stores events together, once more where others were at it.
func (s *source) storeAgain(ctx context.Context, events []Event, correlation string) (list []accepted, err error) {
	for n := 1; ; n++ {
		if list, err = s.store(ctx, events, correlation); err == nil || !sqlstate.Again(err) || n == 10 {
			return list, err
		}
		work.Sleep(ctx, work.Backoff(n, 5*time.Millisecond, 200*time.Millisecond))
	}
}

// storeEach stores each of the events by itself, so that none waits for what somebody has
// locked of another, such as its sender by an erasure that is left open. What comes behind
// one that is left of the same sender is left, too, or it would be run before it. Without a
// connection it waits a little, as most locks are short; err is what of the first one
// that could not be stored.
func (s *source) storeEach(ctx context.Context, events []Event, correlation string) (list []accepted, err error) {
	for n := 1; n <= 2 && len(events) > 0; n++ {
		var left []Event
		behind := senders{}
		err = nil
		for _, e := range events {
			if behind.has(e) {
				behind.add(e)
				left = append(left, e)
				continue
			}
			one, refused := s.storeAgain(ctx, []Event{e}, correlation)
			if refused != nil {
				err = cmp.Or(err, refused)
				behind.add(e)
				left = append(left, e)
				continue
			}
			list = append(list, one...)
		}
		events = left
		if err != nil && (!sqlstate.Locked(err) || !work.Sleep(ctx, work.Backoff(n, 100*time.Millisecond, 400*time.Millisecond))) {
			break
		}
	}
	return list, err
}

// senders are known by any of their identities, without what the database may fold of
// them: two that are taken for one only wait for each other.
type senders map[string]bool

func (of senders) has(e Event) bool {
	return slices.ContainsFunc(identities(e), func(name string) bool { return of[name] })
}

func (of senders) add(e Event) {
	for _, name := range identities(e) {
		of[name] = true
	}
}

func identities(e Event) (names []string) {
	fold := func(kind, value string) string {
		return kind + " " + strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) {
				return unicode.ToLower(r)
			}
			return -1
		}, value)
	}
	names = append(names, fold(e.Kind, e.Sender))
	for _, a := range e.Also {
		names = append(names, fold(a.Kind, a.Value))
	}
	return names
}

// enterStoring waits for a place to store messages in of which e is one, for a quarter of what a request may take: it keeps one of
// the source's places all the time.
func (s *source) enterStoring(ctx context.Context, e Event) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.receiver.opts.Wait/4)
	defer cancel()
	if leave, err = s.storing.Enter(ctx, e.Kind+" "+e.Sender); err != nil {
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	return leave, nil
}

func (s *source) store(ctx context.Context, events []Event, correlation string) ([]accepted, error) {
	n := len(events)
	ids, kinds, senders, to, texts, bodies := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	alsoOf, alsoKinds, alsoValues := []int32{}, []string{}, []string{}
	for i, e := range events {
		ids[i], kinds[i], senders[i], to[i], texts[i], bodies[i] = e.ID, e.Kind, e.Sender, e.ReplyTo, e.Text, string(e.Body)
		for _, a := range e.Also {
			alsoOf, alsoKinds, alsoValues = append(alsoOf, int32(i+1)), append(alsoKinds, a.Kind), append(alsoValues, a.Value)
		}
	}
	r := s.receiver
	leave, err := s.enterStoring(ctx, events[0])
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, r.opts.Deadline)
	defer cancel()
	rows, err := r.pool.Query(ctx, query.Accept, s.name, ids, kinds, senders, to, texts, bodies, correlation, string(s.opts.Unknown), s.opts.Tenant.String(), r.opts.Worker,
		alsoOf, alsoKinds, alsoValues)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := make([]accepted, 0, n)
	for rows.Next() {
		var a accepted
		if err := rows.Scan(&a.id, &a.status, &a.did, &a.correlation); err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, rows.Err()
}

// What came of waiting.
type awaited int

const (
	allEnded awaited = iota
	someFailed
	notAll
)

// await waits for messages that are accepted until ctx ends.
func (s *source) await(ctx context.Context, list []accepted) awaited {
	w := &s.receiver.waiting
	result := allEnded
	for i := range list {
		if a := &list[i]; a.status == Accepted {
			a.came, a.drop = w.add(a.id)
			defer a.drop()
		}
	}
	s.wake() // not before somebody listens
	for _, a := range list {
		if a.status != Accepted {
			continue
		}
		select {
		case o := <-a.came:
			if o.status == DispatchFailed && !o.held {
				result = max(result, someFailed)
			}
		case <-ctx.Done():
			return notAll
		}
	}
	return result
}

// sometimes lets something be said once a second.
type sometimes struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu
	more int       // guarded by mu: what was not said since
}

func (s *sometimes) tell(say func(more int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.at) >= time.Second {
		say(s.more)
		s.at, s.more = now, 0
		return
	}
	s.more++
}
