package campaign

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed report.html
var reportText string

// reportPage escapes whatever it is given, by where it stands.
var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"time": func(at any) string {
		switch at := at.(type) {
		case time.Time:
			return at.UTC().Format("2006-01-02 15:04:05 UTC")
		case *time.Time:
			return at.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		return ""
	},
}).Parse(reportText))

// bar is a part of a chart that is 1,000 wide.
type bar struct {
	Name, Colour, Part string
	Count              int64
	X, Width           string
}

// HTML writes the report as a page that is whole by itself: tables, charts as inline SVG, no
// script, and nothing that is loaded from elsewhere. at is when it is written.
func (r Report) HTML(w io.Writer, at time.Time) error {
	return r.page(w, at, false)
}

// page writes it for a browser, or for mail programs, which show pictures that go with the mail and no SVG.
func (r Report) page(w io.Writer, at time.Time, mail bool) error {
	return reportPage.Execute(w, map[string]any{"Report": r, "At": at, "Members": r.memberBars(), "Heard": r.heardBars(), "Why": r.why(), "Mail": mail})
}

func (r Report) memberBars() (bars []bar) {
	p := r.Progress
	x := 0.0
	for _, b := range []bar{
		{Name: "sent", Count: p.Sent, Colour: "#2e7d32"},
		{Name: "skipped", Count: p.Skipped, Colour: "#9e9e9e"},
		{Name: "missed: cancelled or expired", Count: p.Missed, Colour: "#f9a825"},
		{Name: "failed", Count: p.Failed, Colour: "#c62828"},
		{Name: "dead", Count: p.Dead, Colour: "#6a1b9a"},
		{Name: "lost", Count: p.Lost, Colour: "#000000"},
		{Name: "being sent", Count: p.Sending, Colour: "#1565c0"},
		{Name: "queued", Count: p.Queued + p.Waiting, Colour: "#90caf9"},
	} {
		if b.Count == 0 || r.Members == 0 {
			continue
		}
		part := float64(b.Count) / float64(r.Members)
		b.X, b.Width, b.Part = units(x), units(part), percent(part)
		x += part
		bars = append(bars, b)
	}
	return bars
}

func (r Report) heardBars() []bar {
	if r.Rates == nil {
		return nil
	}
	h, of := r.Heard, r.Rates
	bars := []bar{
		{Name: "delivered", Count: h.Delivered, Colour: "#2e7d32", Width: units(of.Delivered), Part: percent(of.Delivered)},
		{Name: "opened", Count: h.Opened, Colour: "#1565c0", Width: units(of.Opened), Part: percent(of.Opened)},
		{Name: "clicked", Count: h.Clicked, Colour: "#1565c0", Width: units(of.Clicked), Part: percent(of.Clicked)},
		{Name: "unsubscribed", Count: h.Unsubscribed, Colour: "#f9a825", Width: units(of.Unsubscribed), Part: percent(of.Unsubscribed)},
		{Name: "bounced", Count: h.Bounced, Colour: "#c62828", Width: units(of.Bounced), Part: percent(of.Bounced)},
		{Name: "complained", Count: h.Complained, Colour: "#c62828", Width: units(of.Complained), Part: percent(of.Complained)},
	}
	return bars
}

func (r Report) why() (list []Reason) {
	list = append(list, r.Skipped...)
	for _, f := range r.Failed {
		why := "no request could be made"
		if f.Outcome != "" {
			why = f.Outcome
		}
		if f.Code != "" {
			why += ", code " + f.Code
		}
		list = append(list, Reason{Status: f.Status, Reason: why, Count: f.Count})
	}
	return list
}

// units are those of a chart.
func units(part float64) string { return fmt.Sprintf("%.2f", 1000*min(part, 1)) }

func percent(part float64) string { return fmt.Sprintf("%.2f%%", 100*part) }
