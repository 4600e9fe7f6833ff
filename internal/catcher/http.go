package catcher

import (
	"net/http"
	"sync"
)

// answers gives the faulty answers that every HTTP server shares.
type answers struct {
	Faults Faults
	Events Events

	once sync.Once
	stop chan struct{} // closed by Close: hanging answers end
}

func (a *answers) stopped() chan struct{} {
	a.once.Do(func() { a.stop = make(chan struct{}) })
	return a.stop
}

// SetFaults says how it fails; see [Faults.Set].
func (a *answers) SetFaults(decide func(n int) Fault) { a.Faults.Set(decide) }

// Close ends answers that hang.
func (a *answers) Close() { close(a.stopped()) }

// before gives the answer of a fault that accepts nothing, and reports whether
// it did.
func (a *answers) before(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	switch fault {
	case HangBefore:
		a.hang(r)
	case ResetBefore:
		reset(w)
	case Redirect:
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

// after gives the answer of a fault to what was accepted, and reports whether
// it did.
func (a *answers) after(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	switch fault {
	case HangAccepted:
		a.hang(r)
	case ResetAccepted, CutAfterOK:
		reset(w)
	case SlowAccepted:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(`{"id":"`))
		_ = http.NewResponseController(w).Flush()
		a.hang(r)
	case Garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>it works</html>"))
	case ServerError:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		return false
	}
	return true
}

func (a *answers) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-a.stopped():
	}
	panic(http.ErrAbortHandler)
}

func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
