// Package smtp sends e-mail over SMTP: a provider of package delivery.
//
// SMTP has no idempotency key and no look-up. What is told apart here is how far
// a conversation got:
//
//	2xx after the message                  accepted, whatever comes after it
//	no connection, greeting, EHLO, AUTH    outage
//	530 or 535 to any command              outage: it is about who we are
//	421 to a later command                 outage, if the server says so over a new
//	                                       connection, too, where nothing of the
//	                                       delivery is said; else as other 4xx
//	other 4xx to MAIL, RCPT, DATA, after   deferred: greylisting, a full mailbox
//	a cut before the message               deferred
//	5.1.1, .2, .3, .6, .10 to RCPT, after  bad address
//	other 5xx to MAIL, RCPT, DATA, after   refused for good
//	a cut, no answer or nonsense after it  unknown: the delivery's guarantee decides
//
// An answer that is over 64 KiB counts as a cut.
//
// One recipient a message, and those who get a copy: one of them who is refused ends it for
// all, before anything is sent.
// Connections are used again, after a RSET that shows that they still live, or at once within
// a second of a message that was accepted. A 421
// over one that was used may be for what others said over it, such as recipients
// that were refused: before the message the delivery goes over a new one at once, and so it does where one
// that was used at once is not there any more.
//
// Where the server offers PIPELINING, sender, recipient and DATA are said together (RFC 2920), with
// copies without DATA. The message follows when all of them have been taken, and not before; so what is told
// apart stays the same.
package smtp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/mail"
	"net/textproto"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
)

// Security is how a connection is encrypted.
type Security string

const (
	// StartTLS demands it, and refuses a server that does not offer it.
	StartTLS Security = "starttls"
	// ImplicitTLS begins with it, as on port 465.
	ImplicitTLS Security = "tls"
	// Plain is for servers on this machine and in tests.
	Plain Security = "none"
)

// Options configures a Provider.
type Options struct {
	// Address is the server's host:port. Required.
	Address string
	// Security is how the connection is encrypted. Default [StartTLS].
	Security Security
	// User and Password authenticate. Default: nobody.
	User, Password string
	// From is the sender of e-mails that name none. Default: none.
	From string
	// FromAllowed are the senders that payloads may name: addresses, @domains, or
	// * for all. Default: those of From's domain; all, if there is no From.
	FromAllowed []string
	// HeadersAllowed are the headers that payloads may set beside the usual ones;
	// see [delivery.EmailRules].
	HeadersAllowed []string
	// Hello is the name that EHLO gives. Default "localhost".
	Hello string
	// Account names the account, see [delivery.Capabilities]. Default: the user
	// and the address.
	Account string
	// TLS verifies the server. Default: the system's authorities, its own name.
	TLS *tls.Config
	// ReturnPath is where bounces come back to, such as bounce+{id}@example.com: {id}
	// becomes the delivery's, with a MAC under EventSecret. What comes there is for
	// [Provider.ReadMail]. Default: From's address, and nobody reads what comes there.
	ReturnPath, EventSecret string
	// PreviousEventSecret is what EventSecret was before: bounces of mail that was sent
	// then are believed, too. Default: they are not.
	PreviousEventSecret string
	// Idle is how long an unused connection is kept. Default 30s.
	Idle time.Duration
	// PerConnection is how many messages go over one connection. Default 100.
	PerConnection int
}

// Provider is a [delivery.Provider], a [delivery.Checker] and a [delivery.MailReader].
type Provider struct {
	opts  Options
	rules delivery.EmailRules
	back  *returnPath // nil: there is none
	host  string
	idle  idle
}

// New checks opts and connects to nothing.
func New(opts Options) (*Provider, error) {
	opts.Security = cmp.Or(opts.Security, StartTLS)
	opts.Hello = cmp.Or(opts.Hello, "localhost")
	opts.Idle = cmp.Or(opts.Idle, 30*time.Second)
	opts.PerConnection = cmp.Or(opts.PerConnection, 100)
	opts.Account = cmp.Or(opts.Account, strings.TrimPrefix(opts.User+"@"+opts.Address, "@"))
	var errs []error
	host, port, err := net.SplitHostPort(opts.Address)
	if err != nil || host == "" || port == "" {
		errs = append(errs, errors.New("option Address is not host:port"))
	}
	if opts.Security != StartTLS && opts.Security != ImplicitTLS && opts.Security != Plain {
		errs = append(errs, fmt.Errorf("option Security %q is none of %s, %s and %s", opts.Security, StartTLS, ImplicitTLS, Plain))
	}
	if (opts.User == "") != (opts.Password == "") {
		errs = append(errs, errors.New("options User and Password go together"))
	}
	if opts.Idle < 0 || opts.PerConnection < 1 {
		errs = append(errs, fmt.Errorf("option Idle %s is negative, or PerConnection %d below 1", opts.Idle, opts.PerConnection))
	}
	var back *returnPath
	if opts.ReturnPath != "" {
		back, err = newReturnPath(opts.ReturnPath, opts.EventSecret, opts.PreviousEventSecret)
		errs = append(errs, err)
	}
	rules := delivery.EmailRules{From: opts.From, FromAllowed: opts.FromAllowed, HeadersAllowed: opts.HeadersAllowed}
	errs = append(errs, rules.Check())
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "smtp", Code: deed.Invalid, Err: err}
	}
	return &Provider{opts: opts, rules: rules, back: back, host: host}, nil
}

