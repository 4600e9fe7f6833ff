package file_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
)

func TestParse(t *testing.T) {
	t.Parallel()
	f := read(t, spring+"expires_after: 2h\nconsent: required\nreply_to: help@example.com\n")
	want(t, "the campaign", f.Campaign, "spring")
	if request := (campaign.Request{
		Channel: campaign.Email, Provider: "mail", Purpose: "newsletter", From: "Shop <shop@example.com>", ReplyTo: "help@example.com", NeedsConsent: true, ExpiresAfter: 2 * time.Hour,
	}); !reflect.DeepEqual(f.Request, request) {
		t.Errorf("the request: %+v, want %+v", f.Request, request)
	}
	want(t, "the subject", f.Content.Subject, "{{ contact.name }}, spring is here")
	want(t, "the text", f.Content.Text, string(texts["spring.txt"].Data))
	want(t, "the columns", strings.Join(append(f.Columns.Data, f.Columns.Address, f.Columns.Zone), " "), "name city email tz")
	for channel, text := range map[campaign.Channel]string{
		campaign.SMS: "text: spring.txt", campaign.Voice: "script: spring.txt\nscript_version: \"1\"", campaign.Social: "text: spring.txt\npost: \"1\"", campaign.Chat: "text: spring.txt",
	} {
		f := read(t, "campaign: x\nchannel: "+string(channel)+"\ntransactional: true\n"+text+"\n")
		if f.Content.Text+f.Content.Script == "" || f.Columns.Address == "" || !f.Request.Transactional {
			t.Errorf("%s: %+v", channel, f)
		}
	}
}

// All that is wrong with a file and with its texts is said at once, each with its line.
func TestParse_NamesAllProblems(t *testing.T) {
	t.Parallel()
	_, err := file.Parse("dir/spring.yaml", []byte(`campaign: spring
channel: email
purpos: newsletter
transactional: "yes"
subject: "{{ contact.city }}"
text: wrong.txt
html: ../other.html
script: spring.txt
expires_after: 1s
audience:
  data: [name, name, "a.b"]
  colour: red
`), texts)
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("%v, want it to be invalid", err)
	}
	for _, line := range []string{
		`dir/spring.yaml:3: purpos: unknown key (did you mean "purpose"?)`,
		`dir/spring.yaml:4: transactional: want true or false, got text`,
		`dir/spring.yaml:5: subject: template_error: undefined name contact.city: there is contact.name, unsubscribe_url`,
		`dir/spring.yaml:7: html: "../other.html": want the name of a file beside the campaign's, or below its directory`,
		`dir/spring.yaml:8: script: unknown key`,
		`dir/spring.yaml:9: expires_after: 1s is not from 1m to 30d`,
		`dir/spring.yaml:11: audience.data: "name" is named twice`,
		`dir/spring.yaml:11: audience.data: "a.b" has a point in it`,
		`dir/spring.yaml:12: audience.colour: unknown key`,
		`dir/wrong.txt:2: template_error: undefined name contact.nmae`,
		`dir/wrong.txt:3: template_error: `,
	} {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("%s is not said:\n%v", line, err)
		}
	}
	for text, problem := range map[string]string{
		"":                                   "the file is empty",
		"channel: email":                     "spring.yaml:1: campaign: a campaign has campaign, its name, and channel",
		"campaign: x\nchannel: fax":          `channel: "fax" is none of email, sms, voice, social, chat`,
		"campaign: x\nchannel: sms\ntext: 7": "text: want text, got a whole number",
		"campaign: x\nchannel: sms\ntext: empty.txt": `text: "empty.txt" is empty`,
		"campaign: x\nchannel: sms\ntext: no.txt":    `text: "no.txt": there is no such file`,
	} {
		if _, err := file.Parse("spring.yaml", []byte(text), texts); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %s", text, err, problem)
		}
	}
}

// A text may be as large as a template, and one that is larger is named where the campaign names it.
func TestParse_ALargeText(t *testing.T) {
	t.Parallel()
	for size, problem := range map[int]string{256 << 10: "", 256<<10 + 1: `spring.yaml:3: text: "large.txt" is over 256 KiB`} {
		large := fstest.MapFS{"large.txt": {Data: []byte(strings.Repeat("x", size))}}
		_, err := file.Parse("spring.yaml", []byte("campaign: x\nchannel: sms\ntext: large.txt\n"), large)
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%d bytes: %v, want %q", size, err, problem)
		}
	}
}

