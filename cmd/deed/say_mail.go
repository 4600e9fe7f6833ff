package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/config"
)

// sayByMail brings a mail to a source's own listener, as a relay does that the source
// believes.
func sayByMail(ctx context.Context, out io.Writer, s config.Source, address, id, from, text string) error {
	author, err := mail.ParseAddress(from)
	if err != nil {
		return usagef("--from %q is no address of e-mail, and %s is a source of mail", from, s.Name)
	}
	at := author.Address[strings.LastIndexByte(author.Address, '@')+1:]
	to := s.Mail.Addresses[0]
	if strings.HasPrefix(to, "@") {
		to = "dev" + to
	}
	host, port, err := net.SplitHostPort(cmp.Or(address, s.Mail.Listen))
	if err != nil || port == "0" {
		return usagef("where does %s listen? Give --to HOST:PORT: deed dev logs it (listening for mail)", s.Name)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	text = fmt.Sprintf("Authentication-Results: %s; dmarc=pass header.from=%s\r\nFrom: <%s>\r\nTo: <%s>\r\nSubject: %s\r\nMessage-ID: <%s@%s>\r\nDate: %s\r\n"+
		"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n%s\r\n",
		s.Mail.Names[0], at, author.Address, to, mime.QEncoding.Encode("utf-8", "deed dev say"), id, at, time.Now().Format(time.RFC1123Z), text)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = bring(ctx, net.JoinHostPort(host, port), author.Address, to, text)
	if said, ok := errors.AsType[*textproto.Error](err); ok {
		fmt.Fprintf(out, "%d %s\n", said.Code, strings.ReplaceAll(said.Msg, "\n", " "))
		if said.Code == 554 && strings.Contains(said.Msg, "its relays only") {
			return &exitError{exitPartly, fmt.Errorf("sources.%s.trusted does not have the address that this machine comes from: for trying it out add 127.0.0.1", s.Name)}
		}
		return &exitError{exitPartly, errors.New("the mail was not taken, or its message has failed")}
	}
	if err != nil {
		return fmt.Errorf("%w; is deed dev, or a relay, running there?", err)
	}
	_, err = fmt.Fprintf(out, "250 taken for %s\n", to)
	return err
}

// bring hands one mail over.
func bring(ctx context.Context, address, from, to, text string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until) // on a connection of TCP it never fails
	}
	c, err := smtp.NewClient(conn, "localhost")
	if err != nil {
		return err
	}
	if err := errors.Join(c.Mail(from), c.Rcpt(to)); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return c.Quit()
}
