package plan

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/internal/header"
)

// MaxBytes is how large a plan may be, as a file and in its canonical form.
const MaxBytes = document.MaxBytes

// maxProblems is how many of a plan's problems are said.
const maxProblems = 100

// MaxSteps is how many steps a plan may have.
const MaxSteps = 1000

var (
	idForm     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,99}$`)
	planForm   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)
	secretForm = regexp.MustCompile(`^secret://[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}$`)
)

// Parse reads a plan, in YAML or JSON; name is the file's. An [deed.Invalid] error joins the
// problems, the first hundred, in the order of their lines, each a line such as
//
//	ship.yaml:12: steps.mail.after: no step is called "chrage" (did you mean "charge"?)
func Parse(name string, data []byte) (*Plan, error) {
	return parse(name, data, false)
}

// parse is [Parse]; of a plan that was stored before its headers were looked at they are not.
func parse(name string, data []byte, stored bool) (*Plan, error) {
	r := &reader{Reader: &document.Reader{File: name, Most: maxProblems}, plan: &Plan{}, stored: stored}
	if root := r.Parse(data, "a plan has plan, version and steps", "plan, version and steps"); root != nil {
		r.read(root)
	}
	if err := r.Err(); err != nil {
		return nil, &deed.Error{Op: "read plan", Code: deed.Invalid, Err: err}
	}
	return r.plan, nil
}

// reader reads one plan.
type reader struct {
	*document.Reader
	plan   *Plan
	stored bool
	uses   []use
	unread map[string]bool // steps of which a problem left nothing to look at

	expressions int // compiled so far
}

// use is an expression's mention of a step, and of what of it.
type use struct {
	of   *Step
	step string
	asks string // status, output or error; or "" for all of them
	line int
	path string
}

func (r *reader) read(root *document.Node) {
	s := &document.Section{Reader: r.Reader, Line: 1, Node: root}
	p := r.plan
	p.ID, p.Version = r.name(s, "plan"), r.name(s, "version")
	p.Approval = s.Choice("approval", "person") != ""
	r.onFailure(s)
	if n := s.Get("params"); n != nil {
		if n.Kind != document.Mapping {
			s.Keyf("params", "want a mapping, got %s", n.Kind)
		}
		p.Params = r.json(n)
	}
	s.Sections("steps", func(name string, sub *document.Section) {
		if len(p.Steps) == MaxSteps {
			r.Problemf(sub.Line, sub.Path, "a plan has at most %d steps", MaxSteps)
		}
		p.Steps = append(p.Steps, r.step(name, sub))
	})
	if !s.Has("steps") || len(p.Steps) == 0 {
		s.Keyf("steps", "a plan has a step at least")
	}
	s.Done()
	r.unread = map[string]bool{}
	if e, ok := root.Entry("steps"); ok {
		for _, step := range e.Value.Entries {
			r.unread[step.Key] = step.Value.Kind != document.Mapping
		}
	}
	r.graph()
	whole := canonical{Reader: r.Reader}
	whole.node(root, "")
	p.body = whole.out.Bytes()
	if len(p.body) > MaxBytes {
		r.Problemf(1, "", "as JSON the plan has %d bytes; at most %d are possible", len(p.body), MaxBytes)
	}
	p.hash = sha256.Sum256(p.body)
	p.size += 1<<10*len(p.Steps) + 16*len(p.body)
}

// json is a part of the plan as JSON; what JSON does not have is reported with the whole.
func (r *reader) json(n *document.Node) []byte {
	c := canonical{Reader: &document.Reader{}}
	c.node(n, ".")
	return c.out.Bytes()
}

// name reads what a plan and its version may be called.
func (r *reader) name(s *document.Section, key string) string {
	if !s.Has(key) {
		s.Problemf(1, key, "a plan has plan, its name, and version")
		return ""
	}
	v := s.Text(key)
	if v != "" && !planForm.MatchString(v) {
		s.Keyf(key, "want 1 to 100 of A-Z a-z 0-9 . _ -, not beginning with . or -")
	}
	return v
}

