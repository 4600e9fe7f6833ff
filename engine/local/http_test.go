package local_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/crash/harness"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// shop is a service that counts what it was asked for, by key, and answers a repeat as the first request.
type shop struct {
	*httptest.Server
	mu     sync.Mutex
	calls  map[string]int // by key
	order  []string       // the keys, as they came
	answer func(n int, w http.ResponseWriter, r *http.Request)
}

func newShop(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *shop {
	s := &shop{calls: map[string]int{}, answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		s.mu.Lock()
		s.calls[key]++
		s.order = append(s.order, key)
		n := len(s.order)
		s.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.order...)
}

var allowed = local.Options{AllowHosts: []string{"127.0.0.1"}}

// A step of kind http makes one request under the step's key, and later steps see the answer.
func TestEngine_Requests(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	type seen struct{ Method, Path, Query, Type, Extra, Body string }
	var mu sync.Mutex
	var got []seen
	s := newShop(t, func(n int, w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), r.Header.Get("X-Extra"), string(body)})
		switch r.URL.Path {
		case "/orders/o7":
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			fmt.Fprint(w, `{"id": 7, "paid": true}`)
		case "/large":
			fmt.Fprint(w, strings.Repeat("x", 20<<10))
		case "/nul":
			fmt.Fprint(w, "a\x00b")
		}
	})
	put(t, db, `
plan: p
version: "1"
steps:
  order: {kind: http, method: PUT, url: "`+s.URL+`/orders/${input.order}?n=${input.n}", headers: {x-extra: "${input.n}", idempotency-key: mine}, body: {amount: "${input.n}"}}
  large: {kind: http, after: [order], url: "`+s.URL+`/large"}
  nul:   {kind: http, after: [large], url: "`+s.URL+`/nul", body: "hello ${input.n}"}
  told:  {kind: publish, after: [order, large, nul], topic: told, payload: {order: "${steps.order.output}", large: "${steps.large.output}", nul: "${steps.nul.output}"}}
`)
	serve(t, db, allowed)
	id := start(t, db, "a", map[string]any{"order": "o7", "n": 3})
	want(t, "the run", ended(t, db, id), "COMPLETED")
	mu.Lock()
	defer mu.Unlock()
	want(t, "requests", len(got), 3)
	want(t, "the first", got[0], seen{"PUT", "/orders/o7", "n=3", "application/json", "3", `{"amount":3}`})
	want(t, "the second", got[1], seen{Method: "GET", Path: "/large"})
	want(t, "the third", got[2], seen{"POST", "/nul", "", "text/plain; charset=utf-8", "", "hello 3"})
	want(t, "the key", s.keys()[0], pgtest.One[string](t, db.Pool(pgtest.Owner), `select encode(deed.idempotency_key($1, 'order', '1'), 'hex')`, id))
	want(t, "what later steps see", pgtest.One[string](t, db.Pool(pgtest.Owner), `select convert_from(payload, 'UTF8')::jsonb::text from deed.log where topic = 'told'`),
		`{"nul": {"status": 200, "body_omitted": true}, "large": {"status": 200, "body_omitted": true}, "order": {"body": {"id": 7, "paid": true}, "status": 200}}`)
}

