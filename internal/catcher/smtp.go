package catcher

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"mime"
	"net"
	"net/mail"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/deedhq/deed/internal/uuid"
)

// SMTP is a server that catches mail.
type SMTP struct {
	Faults   Faults
	Mailbox  *Mailbox
	User     string // "": nobody needs to say who they are
	Password string
	TLS      *tls.Config // for STARTTLS; nil: none

	mu       sync.Mutex
	sessions int
}

// Sessions is how many connections there have been.
func (s *SMTP) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// Serve answers on l until ctx ends.
func (s *SMTP) Serve(ctx context.Context, l net.Listener) error {
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions++
		return &session{server: s, conn: c, done: ctx.Done()}, nil
	}))
	server.Domain = "catcher.localhost"
	server.AllowInsecureAuth = true
	server.TLSConfig = s.TLS
	server.EnableSMTPUTF8 = true
	server.MaxMessageBytes = 40 << 20
	server.ReadTimeout, server.WriteTimeout = 5*time.Minute, time.Minute
	server.ErrorLog = log.New(io.Discard, "", 0)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	if ctx.Err() != nil || errors.Is(err, smtp.ErrServerClosed) {
		return nil
	}
	return err
}

type session struct {
	server *SMTP
	conn   *smtp.Conn
	done   <-chan struct{}
	known  bool
	from   string
	to     []string
	cut    bool // the connection, at the next command
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.server.User || password != s.server.Password {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "Authentication credentials invalid"}
		}
		s.known = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.server.User != "" && !s.known {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required"}
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if _, err := mail.ParseAddress(to); err != nil {
		return &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 1, 3}, Message: "Bad recipient address"}
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Reset() {
	s.from, s.to = "", nil
	if s.cut {
		_ = s.conn.Conn().Close()
	}
}

func (s *session) Logout() error { return nil }

func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	fault := s.server.Faults.next()
	switch fault {
	case ForGood:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "The content is refused"}
	case BadAddress:
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "No such user here"}
	case ForNow, ForNowAfter:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "Try again later"}
	case HangBefore:
		return s.hang()
	case ResetBefore:
		return s.conn.Conn().Close()
	}
	m := Mail{ID: uuid.New().String(), Via: "smtp", From: s.from, To: s.to, At: time.Now(), Raw: raw}
	if parsed, err := mail.ReadMessage(bytes.NewReader(raw)); err == nil {
		m.Headers = parsed.Header
		m.Key = parsed.Header.Get("Message-ID")
		m.Subject, _ = new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
		m.Text = textOf(parsed.Header, parsed.Body)
	}
	s.server.Mailbox.Add(m)
	switch fault {
	case HangAccepted:
		return s.hang()
	case ResetAccepted, SlowAccepted, Garbage:
		return s.conn.Conn().Close()
	case CutAfterOK:
		s.cut = true
	}
	return nil
}

// hang answers nothing until the other side goes away.
func (s *session) hang() error {
	gone := make(chan struct{})
	go func() { // ends with the connection
		_, _ = io.Copy(io.Discard, s.conn.Conn())
		close(gone)
	}()
	select {
	case <-gone:
	case <-s.done:
	}
	return s.conn.Conn().Close()
}