func (r *reader) onFailure(s *document.Section) {
	n, _ := s.Entry("on_failure")
	if n.Value != nil && n.Value.Kind == document.Mapping {
		if hold := s.Sub("on_failure"); hold != nil {
			r.plan.Hold = hold.Duration("hold", time.Minute, 365*24*time.Hour)
			if !hold.Has("hold") {
				hold.Problemf(hold.Line, hold.Path, "want fail, or how long a run waits for a person, such as {hold: 24h}")
			}
			hold.Done()
		}
		return
	}
	s.Choice("on_failure", "fail")
}

// kindKeys are the keys that steps of a kind may have besides those of all; those of the
// first list they must have.
var kindKeys = map[Kind]struct{ must, may []string }{
	Go:       {[]string{"handler"}, []string{"with", "secrets", "guarantee"}},
	HTTP:     {[]string{"url"}, []string{"secrets", "method", "headers", "body", "guarantee"}},
	Publish:  {[]string{"topic", "payload"}, []string{"key", "type", "headers"}},
	Deliver:  {[]string{"channel", "provider", "to", "payload"}, []string{"wait"}},
	External: {[]string{"queue"}, []string{"with", "secrets", "guarantee"}},
	Sleep:    {nil, []string{"for", "until"}},
}

var kinds = []string{string(Go), string(HTTP), string(Publish), string(Deliver), string(External), string(Sleep)}

func (r *reader) step(name string, s *document.Section) *Step {
	st := &Step{ID: name, Attempts: 1, NeedsSuccess: true, Backoff: time.Second, fields: map[string]*value{}}
	if !idForm.MatchString(name) || name == "RUN" {
		s.Problemf(s.Line, s.Path, "a step's name is 1 to 100 of A-Z a-z 0-9 _ -, begins with a letter or _, and is not RUN")
	}
	if !s.Has("kind") {
		s.Problemf(s.Line, s.Path, "the step has no kind; there are %s", strings.Join(kinds, ", "))
	}
	st.Kind = Kind(s.Choice("kind", kinds...))
	r.common(st, s)
	if st.Kind == "" {
		return st // which other keys it may have is not known
	}
	keys := kindKeys[st.Kind]
	for _, key := range keys.must {
		if !s.Has(key) {
			s.Problemf(s.Line, s.Path, "a step of kind %s has %s", st.Kind, key)
		}
	}
	for _, key := range slices.Concat(keys.must, keys.may) {
		if s.Has(key) {
			r.key(st, s, key)
		}
	}
	if st.Kind == Sleep && s.Has("for") == s.Has("until") {
		s.Problemf(s.Line, s.Path, "a step of kind sleep has for: 24h or until: a time, one of them")
	}
	s.Done()
	return st
}

// common reads what steps of all kinds have.
func (r *reader) common(st *Step, s *document.Section) {
	named := map[string]bool{}
	s.Texts("after", func(v string, line int) {
		if named[v] {
			s.Problemf(line, document.Join(s.Path, "after"), "%q is named twice", v)
			return
		}
		named[v] = true
		st.After, st.afterLines = append(st.After, v), append(st.afterLines, line)
	})
	st.NeedsSuccess = s.Choice("needs", "success", "done") != "done"
	if s.Has("when") {
		if st.When = s.Text("when"); st.When != "" {
			st.when = r.condition(st, st.When, s.LineOf("when"), document.Join(s.Path, "when"))
		}
	}
	if retry := s.Sub("retry"); retry != nil {
		st.Attempts = max(1, retry.Number("attempts", 1, 100))
		if d := retry.Duration("backoff", time.Millisecond, 24*time.Hour); d > 0 {
			st.Backoff = d
		}
		retry.Done()
	}
	st.Timeout = s.Duration("timeout", time.Millisecond, 30*24*time.Hour)
}

