// Package smtp receives mail as inbound messages: what people answer by mail.
//
// It is no mail server of a domain: it stands behind one, which checks who wrote (DMARC)
// and says so in Authentication-Results. Mail of others is refused, and so is what is not
// for its addresses. What programs send, lists among it, is taken and passed over.
package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
)

// Options configures a Server.
type Options struct {
	// Source is the name of the source whose messages these are. Required.
	Source string
	// Addresses are those that mail is taken for: addresses, or @domain. Required.
	Addresses []string
	// Trusted are the networks of the relays that are believed what they say of a mail.
	// Required.
	Trusted []netip.Prefix
	// Names are what these relays call themselves in Authentication-Results. Required.
	Names []string
	// Hello is what the server calls itself. Default: localhost.
	Hello string
	// TLS is for STARTTLS. Default: none.
	TLS *tls.Config
	// MaxBytes bounds a mail. Default 10 MiB.
	MaxBytes int64
	// Bounces takes mail that comes back of what was sent, whatever Addresses has. Default:
	// none.
	Bounces Bounces
	// Logger receives what is refused, and why, never from whom. Default: discard.
	Logger *slog.Logger
}

// Bounces takes what servers say of mail that we sent: a [delivery.Bounces].
type Bounces interface {
	// Takes reports whether mail to an address is one of these.
	Takes(to string) bool
	// Take records what a mail says that came to an address.
	Take(ctx context.Context, to string, raw []byte) (delivery.Recorded, error)
}

// Server receives mail for a [inbound.Receiver].
type Server struct {
	receiver *inbound.Receiver
	opts     Options
}

// New checks opts; it listens to nothing. Errors: [deed.Invalid].
func New(r *inbound.Receiver, opts Options) (*Server, error) {
	var errs []error
	for _, o := range []struct {
		name    string
		missing bool
	}{{"Source", opts.Source == ""}, {"Addresses", len(opts.Addresses) == 0}, {"Trusted", len(opts.Trusted) == 0}, {"Names", len(opts.Names) == 0}} {
		if o.missing {
			errs = append(errs, fmt.Errorf("option %s is missing", o.name))
		}
	}
	for _, a := range opts.Addresses {
		if at := strings.LastIndexByte(a, '@'); at < 0 || at == len(a)-1 {
			errs = append(errs, fmt.Errorf("option Addresses: %q is neither an address nor @domain", a))
		}
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 10 << 20
	}
	if opts.MaxBytes < 1024 || opts.MaxBytes > 100<<20 {
		errs = append(errs, fmt.Errorf("option MaxBytes %d is not from 1 KiB to 100 MiB", opts.MaxBytes))
	}
	if opts.Hello == "" {
		opts.Hello = "localhost"
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &deed.Error{Op: "inbound mail", Code: deed.Invalid, Err: err}
	}
	return &Server{r, opts}, nil
}

const (
	sessions = 100 // at once
	longest  = time.Minute
)

// Serve receives mail on l, which it closes, until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &session{server: s, ctx: ctx}, nil
	}))
	server.Domain, server.TLSConfig = s.opts.Hello, s.opts.TLS
	server.EnableSMTPUTF8 = true
	server.MaxMessageBytes, server.MaxRecipients = s.opts.MaxBytes, 50
	server.ReadTimeout, server.WriteTimeout = longest, longest
	server.ErrorLog = log.New(io.Discard, "", 0)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			_ = server.Close()
		}
	})
	defer stop()
	err := server.Serve(&relays{l, s.trusts, make(chan struct{}, sessions)})
	if ctx.Err() != nil || errors.Is(err, smtp.ErrServerClosed) {
		return nil
	}
	return err
}

