package file

import (
	"regexp"
	"strings"
	"time"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/document"
)

var (
	aRate  = regexp.MustCompile(`^[0-9]{1,7}(\.[0-9]{1,6})?/(s|min|h)$`)
	hours  = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$`)
	share  = regexp.MustCompile(`^[0-9]{1,2}(\.[0-9]{1,4})?%$`)
	mostOf = 90 * 24 * time.Hour // a step of a ramp
)

// window reads when and how fast a run goes. What its zone is the database knows.
func (r *reader) window(s *document.Section) {
	q := &r.file.Request
	q.IfPassed = campaign.IfPassed(s.Choice("if_passed", string(campaign.AtOnce), string(campaign.NextDay), string(campaign.Skip)))
	if s.Has("quiet_hours") {
		if q.QuietHours = s.Text("quiet_hours"); !hours.MatchString(q.QuietHours) {
			s.Keyf("quiet_hours", "%q is not such as \"22:00-08:00\"", q.QuietHours)
		}
	}
	q.Zone = r.short(s, "zone")
	q.Rate = rate(s, "rate")
	e, ok := s.Entry("ramp")
	if !ok {
		return
	}
	if q.Rate == "" {
		s.Problemf(e.Line, "ramp", "a ramp leads up to a rate: give that, too")
	}
	q.Ramp = &campaign.Ramp{}
	if e.Value.Kind != document.List {
		if sub := s.Sub("ramp"); sub != nil {
			q.Ramp.From, q.Ramp.Every = rate(sub, "from"), sub.Duration("every", time.Second, mostOf)
			if !sub.Has("from") || !sub.Has("every") {
				s.Problemf(e.Line, "ramp", "it is such as {from: 1/s, every: 1h}, or a list such as [{rate: 100/h, for: 24h}]")
			}
			sub.Done()
		}
		return
	}
	for _, item := range e.Value.Items {
		step := s.Section(document.Entry{Line: max(e.Line, item.Line), Value: item}, "ramp")
		if step == nil {
			continue
		}
		q.Ramp.Steps = append(q.Ramp.Steps, campaign.Step{Rate: rate(step, "rate"), For: step.Duration("for", time.Second, mostOf)})
		if !step.Has("rate") || !step.Has("for") {
			s.Problemf(step.Line, "ramp", "a step is such as {rate: 100/h, for: 24h}")
		}
		step.Done()
	}
}

func rate(s *document.Section, key string) string {
	if !s.Has(key) {
		return ""
	}
	v := s.Text(key)
	if !aRate.MatchString(v) {
		s.Keyf(key, "%q is not such as 10/s, 600/min or 5000/h", v)
	}
	return v
}

// pauseOn reads when a run pauses itself.
func (r *reader) pauseOn(s *document.Section) {
	e, ok := s.Entry("pause_on")
	if !ok {
		return
	}
	sub := s.Sub("pause_on")
	if sub == nil {
		return
	}
	on := &campaign.PauseOn{}
	for key, to := range map[string]*string{"failed": &on.Failed, "complained": &on.Complained} {
		if !sub.Has(key) {
			continue
		}
		if *to = sub.Text(key); !share.MatchString(*to) || strings.Trim(*to, "0.%") == "" {
			sub.Keyf(key, "%q is not a share over 0%% and below 100%%, such as 5%% or 0.3%%", *to)
		}
	}
	if sub.Has("from") {
		on.From = sub.Number("from", 1, 999_999_999)
	}
	if on.Failed == "" && on.Complained == "" {
		s.Problemf(e.Line, "pause_on", "it is such as {failed: 5%%, complained: 0.3%%, from: 200}, with failed, complained, or both")
	}
	sub.Done()
	r.file.Request.PauseOn = on
}