// key reads a key that only some kinds have.
func (r *reader) key(st *Step, s *document.Section, key string) {
	path := document.Join(s.Path, key)
	switch key {
	case "handler":
		st.Handler = literal(s, key)
	case "queue":
		st.Queue = literal(s, key)
	case "topic":
		st.Topic = literal(s, key)
	case "channel":
		st.Channel = literal(s, key)
	case "provider":
		st.Provider = literal(s, key)
	case "method":
		st.Method = s.Choice(key, "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
	case "wait":
		st.WaitSent = s.Choice(key, "sent") != ""
	case "for":
		st.For = s.Duration(key, time.Millisecond, 10*365*24*time.Hour)
	case "guarantee":
		st.AtMostOnce = s.Choice(key, "at_least_once", "at_most_once") == "at_most_once"
	case "secrets":
		r.secrets(st, s)
	case "url":
		if v := s.Text(key); v != "" {
			r.url(s, v)
			st.fields[key] = r.value(st, s.Get(key), path)
			inURL(st.fields[key])
		}
	case "to", "key", "type", "until":
		if s.Text(key) != "" {
			st.fields[key] = r.value(st, s.Get(key), path)
		}
	case "headers":
		if h := s.Sub(key); h != nil {
			for _, e := range h.Node.Entries {
				h.Text(e.Key)
			}
			if st.Kind == HTTP && !r.stored {
				r.headers(h)
			}
			st.fields[key] = r.value(st, h.Node, path)
		}
	default: // with, payload, body: any JSON
		if n := s.Get(key); n != nil {
			if key == "with" && n.Kind != document.Mapping {
				s.Keyf(key, "want a mapping, got %s", n.Kind)
			}
			st.fields[key] = r.value(st, n, path)
		}
	}
}

// owned are the headers that net/http leaves out of what it is given, or takes for its own connection's.
var owned = []string{"host", "content-length", "transfer-encoding", "trailer", "connection", "keep-alive", "proxy-connection", "upgrade"}

// headers refuses those that no request can have, or of which it would not be known which one it has.
func (r *reader) headers(h *document.Section) {
	first := map[string]int{}
	for _, e := range h.Node.Entries {
		path, name := document.Join(h.Path, e.Key), strings.ToLower(e.Key)
		line, twice := first[name]
		switch {
		case !header.IsToken(e.Key):
			r.Problemf(e.Line, path, "no header can have this name")
		case slices.Contains(owned, name):
			r.Problemf(e.Line, path, "a request has it of its URL, its body or its connection: it cannot be chosen")
		case twice:
			r.Problemf(e.Line, path, "given twice, as the case of letters does not count; the first time in line %d", line)
		default:
			first[name] = e.Line
		}
	}
}

// literal reads a name, which no expression computes.
func literal(s *document.Section, key string) string {
	v := s.Text(key)
	if strings.Contains(v, "${") {
		s.Keyf(key, "it is a name, and cannot be computed")
	} else if len(v) > 200 {
		s.Keyf(key, "it is over 200 characters")
	}
	return v
}

// url refuses hosts that an expression would choose.
func (r *reader) url(s *document.Section, v string) {
	base, _, computed := strings.Cut(v, "${")
	scheme, rest, _ := strings.Cut(base, "://")
	u, err := url.Parse(sample(v))
	switch {
	case (scheme == "http" || scheme == "https") && computed && !strings.ContainsAny(rest, "/?#"):
		s.Keyf("url", "the host is written out: only what comes after it may be computed")
	case err != nil || scheme != "http" && scheme != "https" || u.Host == "" || u.User != nil:
		s.Keyf("url", "want http://… or https://…, without a user and a password")
	}
}

// sample is a text with 00 for each of its expressions, which is sound wherever a URL may have one, behind a %, too.
func sample(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		switch end := closing(rest); {
		case !found || end < 0 && !strings.HasSuffix(before, "$"):
			return out.String()
		case strings.HasSuffix(before, "$"): // $${, which is no expression
			out.WriteString("{")
			text = rest
		default:
			out.WriteString("00")
			text = rest[end+1:]
		}
	}
}

