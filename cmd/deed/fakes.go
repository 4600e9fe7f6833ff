package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/bluesky"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/postmark"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/sendgrid"
	"github.com/deedhq/deed/provider/ses"
	"github.com/deedhq/deed/provider/slack"
	"github.com/deedhq/deed/provider/smtp"
	"github.com/deedhq/deed/provider/telegram"
	"github.com/deedhq/deed/provider/twilio"
	"github.com/deedhq/deed/provider/whatsapp"
)

// What the fakes of deed dev are called by; they take any token.
const (
	devToken      = "dev"
	devTwilio     = "AC00000000000000000000000000000000"
	devNumber     = "+15005550006"
	devWhatsApp   = "100000000000000"
	devRegion     = "eu-central-1"
	devSlackToken = "xoxb-dev"
	devBot        = "1:dev"
	devMastodon   = "@dev@localhost"
	devBluesky    = "dev.test"

	// By which the providers know what the fakes say later. It is no secret: who may say it
	// is on this machine.
	devEventSecret = "whsec_ZGVlZCBkZXYgaGFzIG5vIHNlY3JldHMgYXQgYWxs"
	devEventUser   = "deed"
	devAppSecret   = "the app of deed dev"
	devSESTopic    = "arn:aws:sns:eu-central-1:000000000000:deed-dev"
	devSESSet      = "deed-dev"
)

// fakes are the services that deed dev stands in for: those of HTTP by name.
type fakes struct {
	smtp        catcher.SMTP
	byName      map[string]fake
	teller      *catcher.Teller // nil: they say nothing later
	sendGridKey func() string   // that verifies what SendGrid says
}

type fake interface {
	http.Handler
	Close()
	SetFaults(decide func(n int) catcher.Fault)
}

// newFakes has those of teller's services say what becomes of what they take; nil: none.
func newFakes(box *catcher.Mailbox, teller *catcher.Teller) *fakes {
	sendgrid, twilio := &catcher.SendGrid{Mailbox: box}, &catcher.Twilio{Mailbox: box, EventToken: devToken}
	resend := &catcher.Resend{Mailbox: box, EventSecret: devEventSecret}
	postmark := &catcher.Postmark{Mailbox: box, EventUser: devEventUser, EventPassword: devEventSecret}
	ses := &catcher.SES{Mailbox: box, AccessKeyID: devToken, SecretAccessKey: devToken, Topic: devSESTopic}
	whatsapp := &catcher.WhatsApp{Mailbox: box, AppSecret: devAppSecret}
	for name, events := range map[string]*catcher.Events{
		"postmark": &postmark.Events, "resend": &resend.Events, "sendgrid": &sendgrid.Events, "ses": &ses.Events, "twilio": &twilio.Events, "whatsapp": &whatsapp.Events,
	} {
		*events = catcher.Events{Teller: teller, Path: "/events/" + name}
	}
	whatsapp.Events.Path = "/in/whatsapp" // where its messages come, too
	return &fakes{
		smtp: catcher.SMTP{Mailbox: box}, teller: teller, sendGridKey: sendgrid.EventKey,
		byName: map[string]fake{
			"bluesky": &catcher.Bluesky{Mailbox: box}, "mastodon": &catcher.Mastodon{Mailbox: box}, "slack": &catcher.Slack{Mailbox: box}, "telegram": &catcher.Telegram{Mailbox: box},
			"postmark": postmark, "resend": resend, "sendgrid": sendgrid, "ses": ses, "twilio": twilio, "whatsapp": whatsapp,
		},
	}
}

// devEvents is how the providers of deed dev are told what became of what they sent; zero:
// they are not.
type devEvents struct {
	public      string // where: the public address
	sendGridKey string
}

// events are those that the fakes say at a public address.
func (f *fakes) events(public string) devEvents {
	if f.teller == nil {
		return devEvents{}
	}
	return devEvents{public, f.sendGridKey()}
}

// handle serves them below their names, and where a service's own paths are its clients'.
func (f *fakes) handle(mux *http.ServeMux) {
	for name, one := range f.byName {
		if name == "ses" { // whose paths are signed
			mux.Handle("/v2/email/", one)
			mux.Handle("/sns/", one)
			continue
		}
		mux.Handle("/"+name+"/", http.StripPrefix("/"+name, one))
	}
	for _, path := range []string{"/emails", "/emails/batch", "/domains"} { // for an endpoint without /resend
		mux.Handle(path, f.byName["resend"])
	}
}

