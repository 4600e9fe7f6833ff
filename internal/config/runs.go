package config

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/document"
	"github.com/deedhq/deed/tenant"
)

// Runs is what relays do for runs of workflow plans; zero values are the engine's own.
type Runs struct {
	Project     bool          // the section is there: they keep the snapshots
	Retention   time.Duration // how long runs are kept that have ended; 0: for ever
	PlanHosts   []string      // from which deed plan put takes plans, by https
	Enabled     bool          // they do steps that need no Go code
	Concurrency int
	Lease       time.Duration
	AllowHosts  []string // which steps of kind http may call though they are not public
	Secrets     []RunSecret
	Journal     string // for announcements past the budget; "": none
	StateStore  StateStore
}

// StateStore is R14's section, under the names of seed 001 §5; nil and 0 are the engine's own.
type StateStore struct {
	WriteLatencyBudget    time.Duration
	FailOpenForEventClass []string
	NeverFailOpen         []string
}

// RunSecret says where the value of a reference of plans is, for a tenant and an environment, or for all.
type RunSecret struct {
	Ref         string // secret://NAME
	Tenant      *tenant.ID
	Environment string
	From        string // env:NAME or file:PATH, which is read at each attempt
}

func (s *section) runs() Runs {
	r := Runs{
		Project: true, Retention: s.Duration("retention", 24*time.Hour, 100*365*24*time.Hour),
		Enabled: s.truth("enabled"), Concurrency: s.Number("concurrency", 1, 1000), Lease: s.Duration("lease", time.Second, 24*time.Hour),
	}
	if p := s.sub("plans"); p != nil {
		p.Texts("hosts", func(v string, line int) {
			if u, err := url.Parse("https://" + v); err != nil || u.Host != v || strings.Contains(v, "@") {
				p.Problemf(line, document.Join(p.Path, "hosts"), "%q is not a host such as plans.example, or a host and a port", v)
			}
			r.PlanHosts = append(r.PlanHosts, v)
		})
		p.Done()
	}
	if h := s.sub("http"); h != nil {
		h.Texts("allow_hosts", func(v string, line int) {
			if !isHostEntry(v) {
				h.Problemf(line, document.Join(h.Path, "allow_hosts"), "%q is not a host name, IP address or CIDR range", v)
			}
			r.AllowHosts = append(r.AllowHosts, v)
		})
		h.Done()
	}
	if sub := s.sub("secrets"); sub != nil {
		for _, e := range sub.Node.Entries {
			r.Secrets = append(r.Secrets, sub.runSecret(e)...)
		}
	}
	if r.Journal = s.Text("journal"); r.Journal != "" && !filepath.IsAbs(r.Journal) {
		r.Journal = filepath.Join(filepath.Dir(s.reader.File), r.Journal)
	}
	if sub := s.sub("stateStore"); sub != nil {
		r.StateStore = sub.stateStore()
	}
	s.Done()
	return r
}

// stepEnds are the types of events that end an attempt of a step.
var stepEnds = []string{"StepCompleted", "StepFailed", "StepSkipped"}

func (s *section) stateStore() StateStore {
	const open, never = "failOpenForEventClass", "neverFailOpen"
	store := StateStore{WriteLatencyBudget: time.Duration(s.Number("writeLatencyBudgetMs", 10, 3_600_000)) * time.Millisecond}
	s.Texts(never, func(v string, line int) {
		if v != "StepStarted" && !slices.Contains(stepEnds, v) {
			s.Problemf(line, document.Join(s.Path, never), "%q is none of StepStarted, %s", v, strings.Join(stepEnds, ", "))
		}
		store.NeverFailOpen = append(store.NeverFailOpen, v)
	})
	if s.Has(open) {
		store.FailOpenForEventClass = []string{}
	}
	s.Texts(open, func(v string, line int) {
		switch {
		case slices.Contains(stepEnds, v):
			s.Problemf(line, document.Join(s.Path, open), "%s ends an attempt: it is stored, or the attempt has failed", v)
		case v != "StepStarted":
			s.Problemf(line, document.Join(s.Path, open), "%q: want StepStarted, or nothing", v)
		case slices.Contains(store.NeverFailOpen, v):
			s.Problemf(line, document.Join(s.Path, open), "%s is in %s, too", v, never)
		}
		store.FailOpenForEventClass = append(store.FailOpenForEventClass, v)
	})
	s.Done()
	return store
}

// secretName is what a plan's secret://NAME may have.
var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}$`) })

// runSecret reads where a secret's value is: a text, or a list of mappings, each for a tenant or an environment.
func (s *section) runSecret(e document.Entry) (list []RunSecret) {
	path := document.Join(s.Path, e.Key)
	if !secretName().MatchString(e.Key) {
		s.Problemf(e.Line, path, "it is not the NAME of a secret://NAME")
	}
	switch n := s.Value(e, path); {
	case n == nil:
	case n.Kind == document.Text:
		list = append(list, RunSecret{From: s.secretSource(n, path)})
	case n.Kind == document.List:
		for _, item := range n.Items {
			one := s.Section.Section(document.Entry{Key: e.Key, Line: max(n.Line, item.Line), Value: item}, path)
			if one == nil {
				continue
			}
			found := RunSecret{Environment: one.Text("environment")}
			if text := one.Text("tenant"); text != "" {
				id, err := tenant.Parse(text)
				if err != nil {
					one.Keyf("tenant", "not a tenant's id, a UUID; deed tenant list has them")
				}
				found.Tenant = &id
			}
			if from := one.Get("from"); from != nil {
				found.From = s.secretSource(from, document.Join(path, "from"))
			} else {
				one.Problemf(one.Line, path, "it has no from: env:NAME or file:PATH")
			}
			one.Done()
			list = append(list, found)
		}
	default:
		s.Problemf(n.Line, path, "want env:NAME or file:PATH, or a list such as [{from: \"env:NAME\", environment: test}]")
	}
	for i := range list {
		list[i].Ref = "secret://" + e.Key
	}
	return list
}

// secretSource checks a source, which is read when it is needed. What it refuses it does not repeat.
func (s *section) secretSource(n *document.Node, path string) string {
	if name, ok := strings.CutPrefix(n.Text, "env:"); ok && variableName.MatchString(name) {
		return n.Text
	}
	file, ok := strings.CutPrefix(n.Text, "file:")
	if n.Kind != document.Text || !ok || file == "" {
		s.Problemf(n.Line, path, "want env:NAME or file:PATH; a secret must not stand in the file itself")
		return ""
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(s.reader.File), file)
	}
	return "file:" + file
}
