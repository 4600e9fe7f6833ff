package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"
)

const (
	dialTimeout = 10 * time.Second
	noopTimeout = 2 * time.Second
	mostIdle    = 100
	// justUsed is for how long after a message was accepted the next one is begun without asking whether the server is still there.
	justUsed = time.Second
)

// conn is a conversation with the server.
type conn struct {
	net      net.Conn
	answers  *answers // of net, below its encryption
	client   *gosmtp.Client
	messages int
	since    time.Time // when it was put aside
	proved   bool      // the server has answered since it was taken
	clean    bool      // the last message was accepted, so that nothing is begun
	unusable bool      // the server may be about to take a message of which nothing is to be sent
}

func (c *conn) close() { _ = c.net.Close() } // without QUIT: nothing hangs on it

// bound ends the conversation's reads and writes with ctx.
func (c *conn) bound(ctx context.Context) (release func()) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.net.SetDeadline(deadline) // a dead connection says so at its next use
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) })
	return func() {
		if stop() {
			_ = c.net.SetDeadline(time.Time{})
		}
	}
}

// connection takes one that is idle and still lives, or makes one.
func (p *Provider) connection(ctx context.Context) (*conn, error) {
	for {
		c := p.idle.take(p.opts.Idle)
		if c == nil {
			return p.dial(ctx)
		}
		clean := c.clean
		c.clean, c.proved = false, false
		if clean && time.Since(c.since) < justUsed {
			return c, nil
		}
		bounded, cancel := context.WithTimeout(ctx, noopTimeout)
		release := c.bound(bounded)
		err := c.client.Reset()
		release()
		cancel()
		if err == nil {
			c.proved = true
			return c, nil
		}
		c.close()
	}
}

// command is one that comes before a message.
type command struct {
	what string
	line string
	want int // the answer that lets it go on, or how it begins
}

// begin has the server take the sender and the recipients, and await the message. Of an error it says at which
// step; what was said behind that in the same breath is answered by then.
func (c *conn) begin(e envelope) (what string, err error) {
	list := c.commands(e)
	for _, one := range list {
		if strings.ContainsAny(one.line, "\r\n") {
			return one.what, errors.New("an address has a line break")
		}
	}
	together := 1
	if pipelining, _ := c.client.Extension("PIPELINING"); pipelining {
		together = len(list)
		if len(e.CC) > 0 {
			together-- // it would await the message for those whom it has taken
		}
	}
	for len(list) > 0 {
		n := min(together, len(list))
		if what, err := c.ask(list[:n]); err != nil {
			return what, err
		}
		list = list[n:]
	}
	return "", nil
}

func (c *conn) commands(e envelope) []command {
	from := "MAIL FROM:<" + e.From + ">"
	for _, extension := range []struct{ name, parameter string }{{"8BITMIME", " BODY=8BITMIME"}, {"SMTPUTF8", " SMTPUTF8"}} {
		if ok, _ := c.client.Extension(extension.name); ok {
			from += extension.parameter
		}
	}
	list := []command{{stepMail, from, 250}, {stepRcpt, "RCPT TO:<" + e.To + ">", 25}}
	for _, to := range e.CC {
		list = append(list, command{stepCopy, "RCPT TO:<" + to + ">", 25})
	}
	return append(list, command{stepData, "DATA", 354})
}

// ask says commands in one breath and reads what is answered to each, until the server has closed the connection. The error is
// of the first that was refused.
func (c *conn) ask(list []command) (what string, err error) {
	text := c.client.Text
	for _, one := range list {
		_, _ = text.W.WriteString(one.line + "\r\n") // an error stays until the flush
	}
	if err := text.W.Flush(); err != nil {
		return list[0].what, err
	}
	for _, one := range list {
		c.answers.next()
		_, _, answer := text.ReadResponse(one.want)
		code := codeOf(answer)
		switch {
		case err == nil && answer != nil:
			if what, err = one.what, answer; code == 0 || code == 421 {
				return what, err
			}
		case err != nil && (answer == nil && one.what == stepData || answer != nil && code < 400 || code == 421):
			// It awaits a message for nobody, or makes no sense: the next one needs another connection.
			c.unusable = true
			return what, err
		}
		c.proved = true
	}
	return what, err
}

// say hands the message over, and returns what is answered to it.
func (c *conn) say(message []byte) error {
	w := c.client.Text.DotWriter()
	if _, err := w.Write(message); err != nil {
		return err
	}
	_ = w.Close() // what is wrong with it, the answer says, or that there is none
	_, _, err := c.client.Text.ReadResponse(250)
	return err
}

// dial connects, encrypts and authenticates.
func (p *Provider) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.opts.TLS != nil {
		config = p.opts.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = p.host
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.opts.Address)
	if err != nil {
		return nil, err
	}
	bounded := &answers{Conn: raw}
	c := &conn{net: bounded, answers: bounded, proved: true}
	if p.opts.Security == ImplicitTLS {
		c.net = tls.Client(bounded, config)
	}
	release := c.bound(ctx)
	defer release()
	if err := p.greet(c, config); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (p *Provider) greet(c *conn, config *tls.Config) (err error) {
	if c.client, err = gosmtp.NewClient(c.net, p.host); err != nil {
		return err
	}
	if err := c.client.Hello(p.opts.Hello); err != nil {
		return err
	}
	if p.opts.Security == StartTLS {
		if ok, _ := c.client.Extension("STARTTLS"); !ok {
			return errors.New("the server does not offer STARTTLS, and nothing is sent in the clear; see security")
		}
		if err := c.client.StartTLS(config); err != nil {
			return err
		}
	}
	if p.opts.User == "" {
		return nil
	}
	if ok, _ := c.client.Extension("AUTH"); !ok {
		return errors.New("the server does not offer AUTH")
	}
	return c.client.Auth(gosmtp.PlainAuth("", p.opts.User, p.opts.Password, p.host, false))
}

// idle holds the connections that are not in use, the last one first.
type idle struct {
	mu   sync.Mutex
	list []*conn
}

func (i *idle) take(most time.Duration) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.list) > 0 {
		c := i.list[len(i.list)-1]
		i.list = i.list[:len(i.list)-1]
		if time.Since(c.since) < most {
			return c
		}
		c.close()
	}
	return nil
}

func (i *idle) put(c *conn, opts Options) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if c.messages >= opts.PerConnection || len(i.list) >= mostIdle {
		c.close()
		return
	}
	for len(i.list) > 0 && time.Since(i.list[0].since) >= opts.Idle {
		i.list[0].close()
		i.list = i.list[1:]
	}
	c.since = time.Now()
	i.list = append(i.list, c)
}

func (i *idle) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.list {
		c.close()
	}
	i.list = nil
}