// When and how fast it goes.
func TestParse_Window(t *testing.T) {
	t.Parallel()
	f := read(t, spring+"if_passed: skip\nquiet_hours: \"22:00-08:00\"\nzone: Europe/Paris\nrate: 600/min\nramp: {from: 1/s, every: 1h}\n")
	want(t, "the ramp", fmt.Sprint(*f.Request.Ramp), "{1/s 1h0m0s []}")
	f.Request.Ramp = nil
	if request := (campaign.Request{
		Channel: campaign.Email, Provider: "mail", Purpose: "newsletter", From: "Shop <shop@example.com>",
		IfPassed: campaign.Skip, QuietHours: "22:00-08:00", Zone: "Europe/Paris", Rate: "600/min",
	}); !reflect.DeepEqual(f.Request, request) {
		t.Errorf("the request: %+v, want %+v", f.Request, request)
	}
	f = read(t, spring+"rate: 10/s\nramp:\n  - {rate: 100/h, for: 24h}\n  - {rate: 1/s, for: 2h}\n")
	want(t, "the steps", fmt.Sprint(*f.Request.Ramp), "{ 0s [{100/h 24h0m0s} {1/s 2h0m0s}]}")

	_, err := file.Parse("spring.yaml", []byte(spring+"if_passed: later\nquiet_hours: 22-8\nrate: fast\nramp: [{rate: 1/s}, {for: 1s, colour: red}]\n"), texts)
	for _, line := range []string{
		`if_passed: "later" is none of now, next_day, skip`, `quiet_hours: "22-8" is not such as "22:00-08:00"`, `rate: "fast" is not such as 10/s, 600/min or 5000/h`,
		`ramp: a step is such as {rate: 100/h, for: 24h}`, `ramp.colour: unknown key`,
	} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%v\nwant %s in it", err, line)
		}
	}
	if _, err := file.Parse("spring.yaml", []byte(spring+"ramp: {from: 1/s}\n"), texts); err == nil || !strings.Contains(err.Error(), "a ramp leads up to a rate") {
		t.Errorf("a ramp alone: %v", err)
	}
}

// What asks for none of that is the request that it was before there was any: the same file to
// the same people is no other run since.
func TestRequest_IsWhatItWas(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(campaign.Request{})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the request", string(text), `{"Campaign":"","Audience":"","ID":"","Channel":"","ScheduledFor":"0001-01-01T00:00:00Z","Provider":"","Purpose":"","Transactional":false,"From":"","ReplyTo":"","Content":"","NeedsConsent":false,"ExpiresAfter":0}`)
}

// When a run pauses itself: shares, and of how many; what is none is named.
func TestParse_PauseOn(t *testing.T) {
	t.Parallel()
	f := read(t, spring+"pause_on: {failed: 5%, complained: 0.3%, from: 200}\n")
	want(t, "pause_on", *f.Request.PauseOn, campaign.PauseOn{Failed: "5%", Complained: "0.3%", From: 200})
	for text, want := range map[string]string{
		"{failed: 0%}":              `pause_on.failed: "0%" is not a share over 0% and below 100%`,
		"{failed: 101%}":            `pause_on.failed: "101%" is not a share`,
		"{complained: much}":        `pause_on.complained: "much" is not a share`,
		"{failed: 5%, from: 0}":     `pause_on.from: `,
		"{failed: 5%, bounced: 1%}": `pause_on.bounced: unknown key`,
		"{from: 5}":                 `pause_on: it is such as {failed: 5%, complained: 0.3%, from: 200}`,
	} {
		if _, err := file.Parse("spring.yaml", []byte(spring+"pause_on: "+text+"\n"), texts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// What is previewed and tested is of the numbers that are there: whole ones are whole, however large.
func TestMake_WholeNumbersStayWhole(t *testing.T) {
	t.Parallel()
	f := read(t, strings.Replace(spring, "{{ contact.name }}, spring", "{{ contact.name }}, {{ contact.city | divided_by: 2 }} spring", 1))
	got, err := f.Make(t.Context(), json.RawMessage(`{"name": 9007199254740993, "city": 7}`), "https://example.com/u/1")
	if err != nil || !strings.Contains(string(got), `"subject":"9007199254740993, 3 spring is here"`) {
		t.Errorf("%s %v", got, err)
	}
}
