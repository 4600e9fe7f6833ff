package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	gosmtp "github.com/wneessen/go-mail/smtp"
)

const (
	dialTimeout = 10 * time.Second
	noopTimeout = 2 * time.Second
	mostIdle    = 100
)

// conn is a conversation with the server.
type conn struct {
	net      net.Conn
	client   *gosmtp.Client
	messages int
	since    time.Time // when it was put aside
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
		bounded, cancel := context.WithTimeout(ctx, noopTimeout)
		release := c.bound(bounded)
		err := c.client.Reset()
		release()
		cancel()
		if err == nil {
			return c, nil
		}
		c.close()
	}
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
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.opts.Address)
	if err != nil {
		return nil, err
	}
	if p.opts.Security == ImplicitTLS {
		nc = tls.Client(nc, config)
	}
	c := &conn{net: nc}
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
