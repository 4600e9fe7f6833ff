package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/deedhq/deed"
)

// EventReader reads what a service says later of what its provider sent, in requests
// that it makes of its own. Safe for concurrent use.
type EventReader interface {
	// ReadEvents verifies a request by its raw body, and reads it. now is the
	// database's clock. Errors: [ErrUnverified] (answered by 401), [ErrNoEvents] if the
	// provider has not been told how to verify one (404), [ErrAgain] if that cannot be done
	// now (503: it is repeated); any other is answered by 400.
	// Their texts have nothing in them that was sent, nor a secret.
	ReadEvents(r *http.Request, body []byte, now time.Time) (Told, error)
}

// HeaderVerifier is an [EventReader] whose service is known by the headers of its requests, as by a password: what is
// not known is refused before its body is read, and takes none of the places that the service's requests need.
type HeaderVerifier interface {
	// VerifyHeaders returns nil, [ErrUnverified] or [ErrNoEvents], as ReadEvents does.
	VerifyHeaders(h http.Header) error
}

// Told is what a request of a service has in it.
type Told struct {
	Events     []StatusEvent
	Other      int // what is no event of a message, or of a kind that is not kept
	Unreadable int // events that nothing can be made of: they are counted, and hold up no others
}

var (
	// ErrUnverified says that a request is not known to be the service's.
	ErrUnverified = errors.New("the request is not verified")
	// ErrAgain says that a request cannot be read now, or not all of it recorded, and may be later.
	ErrAgain = errors.New("the request cannot be taken now")
	// ErrNoEvents says that a provider has nothing by which to verify what a service says.
	ErrNoEvents = errors.New("the provider reads no events")
)

// EventCount is how often something came of what a service said, since the handler was
// made.
type EventCount struct {
	Provider string
	// Outcome is what came of a request: unverified, invalid, failed, busy; or of an
	// event: matched, waiting, strange, settled (of those that matched), ignored,
	// unreadable.
	Outcome string
	N       int64
}

// EventsHandler takes what services say, at /events/PROVIDER, and nothing else:
//
//	200  all of the request is recorded, or was before
//	400  it is no request of the service's; 401, its signature is wrong; nothing is recorded
//	404, 405, 413  no such provider, method, or a body of over 1 MiB
//	503  the database is away, or there are too many at once, as when a body takes over a
//	     second while more than half of the places are taken: the service repeats it
//
// It is made for a listener that everybody may reach (server.Serve has the limits).
type EventsHandler struct {
	ledger  *Ledger
	readers map[string]*eventReader
	mux     *http.ServeMux

	mu        sync.Mutex
	elsewhere map[string]*eventReader // guarded by mu: for what is told elsewhere, by provider
}

type eventReader struct {
	EventReader
	name string
	room chan struct{} // a place for each request that is read and recorded

	mu     sync.Mutex
	counts map[string]int64 // guarded by mu: by outcome
	told   time.Time        // guarded by mu: when a refusal was last told in the log
	now    time.Time        // guarded by mu: what the database said that it is,
	asked  time.Time        // guarded by mu: and when
}

const (
	mostEventBody = 1 << 20
	eventRequests = 64 // of one provider at once: each may have a body of a mebibyte

	bodyTime  = 5 * time.Second // that a body may take
	hurryTime = time.Second     // while more than half of the places are taken: by who has sent none of it, as far as anybody knows
)

// EventsHandler returns what takes the services' requests: of the ledger's providers,
// those of readers.
func (l *Ledger) EventsHandler(readers map[string]EventReader) *EventsHandler {
	h := &EventsHandler{ledger: l, readers: map[string]*eventReader{}, mux: http.NewServeMux()}
	for name, r := range readers {
		h.readers[name] = &eventReader{EventReader: r, name: name, room: make(chan struct{}, eventRequests), counts: map[string]int64{}}
	}
	h.mux.HandleFunc("/events/{provider}", h.serve)
	return h
}

