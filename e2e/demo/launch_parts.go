package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/mastodon"
	"github.com/deedhq/deed/provider/resend"
)

// catch is the far end of the campaigns: a service for e-mails and an instance that has each airport's account. Each
// writes down whom it has reached, before it answers.
func catch(ctx context.Context) error {
	airports, err := readAirports(os.Getenv("DEMO_AIRPORTS"), 1<<20)
	if err != nil {
		return err
	}
	names := map[string]string{} // each account's token is its handle
	for _, a := range airports {
		names[a.account()] = strings.ToLower(a.code)
	}
	mails, closeMails, err := notebook(os.Getenv("DEMO_MAILS"))
	if err != nil {
		return err
	}
	defer closeMails()
	posts, closePosts, err := notebook(os.Getenv("DEMO_POSTS"))
	if err != nil {
		return err
	}
	defer closePosts()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mails/", http.StripPrefix("/mails", &catcher.Resend{Mailbox: mails}))
	mux.Handle("/posts/", http.StripPrefix("/posts", &catcher.Mastodon{Mailbox: posts, Tokens: names, Host: instance}))
	fmt.Println(l.Addr())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// notebook is a mailbox that appends a line to a file for each that it has reached, in one write.
func notebook(path string) (*catcher.Mailbox, func() error, error) {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, err
	}
	return &catcher.Mailbox{Accepted: func(m catcher.Mail) {
		if _, err := fmt.Fprintln(out, strings.Join(m.To, ",")); err != nil {
			fmt.Fprintln(os.Stderr, "not written down:", err)
			os.Exit(4) // who has no book answers nobody
		}
	}}, out.Close, nil
}

// launch is a relay of campaigns: it expands their jobs, ends them, and makes what they owe.
func launch(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DEMO_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	l, err := launchLedger(ctx, pool, "http://"+os.Getenv("DEMO_CATCHERS"), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	w, err := campaign.NewWorker(ctx, pool, campaign.WorkerOptions{PollInterval: 100 * time.Millisecond, Heartbeat: 10 * time.Second})
	if err != nil {
		return err
	}
	if err := l.Register(ctx); err != nil {
		return err
	}
	var working sync.WaitGroup
	working.Go(func() { _ = w.Run(ctx) })
	defer working.Wait()
	fmt.Println("ready")
	return l.Run(ctx)
}

func launchLedger(ctx context.Context, pool *pgxpool.Pool, catchers string, log *slog.Logger) (*delivery.Ledger, error) {
	mail, err := resend.New(resend.Options{APIKey: "re_demo", Endpoint: catchers + "/mails"})
	if err != nil {
		return nil, err
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://airports.example.com", Secret: "a secret of the demonstration's own"})
	if err != nil {
		return nil, err
	}
	providers := map[string]delivery.Provider{"mail": mail, "instance": &accounts{endpoint: catchers + "/posts", of: map[string]*mastodon.Provider{}}}
	opts := delivery.Options{
		Providers: map[string]delivery.ProviderOptions{}, Composer: campaign.NewComposer(pool, liquid.Engine), Links: links, Logger: log,
		PollInterval: 100 * time.Millisecond, ClaimBatch: 100, Lease: lease, BaseRetry: 100 * time.Millisecond,
	}
	for name, p := range providers {
		if os.Getenv("DEMO_SABOTAGE") != "" {
			p = hastyProvider{p}
		}
		// A service's own limits would have thousands take an hour.
		opts.Providers[name] = delivery.ProviderOptions{Provider: p, Concurrency: 16, PerLane: 16, Timeout: 5 * time.Second, Rate: 100_000}
	}
	return delivery.New(ctx, pool, opts)
}

// accounts posts as each of an instance's accounts.
type accounts struct {
	endpoint string
	mu       sync.Mutex
	of       map[string]*mastodon.Provider // guarded by mu
}

func (a *accounts) as(account string) (*mastodon.Provider, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.of[account]
	var err error
	if p == nil {
		p, err = mastodon.New(mastodon.Options{Token: account, Account: account, Endpoint: a.endpoint})
		a.of[account] = p
	}
	return p, err
}

// Capabilities are an instance's, but that what is in doubt may be repeated at once, under its key.
func (*accounts) Capabilities() delivery.Capabilities {
	caps := (&mastodon.Provider{}).Capabilities()
	caps.SettleDelay, caps.Limits = 200*time.Millisecond, nil
	return caps
}

func (a *accounts) Render(d delivery.Draft) ([]byte, error) {
	p, err := a.as(d.Recipient)
	if err != nil {
		return nil, err
	}
	return p.Render(d)
}

func (a *accounts) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	p, err := a.as(r.Recipient())
	if err != nil {
		return delivery.Refused(err)
	}
	defer p.Close() // a connection an account is too many
	return p.Send(ctx, r)
}

// hastyProvider says of some that they were accepted, and has called nobody: what a provider must not do.
type hastyProvider struct{ delivery.Provider }

func (h hastyProvider) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	if strings.Contains(r.Recipient(), "00") {
		return delivery.Accepted("soon")
	}
	return h.Provider.Send(ctx, r)
}