// Close closes the connections that are not in use.
func (p *Provider) Close() error {
	p.idle.closeAll()
	return nil
}

// Capabilities says: e-mail, and no key.
func (p *Provider) Capabilities() delivery.Capabilities {
	c := delivery.Capabilities{Kind: "smtp", Account: p.opts.Account, Channels: []delivery.Channel{delivery.Email}, Key: delivery.NoKey, Reports: []delivery.Said{}}
	if p.back != nil {
		c.Reports = []delivery.Said{delivery.SaidAccepted, delivery.SaidDelivered, delivery.SaidBounced, delivery.SaidSoftBounced, delivery.SaidDropped}
	}
	return c
}

// ownHeaders are those that Render makes.
var ownHeaders = []string{
	"From", "To", "Cc", "Reply-To", "Subject", "Message-Id", "Date", "X-Deed-Id", "X-Deed-Sandbox-For", "Mime-Version", "Content-Type", "Content-Transfer-Encoding",
}

// checkHeaders looks for what an older version, or other rules, let a payload
// set.
func (p *Provider) checkHeaders(message []byte) error {
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(message))).ReadMIMEHeader()
	if err != nil {
		return errors.New("it is no e-mail")
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !slices.Contains(ownHeaders, name) {
			if err := p.rules.CheckHeader(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Send holds one conversation.
func (p *Provider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	request, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	first, message, ok := bytes.Cut(request, []byte("\n"))
	var e envelope
	if err := json.Unmarshal(first, &e); err != nil || !ok {
		return delivery.Refused(errors.New("smtp: the stored request has no envelope"))
	}
	if to, err := mail.ParseAddress(r.Recipient()); err != nil || !strings.EqualFold(to.Address, e.To) {
		return delivery.Refused(p.errorf("%w", delivery.ErrOtherRecipient))
	}
	if err := p.checkHeaders(message); err != nil {
		return delivery.Refused(p.errorf("the stored request: %w", err))
	}
	return p.converse(ctx, e, message, cmp.Or(e.MessageID, messageID(r.Key(), e.From)))
}

// after is what may be done with a connection after a message.
type after int

const (
	broken after = iota // nothing, or nobody knows
	usable              // the next message
	closed              // nothing: the server has closed it before the message
	late                // the same, after it
	gone                // nothing: it was cut off when it was to be used again, and answered nothing
)

// converse sends a message over a connection that is there or a new one, or,
// if the server closes the first before the message, over both.
func (p *Provider) converse(ctx context.Context, e envelope, message []byte, id string) delivery.Outcome {
	c, err := p.connection(ctx)
	for {
		if err != nil {
			return delivery.Outage(p.errorf("no connection: %w", err), 0)
		}
		used := c.messages > 0
		out, then := p.send(ctx, c, e, message, id)
		if then == usable {
			p.idle.put(c, p.opts)
			return out
		}
		c.close()
		if then == broken {
			return out
		}
		if then == late || then == closed && !used {
			return p.orOutage(ctx, out)
		}
		if c, err = p.dial(ctx); err != nil && ctx.Err() != nil {
			return out // it answered; there was no time left for another conversation
		}
	}
}

// orOutage tells a 421 that is about a delivery from one that is for all: what
// is said here has nothing of the delivery.
func (p *Provider) orOutage(ctx context.Context, out delivery.Outcome) delivery.Outcome {
	c, err := p.dial(ctx)
	if err == nil {
		defer c.close()
		release := c.bound(ctx)
		defer release()
		if from, unread := mail.ParseAddress(p.opts.From); unread == nil {
			err = c.client.Mail("<" + from.Address + ">")
		}
	}
	if code := codeOf(err); err == nil || ctx.Err() != nil || (code >= 400 && !aboutAll(code)) {
		return out
	}
	return delivery.Outage(out.Err(), 0).WithCode(out.Code())
}

// aboutAll reports whether an answer is about the server or who we are.
func aboutAll(code int) bool { return code == 421 || code == 530 || code == 535 }

// send says what came of a message, and what may be done with the connection.
func (p *Provider) send(ctx context.Context, c *conn, e envelope, message []byte, id string) (out delivery.Outcome, then after) {
	release := c.bound(ctx)
	defer release()
	c.messages++
	if what, err := c.begin(e); err != nil {
		if what == stepCopy {
			err = e.withoutCopies(err)
		}
		out, then = p.refusal(what, err)
		switch {
		case codeOf(err) == 0 && what == stepMail && !c.proved:
			then = gone
		case then == usable && c.unusable:
			then = broken
		}
		return out, then
	}
	// From here on the server may have all of it whatever goes wrong: what was
	// written need not have been read, and what was answered need not arrive.
	err := c.say(message)
	switch code := codeOf(err); {
	case err == nil, code >= 200 && code < 300: // 250 is usual; all of them say that it was taken
		c.clean = true
		return delivery.Accepted(id), usable
	case code >= 400:
		step := stepMessage
		if len(e.CC) > 0 {
			step = stepMessages
		}
		if out, then = p.refusal(step, e.withoutCopies(err)); then == closed {
			then = late
		}
		return out, then
	}
	return delivery.Unknown(p.errorf("no answer to the message: %w", err)), broken
}

// refusal judges an answer to a command before which nothing was handed over,
// or the answer to the message itself.
func (p *Provider) refusal(what string, err error) (out delivery.Outcome, then after) {
	if code := codeOf(err); code != 0 {
		defer func() { out = out.WithCode(strconv.Itoa(code)) }()
	}
	switch code := codeOf(err); {
	case code == 421: // it closes this connection
		return delivery.Deferred(p.errorf("%s: %w", what, err), 0), closed
	case aboutAll(code):
		return delivery.Outage(p.errorf("%s: %w", what, err), 0), broken
	case code >= 500 && (what == stepRcpt || what == stepMessage) && isNobody(err):
		return delivery.BadAddress(p.errorf("%s: %w", what, err)), usable
	case code >= 500:
		return delivery.Refused(p.errorf("%s: %w", what, err)), usable
	case code >= 400:
		return delivery.Deferred(p.errorf("%s: %w", what, err), 0), usable
	}
	// It may be this message's doing: a recipient for whom the server asks
	// another one, and waits.
	return delivery.Deferred(p.errorf("%s, before the message: %w", what, err), 0), broken
}

// At stepRcpt and stepMessage a server says of the recipient that there is none; at the others
// it may say so of somebody who gets a copy.
const (
	stepMail     = "MAIL"
	stepRcpt     = "RCPT"
	stepCopy     = "RCPT of a copy"
	stepData     = "DATA"
	stepMessage  = "the message"
	stepMessages = "the message and its copies"
)

// nobody are the enhanced codes of an address that takes no mail, and never will; others of
// that class (5.1.7, 5.1.8) are about the sender. Source: RFC 3463, section 3.2, with RFC
// 7505 for 5.1.10.
var nobody = regexp.MustCompile(`^5\.1\.(1|2|3|6|10)(\s|$)`)

func isNobody(err error) bool {
	answer, ok := errors.AsType[*textproto.Error](err)
	return ok && nobody.MatchString(answer.Msg)
}

// codeOf returns the code of a server's answer; 0 if there was none.
func codeOf(err error) int {
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		return answer.Code
	}
	return 0
}

func (p *Provider) errorf(format string, args ...any) error {
	return fmt.Errorf("smtp %s: %w", p.opts.Address, fmt.Errorf(format, args...))
}

// Check connects, encrypts and authenticates, and sends nothing.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	c, err := p.dial(ctx)
	if err != nil {
		return []delivery.Check{{What: "connect to " + p.opts.Address, Info: err.Error()}}
	}
	defer c.close()
	checks := []delivery.Check{{What: "connect to " + p.opts.Address, OK: true, Info: "encryption: " + string(p.opts.Security)}}
	if p.opts.User != "" {
		checks = append(checks, delivery.Check{What: "authenticate", OK: true, Info: "as " + p.opts.User})
	}
	if p.opts.From == "" {
		return checks
	}
	release := c.bound(ctx)
	defer release()
	from, err := mail.ParseAddress(p.opts.From)
	if err == nil {
		err = c.client.Mail("<" + from.Address + ">")
	}
	sender := delivery.Check{What: "sender " + p.opts.From, OK: err == nil, Info: "the server takes it"}
	if err != nil {
		sender.Info = err.Error()
	}
	return append(checks, sender)
}