// A header is the text of what was computed, as a URL is, of a request and of a message: no number loses a digit.
func TestEngine_HeadersAreTexts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var header http.Header
	s := newShop(t, func(_ int, _ http.ResponseWriter, r *http.Request) { header = r.Header.Clone() })
	headers := `{x-n: "${input.n}", x-large: "${input.large}", x-half: "${0.5}", x-yes: "${true}", x-who: "${input.who}", x-none: "${null}", x-text: "n ${input.n}"}`
	put(t, db, `
plan: p
version: "1"
steps:
  ask:  {kind: http, url: "`+s.URL+`/", headers: `+headers+`}
  tell: {kind: publish, after: [ask], topic: told, payload: 1, headers: `+headers+`}
`)
	serve(t, db, allowed)
	id := start(t, db, "a", map[string]any{"n": 1234567, "large": 9007199254740993, "who": map[string]any{"name": "Ann"}})
	want(t, "the run", ended(t, db, id), "COMPLETED")
	for name, text := range map[string]string{"x-n": "1234567", "x-large": "9007199254740993", "x-half": "0.5", "x-yes": "true", "x-who": `{"name":"Ann"}`, "x-none": "", "x-text": "n 1234567"} {
		want(t, "of the request "+name, header.Get(name), text)
		want(t, "of the message "+name, pgtest.One[string](t, db.Pool(pgtest.Owner), `select headers ->> $1 from deed.log where topic = 'told'`, name), text)
	}

	// One with a line end in it is none, however often it is tried. It names the header, and repeats no value.
	put(t, db, `{plan: p, version: "2", steps: {ask: {kind: http, url: "`+s.URL+`/", headers: {x-n: "${input.n}"}, retry: {attempts: 3, backoff: 1ms}}}}`)
	broken, err := run.Start(t.Context(), db.Pool(pgtest.App), run.Request{Plan: "p", Version: "2", ID: "a", Input: map[string]any{"n": "canary\r\nx-other: 1"}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, broken.ID), "FAILED")
	want(t, "why", errorOf(t, db, broken.ID, "ask"), "CONDITION_ERROR")
	said := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(l.event_data -> 'error' ->> 'message', '; ') from deed.run_log l where l.run_id = $1::text::uuid and l.event_type = 'StepFailed'`, broken.ID)
	want(t, "what it says, once", said, `CONDITION_ERROR: headers: what was computed for "x-n" has a line end, or another character that no header can have`)
	want(t, "requests", len(s.keys()), 1)
}

// What a run is given stays where a plan's URL has it, and chooses no other endpoint.
func TestEngine_AnExpressionStaysInItsPartOfTheURL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var mu sync.Mutex
	got := map[string]string{}
	s := newShop(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[r.Header.Get("X-Step")] = r.RequestURI
	})
	urls := map[string]struct{ url, requested string }{
		"close":   {"/orders/${input.order}/close", "/orders/7%2F..%2F..%2Fadmin%2Fusers%2F1%3Fdelete=1%23/close"},
		"query":   {"/orders?of=${input.who}&n=${input.n}", "/orders?of=a+b%26admin%3D1%23&n=7"},
		"both":    {"/${input.n}-${input.who}?${input.order}=${input.who}", "/7-a%20b&admin=1%23?7%2F..%2F..%2Fadmin%2Fusers%2F1%3Fdelete%3D1%23=a+b%26admin%3D1%23"},
		"alone":   {"?of=${input.who}", "/?of=a+b%26admin%3D1%23"},
		"object":  {"/o/${input.of}", "/o/%7B%22a%22:%22%2F%22%7D"},
		"written": {"/a/../b/.${input.n}/${input.hidden}${input.n}", "/a/../b/.7/.7"},
		"hex":     {"/%${input.hex}?${input.dots}", "/%41?.."},
		"dots":    {"/orders/${input.dots}/close", ""},
		"dot":     {"/orders/${input.hidden}", ""},
		"joined":  {"/orders/.${input.hidden}?a", ""},
		"halves":  {"/orders/${input.hidden}${input.hidden}/close", ""},
		"escapes": {"/orders/%2${input.e}", ""},
	}
	steps := ""
	for name, u := range urls {
		steps += fmt.Sprintf("%s: {kind: http, url: %q, headers: {x-step: %s}, retry: {attempts: 3, backoff: 1ms}}, ", name, s.URL+u.url, name)
	}
	put(t, db, `{plan: p, version: "1", steps: {`+steps+`last: {kind: sleep, for: 1ms}}}`)
	serve(t, db, allowed)
	id := start(t, db, "a", map[string]any{"order": "7/../../admin/users/1?delete=1#", "who": "a b&admin=1#", "n": 7, "of": map[string]any{"a": "/"}, "dots": "..", "hidden": ".", "hex": "41", "e": "e"})
	want(t, "the run", ended(t, db, id), "FAILED")
	mu.Lock()
	defer mu.Unlock()
	for name, u := range urls {
		want(t, name, got[name], u.requested)
		want(t, "why it has failed: "+name, errorOf(t, db, id, name), map[bool]string{true: "CONDITION_ERROR"}[u.requested == ""])
	}
}

// Plans that were stored before their headers were looked at are loaded as ever: of two headers that differ in letters alone
// the same one is sent at each attempt, under the same key, and one that no request can have is not tried again.
func TestEngine_HeadersOfPlansOfBefore(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var mu sync.Mutex
	got := map[string]int{}
	s := newShop(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		got[r.Header.Get("X-A")+r.Header.Get("X-B")]++
		mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
	})
	body := `{"plan":"p","steps":{"a":{"headers":{"Host":"h","X-A":"1","X-B":"1","x-A":"2","x-B":"2","x-a":"3","x-b":"3"},"kind":"http","retry":{"attempts":12,"backoff":"1ms"},"url":"` + s.URL + `/"},` +
		`"b":{"headers":{"x y":"1"},"kind":"http","retry":{"attempts":3,"backoff":"1ms"},"url":"` + s.URL + `/"}},"version":"1"}`
	db.Exec(t, pgtest.App, `select deed.put_plan($1, null, null)`, []byte(body))
	serve(t, db, allowed)
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why a has failed", errorOf(t, db, id, "a"), "HTTP_500")
	want(t, "why b has failed", errorOf(t, db, id, "b"), "CONDITION_ERROR")
	mu.Lock()
	defer mu.Unlock()
	want(t, "requests", fmt.Sprint(got), "map[33:12]")
}

// A request that was done has succeeded whatever it is answered with: a body that is JSON, and that the database does not take, is left out.
func TestEngine_RequestsWhoseBodyCannotBeKept(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bodies := map[string]string{"half": `{"name": "\ud83d"}`, "vast": `{"n": 1e200000}`, "long": `{"n": 1e70000}`, "deep": strings.Repeat("[", 1001) + strings.Repeat("]", 1001)}
	s := newShop(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, bodies[strings.TrimPrefix(r.URL.Path, "/")])
	})
	text := `{plan: p, version: "1", steps: {`
	for name := range bodies {
		text += name + `: {kind: http, method: POST, url: "` + s.URL + `/` + name + `"}, `
	}
	put(t, db, text+`last: {kind: sleep, for: 1ms, after: [half, vast, long, deep]}}}`)
	serve(t, db, allowed)
	id := start(t, db, "a", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "requests", len(s.keys()), len(bodies))
	for name := range bodies {
		want(t, "output of "+name, outputOf(t, db, id, name), `{"status": 200, "body_omitted": true}`)
		want(t, "why it has failed: "+name, errorOf(t, db, id, name), "")
	}
	sound(t, db)
}

// What is known to have done nothing is tried again under another key; what may have been done keeps its key, also if a
// later request is refused, which says nothing of the one before (R5). At most once is asked of a person.
func TestContract_R5_ARequestKeepsItsKeyWhileItMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	const redirect, cut = 302, -1
	for _, test := range []struct {
		what    string
		answers []int
		keys    string // by number
		once    bool
		code    string // of the last failure
		status  string
	}{
		{"refused", []int{402, 200}, "1 2", false, "HTTP_402", "COMPLETED"},
		{"failed", []int{500, 200}, "1 1", false, "HTTP_500", "COMPLETED"},
		{"cut", []int{cut, 200}, "1 1", false, "HTTP_CUT", "COMPLETED"},
		{"failed, then refused", []int{500, 429, 200}, "1 1 1", false, "HTTP_429", "COMPLETED"},
		{"refused, then failed", []int{429, 500, 200}, "1 2 2", false, "HTTP_500", "COMPLETED"},
		{"under way", []int{409, 200}, "1 1", false, "HTTP_409", "COMPLETED"},
		{"redirected", []int{redirect}, "1", false, "HTTP_302", "FAILED"},
		{"never", []int{400, 400, 400}, "1 2 3", false, "HTTP_400", "FAILED"},
		{"once, refused", []int{429, 200}, "1 2", true, "HTTP_429", "COMPLETED"},
		{"once, failed", []int{503}, "1", true, "OUTCOME_UNKNOWN", "RUNNING"},
		{"once, cut", []int{cut}, "1", true, "OUTCOME_UNKNOWN", "RUNNING"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := newShop(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				switch code := test.answers[min(n, len(test.answers))-1]; code {
				case cut:
					panic(http.ErrAbortHandler)
				case redirect:
					w.Header().Set("Location", "/elsewhere")
					fallthrough
				default:
					w.WriteHeader(code)
				}
			})
			guarantee := map[bool]string{true: "at_most_once", false: "at_least_once"}[test.once]
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, method: POST, url: "`+s.URL+`", guarantee: `+guarantee+`, retry: {attempts: 3, backoff: 1ms}}}}`)
			serve(t, db, allowed)
			id := start(t, db, "a", nil)
			if test.status == "RUNNING" {
				eventually(t, "a person to be asked", func() bool {
					return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`) == 1
				})
			} else {
				want(t, "the run", ended(t, db, id), test.status)
			}
			want(t, "the failure", errorOf(t, db, id, "a"), test.code)
			var numbers []string
			for _, key := range s.keys() {
				numbers = append(numbers, pgtest.One[string](t, db.Pool(pgtest.Owner), `
					select coalesce((select n::text from generate_series(1, 9) n where encode(deed.idempotency_key($1, 'a', n::text), 'hex') = $2), 'none')`, id, key))
			}
			want(t, "keys", strings.Join(numbers, " "), test.keys)
		})
	}
}

// A request without a body is made once also over a connection that an earlier step has left: net/http repeats none for
// its key (R5).
func TestEngine_ARequestWithoutABodyIsMadeOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newShop(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler) // it was done, and its answer is lost
		}
	})
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, url: "`+s.URL+`"}, b: {kind: http, method: POST, url: "`+s.URL+`", guarantee: at_most_once, after: [a]}}}`)
	serve(t, db, allowed)
	id := start(t, db, "a", nil)
	eventually(t, "a person to be asked", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`) == 1
	})
	want(t, "the failure", errorOf(t, db, id, "b"), "OUTCOME_UNKNOWN")
	want(t, "requests", len(s.keys()), 2)
}

// A request that is to change nothing is made once, too, where that was said, though net/http repeats it over a connection
// that an earlier one has left (R5).
func TestEngine_ARequestThatChangesNothingIsMadeOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newShop(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler) // it was done, and its answer is lost
		}
	})
	once := `: {kind: http, guarantee: at_most_once, `
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, url: "`+s.URL+`"}, b`+once+`url: "`+s.URL+`", after: [a]}, `+
		`c`+once+`url: "`+s.URL+`/lost", after: [b]}, d`+once+`method: HEAD, url: "`+s.URL+`/lost", after: [b]}}}`)
	serve(t, db, allowed)
	id := start(t, db, "a", nil)
	eventually(t, "a person to be asked of both", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where verdict = 'HOLD_OVER'`) == 2
	})
	want(t, "the failures", errorOf(t, db, id, "c")+" "+errorOf(t, db, id, "d"), "OUTCOME_UNKNOWN OUTCOME_UNKNOWN")
	want(t, "requests", len(s.keys()), 4)
}

// A time-out is one that may have been done; an address that is not public is not called; a host that nobody answers
// for did nothing.
func TestEngine_RequestsThatDoNotArrive(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	s := newShop(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(hang) })
	for _, test := range []struct {
		what, url, timeout, code string
		allow                    []string
	}{
		{"a time-out", s.URL, "100ms", "TIMEOUT", []string{"127.0.0.1"}},
		{"not allowed", s.URL, "1m", "HTTP_HOST_NOT_ALLOWED", nil},
		{"nobody there", "http://127.0.0.1:1", "1m", "HTTP_UNREACHABLE", []string{"127.0.0.1"}}, // a port that no other test gets
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, url: "`+test.url+`", timeout: `+test.timeout+`}}}`)
			serve(t, db, local.Options{AllowHosts: test.allow})
			id := start(t, db, "a", nil)
			want(t, "the run", ended(t, db, id), "FAILED")
			want(t, "why", errorOf(t, db, id, "a"), test.code)
		})
	}
}