// trusts reports whether what a relay says of mails is believed.
func (s *Server) trusts(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap()
	return slices.ContainsFunc(s.opts.Trusted, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// takes reports whether mail is taken for an address.
func (s *Server) takes(to string) bool {
	at := strings.LastIndexByte(to, '@')
	return at > 0 && slices.ContainsFunc(s.opts.Addresses, func(a string) bool {
		return strings.EqualFold(a, to) || strings.HasPrefix(a, "@") && strings.EqualFold(a, to[at:])
	})
}

// session is a connection. go-smtp calls it from one goroutine.
type session struct {
	server *Server
	ctx    context.Context
	from   string
	to     []string
	back   []string // of to, those that mail comes back to
}

func refuse(code int, enhanced smtp.EnhancedCode, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

// Mail implements smtp.Session.
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	s.from, s.to, s.back = from, nil, nil
	return nil
}

// Rcpt implements smtp.Session.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if b := s.server.opts.Bounces; b != nil && b.Takes(to) {
		s.back = append(s.back, to)
		return nil
	}
	if !s.server.takes(to) {
		return refuse(550, smtp.EnhancedCode{5, 1, 1}, "No such address here")
	}
	s.to = append(s.to, strings.ToLower(to))
	return nil
}

// Data implements smtp.Session.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	o := s.server.opts
	for _, to := range s.back {
		if err := s.takeBack(to, raw); err != nil {
			return err
		}
	}
	if len(s.to) == 0 {
		return nil
	}
	if s.from == "" { // a bounce: an answer would come back to nobody
		s.server.receiver.Ignored(o.Source, "null", 1)
		return nil
	}
	p, err := parse(raw, s.to)
	if err != nil {
		return refuse(554, smtp.EnhancedCode{5, 6, 0}, "Not a mail that can be read: "+err.Error())
	}
	if word := p.ignored(); word != "" {
		s.server.receiver.Ignored(o.Source, word, 1)
		return nil
	}
	if !isAuthentic(p.header.Values("Authentication-Results"), o.Names, p.domain) {
		o.Logger.Warn("a mail whose author no relay of ours vouches for was refused (DMARC)", "source", o.Source)
		return refuse(550, smtp.EnhancedCode{5, 7, 26}, "The author's domain does not vouch for this mail (DMARC)")
	}
	event, err := p.event(raw)
	if err != nil {
		return err
	}
	switch err := s.server.receiver.Take(s.ctx, o.Source, "", event); {
	case deed.CodeOf(err) == deed.Invalid:
		return refuse(554, smtp.EnhancedCode{5, 6, 0}, "It cannot be stored")
	case err != nil:
		return refuse(451, smtp.EnhancedCode{4, 3, 0}, "Not now; try again")
	}
	return nil
}

// takeBack has what a mail says of one of ours recorded. What is forged, or no mail, is taken
// and passed over: to refuse it would make another bounce.
func (s *session) takeBack(to string, raw []byte) error {
	_, err := s.server.opts.Bounces.Take(s.ctx, to, raw)
	switch {
	case err == nil:
	case errors.Is(err, delivery.ErrUnverified), errors.Is(err, delivery.ErrNoMail), deed.CodeOf(err) == deed.Invalid:
		s.server.opts.Logger.Warn("a mail that came back was passed over", "source", s.server.opts.Source, "error", err)
	default:
		s.server.opts.Logger.Warn("a mail that came back could not be recorded; the relay will bring it again", "source", s.server.opts.Source, "error", err)
		return refuse(451, smtp.EnhancedCode{4, 3, 0}, "Not now; try again")
	}
	return nil
}

// Reset implements smtp.Session.
func (s *session) Reset() { s.from, s.to, s.back = "", nil, nil }

// Logout implements smtp.Session.
func (s *session) Logout() error { return nil }

// relays accepts the connections of trusted relays, and bounds how many there are at
// once; more wait to be accepted. Others have no place among them.
type relays struct {
	net.Listener
	trusts func(net.Addr) bool
	room   chan struct{}
}

func (l *relays) Accept() (net.Conn, error) {
	l.room <- struct{}{}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.room
			return nil, err
		}
		if l.trusts(c.RemoteAddr()) {
			return &counted{Conn: c, leave: sync.OnceFunc(func() { <-l.room })}, nil
		}
		// The first bytes of a connection find room in its buffer: this waits for nobody.
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c, "554 5.7.1 This server takes mail of its relays only\r\n")
		_ = c.Close()
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
