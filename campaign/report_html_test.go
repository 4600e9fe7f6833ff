package campaign_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/campaign"
)

// A report is one page with nothing in it that runs or is loaded, whatever names, providers and
// services have written.
func TestReport_HTMLEscapesAll(t *testing.T) {
	t.Parallel()
	const evil = `"><script>alert(1)</script><img src=x onerror='a()'>{{ . }}]]>`
	end := time.Date(2026, 3, 20, 9, 0, 0, 0, time.UTC)
	r := campaign.Report{
		Run: campaign.Run{
			ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Name: evil, Status: campaign.Partial, Channel: campaign.Email, Provider: evil, Purpose: evil, RetryOf: evil,
			Members: 10, ScheduledFor: end, FinishedAt: &end,
		},
		Progress: campaign.Progress{Sent: 6, Skipped: 1, Missed: 1, Failed: 1, Dead: 1},
		Heard:    campaign.Heard{Delivered: 3, Clicked: 1},
		Rates:    &campaign.Rates{Delivered: 0.5, Clicked: 1. / 6},
		Skipped:  []campaign.Reason{{Status: "skipped", Reason: evil, Count: 1}},
		Failed:   []campaign.Failure{{Status: "failed", Outcome: evil, Code: evil, Count: 1}, {Status: "dead", Count: 1}},
	}
	var b bytes.Buffer
	if err := r.HTML(&b, end); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, part := range []string{`<rect x="0.00" y="0" width="600.00"`, `<rect x="600.00" y="0" width="100.00"`, "60.00%", "16.67%", "no request could be made", "ended 2026-03-20 09:00:00 UTC"} {
		if !strings.Contains(text, part) {
			t.Errorf("it lacks %s:\n%s", part, text)
		}
	}
	for _, bad := range []string{"<script", "<img", "http://", "https://", "url(", "<link"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s is in it:\n%s", bad, text)
		}
	}
	d := xml.NewDecoder(strings.NewReader(strings.NewReplacer("<!doctype html>", "", `<meta charset="utf-8">`, "", `initial-scale=1">`, `initial-scale=1"/>`, `'unsafe-inline'">`, `'unsafe-inline'"/>`).Replace(text)))
	d.Entity = xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("its tags do not close: %v\n%s", err, text)
		}
		start, _ := token.(xml.StartElement)
		for _, a := range start.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" || a.Name.Local == "href" {
				t.Errorf("%s has %s", start.Name.Local, a.Name.Local)
			}
		}
	}
	if err := (campaign.Report{}).HTML(&b, end); err != nil {
		t.Error(err)
	}
}