// Counts returns what has come of what services said.
func (h *EventsHandler) Counts() (list []EventCount) {
	h.mu.Lock()
	all := slices.AppendSeq(slices.Collect(maps.Values(h.readers)), maps.Values(h.elsewhere))
	h.mu.Unlock()
	for _, e := range all {
		e.mu.Lock()
		for outcome, n := range e.counts {
			list = append(list, EventCount{e.name, outcome, n})
		}
		e.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b EventCount) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Outcome, b.Outcome))
	})
	return list
}

func (e *eventReader) count(outcome string, n int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n != 0 {
		e.counts[outcome] += n
	}
}

// ServeHTTP implements [http.Handler].
func (h *EventsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *EventsHandler) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	e := h.readers[r.PathValue("provider")]
	switch {
	case e == nil:
		answerEvents(w, http.StatusNotFound, "there is no such provider")
		return
	case r.Method != http.MethodPost && r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST")
		answerEvents(w, http.StatusMethodNotAllowed, "want POST")
		return
	}
	if known, ok := e.EventReader.(HeaderVerifier); ok {
		if err := known.VerifyHeaders(r.Header); err != nil {
			w.Header().Set("Connection", "close") // or the body is read for the next request's sake
			h.refuse(w, e, err)
			return
		}
	}
	select {
	case e.room <- struct{}{}:
		defer func() { <-e.room }()
	default:
		e.count("busy", 1)
		answerEvents(w, http.StatusServiceUnavailable, "too many requests at once")
		return
	}
	if body, ok := e.readBody(w, r); ok {
		h.take(w, r, e, body)
	}
}

// readBody reads a request's body; !ok: it has answered.
func (e *eventReader) readBody(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	within := bodyTime
	if len(e.room) > cap(e.room)/2 {
		within = hurryTime
	}
	control := http.NewResponseController(w) // some writers have no deadline
	_ = control.SetReadDeadline(time.Now().Add(within))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostEventBody))
	if err == nil {
		_ = control.SetReadDeadline(time.Time{}) // or it ends the recording, too, which has a deadline of its own
		return body, true
	}
	w.Header().Set("Connection", "close")
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLarge:
		e.count("invalid", 1)
		answerEvents(w, http.StatusRequestEntityTooLarge, "the body is over 1 MiB")
	case within == hurryTime && errors.Is(err, os.ErrDeadlineExceeded): // with more time it might have come
		e.count("busy", 1)
		answerEvents(w, http.StatusServiceUnavailable, "too many requests at once")
	default:
		e.count("invalid", 1)
		answerEvents(w, http.StatusBadRequest, "the body was cut")
	}
	return nil, false
}

// take verifies a request, records what it says, and answers it.
func (h *EventsHandler) take(w http.ResponseWriter, r *http.Request, e *eventReader, body []byte) {
	log := h.ledger.opts.Logger.With("provider", e.name)
	now, err := h.databaseNow(r, e)
	if err != nil {
		e.count("failed", 1)
		answerEvents(w, http.StatusServiceUnavailable, "try again")
		return
	}
	told, err := e.ReadEvents(r, body, now)
	if err != nil {
		h.refuse(w, e, err)
		return
	}
	good := slices.DeleteFunc(told.Events, func(v StatusEvent) bool { return v.check() != nil })
	if bad := len(told.Events) - len(good) + told.Unreadable; bad > 0 {
		e.count("unreadable", int64(bad))
		log.Error("events that cannot be read were passed over: see whether the service's format has changed", "events", bad)
	}
	e.count("ignored", int64(told.Other))
	done, err := h.ledger.Record(r.Context(), e.name, good...)
	e.add(done)
	switch {
	case errors.Is(err, ErrAgain):
		e.count("failed", 1)
		if e.mayTell() {
			log.Warn("some events are not recorded yet; the service will repeat them", "error", err)
		}
		answerEvents(w, http.StatusServiceUnavailable, "try again")
		return
	case err != nil:
		e.count("failed", 1)
		log.Error("events could not be recorded; the service will repeat them", "error", err)
		if deed.CodeOf(err) == deed.Invalid {
			answerEvents(w, http.StatusBadRequest, "it cannot be recorded")
			return
		}
		answerEvents(w, http.StatusServiceUnavailable, "try again")
		return
	}
	answerEvents(w, http.StatusOK, "ok")
}

