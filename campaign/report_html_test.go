package campaign_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"image/png"
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

// The report of a run that ended while it was paused does not call it paused; that of one that goes on does.
func TestReport_HTMLPaused(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 20, 9, 0, 0, 0, time.UTC)
	for status, ended := range map[campaign.Status]*time.Time{campaign.Running: nil, campaign.Completed: &at} {
		var b bytes.Buffer
		if err := (campaign.Report{Run: campaign.Run{Status: status, PausedAt: &at, FinishedAt: ended}}).HTML(&b, at); err != nil {
			t.Fatal(err)
		}
		want(t, "whether a run that is "+string(status)+" is paused", strings.Contains(b.String(), string(status)+", paused"), ended == nil)
	}
}

// The report as an e-mail has each chart as a picture that its text names, nothing that is loaded, and the page beside it.
func TestReport_Email(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 20, 9, 0, 0, 0, time.UTC)
	r := campaign.Report{
		Run:      campaign.Run{ID: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Name: "spring\n<script>", Status: campaign.Completed, Channel: campaign.Email, Members: 4, ScheduledFor: at},
		Progress: campaign.Progress{Sent: 3, Skipped: 1}, Heard: campaign.Heard{Delivered: 3}, Rates: &campaign.Rates{Delivered: 1},
		Results: []campaign.VariantOf{{Name: "A<", Part: "test", Members: 4, Sent: 3}},
	}
	e, err := r.Email("shop@example.com", at)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the subject", e.Subject, "spring <script>: completed, 3 of 4 sent")
	for _, bad := range []string{"<script", "<svg", "http", "url(", "<link"} {
		if strings.Contains(e.HTML, bad) {
			t.Errorf("%s is in it:\n%s", bad, e.HTML)
		}
	}
	pictures := 0
	for _, a := range e.Attachments {
		if !a.Inline {
			want(t, "the page", a.Name+" "+fmt.Sprint(bytes.Contains(a.Content, []byte("<svg")) && !bytes.Contains(a.Content, []byte("cid:"))), "report.html true")
			continue
		}
		pictures++
		if !strings.Contains(e.HTML, `src="cid:`+a.ContentID+`"`) {
			t.Errorf("nothing shows %s", a.ContentID)
		}
		if _, err := png.Decode(bytes.NewReader(a.Content)); err != nil {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
	want(t, "the pictures", pictures, 7)
	want(t, "the pictures that it names", strings.Count(e.HTML, "cid:"), 7)
	members, err := png.Decode(bytes.NewReader(e.Attachments[0].Content))
	if err != nil {
		t.Fatal(err)
	}
	wide := members.Bounds().Dx()
	for x, colour := range map[int]color.RGBA{1: {0x2e, 0x7d, 0x32, 255}, wide*3/4 - 2: {0x2e, 0x7d, 0x32, 255}, wide*3/4 + 2: {0x9e, 0x9e, 0x9e, 255}, wide - 1: {0x9e, 0x9e, 0x9e, 255}} {
		want(t, fmt.Sprintf("the colour at %d", x), color.RGBAModel.Convert(members.At(x, 5)).(color.RGBA), colour)
	}
}
