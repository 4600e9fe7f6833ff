package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/document"
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
	s.Done()
	return r
}