// refuse answers a request that cannot be read.
func (h *EventsHandler) refuse(w http.ResponseWriter, e *eventReader, err error) {
	log := h.ledger.opts.Logger.With("provider", e.name)
	switch {
	case errors.Is(err, ErrNoEvents):
		answerEvents(w, http.StatusNotFound, "there is no such provider")
	case errors.Is(err, ErrAgain):
		e.count("failed", 1)
		log.Warn("a request of the service's cannot be read now; it will repeat it", "error", err)
		answerEvents(w, http.StatusServiceUnavailable, "try again")
	case errors.Is(err, ErrUnverified):
		e.count("unverified", 1)
		if e.mayTell() {
			log.Warn("a request without the service's signature was refused")
		}
		answerEvents(w, http.StatusUnauthorized, "the signature is not the service's")
	default:
		e.count("invalid", 1)
		if e.mayTell() {
			log.Warn("a request that is none of the service's was refused", "error", err)
		}
		answerEvents(w, http.StatusBadRequest, "it is no request of the service's")
	}
}

// Record records what a service said of a provider's messages elsewhere than at
// /events/PROVIDER, to somebody who has verified it, and counts it as if it had come there:
// WhatsApp's statuses come with its messages. Errors: those of [Ledger.Record].
func (h *EventsHandler) Record(ctx context.Context, provider string, events ...StatusEvent) error {
	h.mu.Lock()
	e := h.elsewhere[provider]
	if e == nil {
		e = &eventReader{name: provider, counts: map[string]int64{}}
		if h.elsewhere == nil {
			h.elsewhere = map[string]*eventReader{}
		}
		h.elsewhere[provider] = e
	}
	h.mu.Unlock()
	good := slices.DeleteFunc(slices.Clone(events), func(v StatusEvent) bool { return v.check() != nil })
	if bad := len(events) - len(good); bad > 0 { // one that can never be recorded would be repeated, and all that came with it
		e.count("unreadable", int64(bad))
		h.ledger.opts.Logger.Error("events that cannot be read were passed over: see whether the service's format has changed", "provider", provider, "events", bad)
	}
	done, err := h.ledger.Record(ctx, provider, good...)
	e.add(done)
	if err != nil {
		e.count("failed", 1)
	}
	return err
}

// add counts what has become of events.
func (e *eventReader) add(done Recorded) {
	for outcome, n := range map[string]int64{
		"matched": done.Matched, "waiting": done.Waiting, "strange": done.Strange, "settled": int64(done.Settled), "ignored": int64(done.Ignored),
	} {
		e.count(outcome, n)
	}
}

// mayTell reports whether a refusal may be told: once a second.
func (e *eventReader) mayTell() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.told) < time.Second {
		return false
	}
	e.told = time.Now()
	return true
}

// databaseNow is what time it is in the database, asked once a minute: signatures are old
// by that.
func (h *EventsHandler) databaseNow(r *http.Request, e *eventReader) (time.Time, error) {
	e.mu.Lock()
	now, asked := e.now, e.asked
	e.mu.Unlock()
	if since := time.Since(asked); !asked.IsZero() && since < time.Minute {
		return now.Add(since), nil
	}
	ctx, cancel := h.ledger.deadline(r.Context())
	defer cancel()
	asked = time.Now()
	if err := h.ledger.pool.QueryRow(ctx, query.Now).Scan(&now); err != nil {
		return time.Time{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now, e.asked = now, asked
	return now, nil
}

func answerEvents(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": text}) // the service may be gone; there is nobody to tell
}