func (r *reader) secrets(st *Step, s *document.Section) {
	sub := s.Sub("secrets")
	if sub == nil {
		return
	}
	st.Secrets = map[string]string{}
	for _, e := range sub.Node.Entries {
		v := sub.Text(e.Key)
		switch {
		case v == "":
		case !secretForm.MatchString(v): // it may be the secret itself, and is not repeated
			sub.Keyf(e.Key, "want a reference such as secret://psp: a secret must not stand in the plan itself")
		case !idForm.MatchString(e.Key):
			sub.Keyf(e.Key, "a secret's name is 1 to 100 of A-Z a-z 0-9 _ -, and begins with a letter or _")
		default:
			st.Secrets[e.Key] = v
		}
	}
}

// graph checks what steps refer to, and that none waits for itself.
func (r *reader) graph() {
	steps := r.plan.Steps
	at, ids := map[string]int{}, make([]string, len(steps))
	for i, s := range steps {
		at[s.ID], ids[i] = i, s.ID
	}
	for _, s := range steps {
		for i, a := range s.After {
			if _, ok := at[a]; !ok && !r.unread[a] {
				r.Problemf(s.afterLines[i], "steps."+s.ID+".after", "no step is called %q%s", a, r.DidYouMean(a, ids))
			}
		}
	}
	before, circles := ancestors(steps, at)
	for _, circle := range circles {
		names := make([]string, len(circle)+1)
		for i := range names {
			names[i] = steps[circle[i%len(circle)]].ID
		}
		first := steps[circle[0]]
		r.Problemf(first.afterLines[slices.Index(first.After, names[1])], "steps."+names[0]+".after", "the steps wait for each other: %s", strings.Join(names, " after "))
	}
	for _, u := range r.uses {
		i, ok := at[u.step]
		switch {
		case r.unread[u.step]:
		case !ok:
			r.Problemf(u.line, u.path, "no step is called %q%s", u.step, r.DidYouMean(u.step, ids))
		case len(circles) > 0: // who waits for whom is not known
		case !before[at[u.of.ID]].has(i):
			r.Problemf(u.line, u.path, "step %q need not have ended by then: name it in after", u.step)
		default:
			u.of.use(u.step, u.asks)
		}
	}
}

// bits is a set of steps.
type bits []uint64

func (b bits) has(i int) bool { return b[i/64]>>(i%64)&1 == 1 }
func (b bits) set(i int)      { b[i/64] |= 1 << (i % 64) }

// ancestors are the steps that have ended before each, but for circles, of which it has those that share no step.
func ancestors(steps []*Step, at map[string]int) (before []bits, circles [][]int) {
	before = make([]bits, len(steps))
	state := make([]int, len(steps)) // 1: it is being looked at, 2: done
	inCircle := make([]bool, len(steps))
	var path []int
	var visit func(i int)
	visit = func(i int) {
		path, state[i] = append(path, i), 1
		before[i] = make(bits, (len(steps)+63)/64)
		for _, a := range steps[i].After {
			j, ok := at[a]
			if !ok {
				continue
			}
			switch state[j] {
			case 0:
				visit(j)
			case 1:
				circle := path[slices.Index(path, j):]
				if !slices.ContainsFunc(circle, func(k int) bool { return inCircle[k] }) {
					circles = append(circles, slices.Clone(circle))
					for _, k := range circle {
						inCircle[k] = true
					}
				}
				continue
			}
			before[i].set(j)
			for w := range before[j] {
				before[i][w] |= before[j][w]
			}
		}
		path, state[i] = path[:len(path)-1], 2
	}
	for i := range steps {
		if state[i] == 0 {
			visit(i)
		}
	}
	return before, circles
}

func invalidf(op, format string, args ...any) error {
	return &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(format, args...)}
}
