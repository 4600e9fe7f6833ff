package file_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
)

func TestParse(t *testing.T) {
	t.Parallel()
	f := read(t, spring+"expires_after: 2h\nconsent: required\nreply_to: help@example.com\n")
	want(t, "the campaign", f.Campaign, "spring")
	want(t, "the request", f.Request, campaign.Request{
		Channel: campaign.Email, Provider: "mail", Purpose: "newsletter", From: "Shop <shop@example.com>", ReplyTo: "help@example.com", NeedsConsent: true, ExpiresAfter: 2 * time.Hour,
	})
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