func (f *fakes) close() {
	if f.teller != nil {
		f.teller.Close()
	}
	for _, one := range f.byName {
		one.Close()
	}
}

// devFaults are how the fakes may be told to fail. What is accepted all the same leaves the
// delivery in doubt, as it would.
var devFaults = map[string]catcher.Fault{
	"429": catcher.ForNowAfter, "5xx": catcher.ServerError, "reset": catcher.ResetAccepted, "slow": catcher.HangAccepted,
}

// fail has every call fail, or with KIND/N every Nth one.
func (f *fakes) fail(how string) error {
	kind, part, given := strings.Cut(how, "/")
	fault, ok := devFaults[kind]
	every, err := strconv.Atoi(part)
	if !given {
		every, err = 1, nil
	}
	if !ok || err != nil || every < 1 {
		return usagef("--fault %q is none of 429, 5xx, reset and slow, with /N behind it for every Nth call", how)
	}
	decide := func(n int) catcher.Fault {
		if n%every == 0 {
			return fault
		}
		return catcher.None
	}
	f.smtp.Faults.Set(decide)
	for _, one := range f.byName {
		one.SetFaults(decide)
	}
	return nil
}

// builtIn are the providers of a deed dev whose fakes listen there.
func builtIn(smtpAddress, httpAddress string, events devEvents) (map[string]delivery.Provider, error) {
	base, everybody := "http://"+httpAddress, []string{"*"}
	var secret, user, callback, topic, set string
	if events.public != "" {
		secret, user, callback, topic, set = devEventSecret, devEventUser, "http://"+events.public+"/events/twilio", devSESTopic, devSESSet
	}
	const sender = "deed <deed@localhost>"
	list := map[string]delivery.Provider{}
	for name, open := range map[string]func() (delivery.Provider, error){
		"smtp": func() (delivery.Provider, error) {
			return smtp.New(smtp.Options{Address: smtpAddress, Security: smtp.Plain, From: sender, FromAllowed: everybody})
		},
		"bluesky": func() (delivery.Provider, error) {
			return bluesky.New(bluesky.Options{Account: devBluesky, Password: devToken, Endpoint: base + "/bluesky"})
		},
		"mastodon": func() (delivery.Provider, error) {
			return mastodon.New(mastodon.Options{Endpoint: base + "/mastodon", Account: devMastodon, Token: devToken})
		},
		"postmark": func() (delivery.Provider, error) {
			return postmark.New(postmark.Options{ServerToken: devToken, EventUser: user, EventPassword: secret, Endpoint: base + "/postmark", From: sender, FromAllowed: everybody})
		},
		"resend": func() (delivery.Provider, error) {
			return resend.New(resend.Options{APIKey: "re_dev", EventSecret: secret, Endpoint: base + "/resend", From: sender, FromAllowed: everybody})
		},
		"sendgrid": func() (delivery.Provider, error) {
			return sendgrid.New(sendgrid.Options{APIKey: devToken, EventKey: events.sendGridKey, Endpoint: base + "/sendgrid", From: sender, FromAllowed: everybody})
		},
		"ses": func() (delivery.Provider, error) {
			return ses.New(ses.Options{
				Region: devRegion, AccessKeyID: devToken, SecretAccessKey: devToken, ConfigurationSet: set, EventTopic: topic, EventsEndpoint: base, Endpoint: base, From: sender, FromAllowed: everybody,
			})
		},
		"slack": func() (delivery.Provider, error) {
			return slack.New(slack.Options{Token: devSlackToken, Endpoint: base + "/slack"})
		},
		"telegram": func() (delivery.Provider, error) {
			return telegram.New(telegram.Options{Token: devBot, Endpoint: base + "/telegram"})
		},
		"twilio": func() (delivery.Provider, error) {
			return twilio.New(twilio.Options{AccountSID: devTwilio, AuthToken: devToken, From: devNumber, StatusCallback: callback, Endpoint: base + "/twilio"})
		},
		"whatsapp": func() (delivery.Provider, error) {
			return whatsapp.New(whatsapp.Options{Token: devToken, PhoneNumberID: devWhatsApp, Endpoint: base + "/whatsapp"})
		},
	} {
		p, err := open()
		if err != nil {
			return nil, fmt.Errorf("the provider %s of deed dev: %w", name, err)
		}
		list[name] = p
	}
	return list, nil
}