// An engine that is killed around a request: the other end sees each step's under one key, so it is done once, and none is
// forgotten; what must not be repeated is asked for once, or a person is asked (R5).
func TestContract_R5_ARequestIsKilledAnywhere(t *testing.T) {
	t.Parallel()
	program := harness.Build(t, "github.com/deedhq/deed/internal/crash/stepper")
	for _, point := range []string{"requesting:1", "requested:1", "requested:4", "requesting:5"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			s := newShop(t, func(_ int, w http.ResponseWriter, r *http.Request) {
				_ = json.NewEncoder(w).Encode(map[string]string{"key": cmp.Or(r.Header.Get("Idempotency-Key"), "none")})
			})
			put(t, db, `
plan: p
version: "1"
steps:
  charge: {kind: http, method: POST, url: "`+s.URL+`/charge"}
  once:   {kind: http, method: POST, url: "`+s.URL+`/once", after: [charge], guarantee: at_most_once}
`)
			var runs []string
			for _, id := range []string{"a", "b", "c"} {
				runs = append(runs, start(t, db, id, nil))
			}
			program.Start(t, point, "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker)).Crashed(t, nameOf(point), pgtest.Patience)
			again := program.Start(t, "", "VICTIM_DATABASE_URL="+db.URL(pgtest.Worker))
			owner := db.Pool(pgtest.Owner)
			eventually(t, "all that can be done to be done", func() bool {
				return pgtest.One[bool](t, owner, `select not exists (select from deed.run_steps where verdict is distinct from 'HOLD_OVER')`)
			})
			again.Stop()
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, id := range runs {
				key := func(step string) string {
					return pgtest.One[string](t, owner, `select encode(deed.idempotency_key($1, $2, '1'), 'hex')`, id, step)
				}
				want(t, "charged", s.calls[key("charge")] > 0, true)
				once, failure := s.calls[key("once")], errorOf(t, db, id, "once")
				if once != 1 && failure == "" || once > 1 || failure != "" && failure != "OUTCOME_UNKNOWN" {
					t.Errorf("run %s: what must not be repeated was asked for %d times, and has %q", id, once, failure)
				}
			}
			want(t, "keys are those of the steps alone", len(s.calls) <= 6, true)
		})
	}
}

// A claim of which nothing was called, as where the plan could not be read, is no attempt: a refusal in the first request is for certain (R5).
func TestContract_R5_AClaimThatNeverBeganIsNoAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newShop(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader([]int{http.StatusPaymentRequired, http.StatusOK}[min(n, 2)-1])
	})
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: http, method: POST, url: "`+s.URL+`", retry: {attempts: 2, backoff: 1ms}}}}`)
	id := start(t, db, "a", nil)
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `lock table deed.plans in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	// The deadline is of all that the engine asks: a claim that was cut off would be a lost one.
	e, _ := serve(t, db, local.Options{AllowHosts: allowed.AllowHosts, Deadline: 15 * time.Second})
	eventually(t, "the step to be given back", func() bool { return e.Stats().Released > 0 })
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, "the run", ended(t, db, id), "COMPLETED")
	if keys := s.keys(); len(keys) != 2 || keys[0] == keys[1] {
		t.Errorf("keys: %v", keys)
	}
	want(t, "attempts", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(logical_attempt || ' ' || engine_attempt, ', ' order by run_seq) from deed.run_log where event_type in ('StepFailed', 'StepCompleted')`), "1 1, 2 1")
}
