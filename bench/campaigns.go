package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
)

const (
	loadedAtOnce = 10_000 // members of one call
	expanders    = 2      // workers that expand, each on a connection of its own at a time
	resets       = 20     // password resets behind a campaign
	watches      = 50     // looks at a run
	workersName  = "workers"
)

// campaignPeer is deed with audiences that are ready, alone or beside a snapshot that somebody holds.
type campaignPeer struct {
	deedPeer
	held bool
}

func (p campaignPeer) name() string {
	if p.held {
		return "snapshot held"
	}
	return p.deedPeer.name()
}

func (campaignPeer) template() string { return "campaigns" }
func (campaignPeer) tuning() string   { return "" }

// sendShare is how many members a run has that is sent: of bodies of 8 KB a quarter of it.
func sendShare(messages int) int { return max(messages, 40) }

// fillTemplate loads the audiences: one of all members, and one of each size that is sent.
func (p campaignPeer) fillTemplate(ctx context.Context, pool *pgxpool.Pool, o options) error {
	n := sendShare(o.messages)
	for name, members := range map[string]int{"all": o.members, "1 KB": n, "8 KB": n / 4, "mails": mails(o)} {
		if err := loadAudience(ctx, pool, name, members); err != nil {
			return err
		}
	}
	return nil
}

func loadAudience(ctx context.Context, pool *pgxpool.Pool, name string, members int) error {
	a, err := campaign.OpenAudience(ctx, pool, campaign.Scope{}, name, campaign.Email)
	if err != nil {
		return err
	}
	for from := 0; from < members; from += loadedAtOnce {
		list := make([]campaign.Member, 0, loadedAtOnce)
		for i := from; i < min(from+loadedAtOnce, members); i++ {
			list = append(list, campaign.Member{Address: memberAddress(i), Zone: "Europe/Paris", Data: fmt.Appendf(nil, `{"name": "Person %d", "city": "Lyon"}`, i)})
		}
		if err := a.Add(ctx, pool, list...); err != nil {
			return err
		}
	}
	return a.Finish(ctx, pool)
}

func memberAddress(i int) string { return fmt.Sprintf("person%d@example%d.com", i, i%50) }

// campaigning measures a run to everybody: how long it takes to reserve it; a password reset of the same tenant
// behind it, what the roll-up costs and how long a look takes meanwhile; and then, while it is paused, how
// fast runs are made through a provider that does nothing.
func campaigning(ctx context.Context, e *env) error {
	if e.peer.(campaignPeer).held {
		release, err := e.holdSnapshot(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	c, err := e.campaign(ctx, &noop{}, delivery.ProviderOptions{Concurrency: 256})
	if err != nil {
		return err
	}
	run, err := c.deploy(ctx, "all", body(1))
	if err != nil {
		return err
	}
	if err := c.reserveAll(ctx, run); err != nil {
		return err
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	if err := c.behind(ctx, run); err != nil {
		return err
	}
	if err := c.looks(ctx, run); err != nil {
		return err
	}
	if _, err := campaign.Pause(ctx, c.pool, campaign.Scope{}, run, audit.Act{By: "bench"}); err != nil && deed.CodeOf(err) != deed.Conflict { // a small one has ended by now
		return err
	}
	for _, kb := range []int{1, 8} {
		if err := c.send(ctx, kb); err != nil {
			return err
		}
	}
	return nil
}

// holdSnapshot has somebody hold one from before anything is done, until release.
func (e *env) holdSnapshot(ctx context.Context) (release func(), err error) {
	held, err := pgx.Connect(ctx, e.cluster.URL(e.database))
	if err != nil {
		return nil, err
	}
	if _, err := held.Exec(ctx, `begin isolation level repeatable read; select count(*) from deed.runs`); err != nil {
		return nil, errors.Join(fmt.Errorf("hold a snapshot: %w", err), held.Close(ctx))
	}
	return func() { _ = held.Close(context.WithoutCancel(ctx)) }, nil
}

// launcher deploys runs through one provider, called "mail", and has them carried out.
type launcher struct {
	*env
	pool    *pgxpool.Pool // of those who send
	workers *pgxpool.Pool // of those who expand and roll up; its sessions are called workersName
	p       delivery.Provider
	ledger  *delivery.Ledger
}

func (e *env) campaign(ctx context.Context, p delivery.Provider, opts delivery.ProviderOptions) (*launcher, error) {
	c := &launcher{env: e, p: p}
	var err error
	if c.pool, err = e.pool(ctx, workerConns); err != nil {
		return nil, err
	}
	if c.workers, err = e.pool(ctx, expanders+1); err != nil {
		return nil, err
	}
	for _, conn := range c.workers.AcquireAllIdle(ctx) {
		_, err = conn.Exec(ctx, `set application_name = '`+workersName+`'`)
		conn.Release()
		if err != nil {
			return nil, err
		}
	}
	opts.Provider = p
	if c.ledger, err = ledgerOf(ctx, c.pool, opts); err != nil {
		return nil, err
	}
	return c, c.ledger.Register(ctx)
}

// ledgerOf makes what campaigns owe through the provider "mail".
func ledgerOf(ctx context.Context, pool *pgxpool.Pool, opts delivery.ProviderOptions) (*delivery.Ledger, error) {
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://shop.example.com", Secret: "a secret of thirty-two characters"})
	if err != nil {
		return nil, err
	}
	return delivery.New(ctx, pool, delivery.Options{
		Providers: map[string]delivery.ProviderOptions{"mail": opts}, Composer: campaign.NewComposer(pool, liquid.Engine), Links: links,
		ClaimBatch: 500, PollInterval: 100 * time.Millisecond, Lease: 5 * time.Second,
	})
}

// body is what an e-mail of so many KB says.
func body(kb int) campaign.Content {
	text := "Hello {{ contact.name }} in {{ contact.city }}\n" + strings.Repeat(strings.Repeat("0123456789", 6)+"123\n", 16*kb) + "{{ unsubscribe_url }}"
	return campaign.Content{Subject: "{{ contact.name }}, spring is here", Text: text}
}

// deploy makes the run of a content to the audience of a name.
func (c *launcher) deploy(ctx context.Context, audience string, content campaign.Content) (string, error) {
	return c.deployAs(ctx, audience, audience, content)
}

func (c *launcher) deployAs(ctx context.Context, request, audience string, content campaign.Content) (string, error) {
	a, _, err := campaign.FindAudience(ctx, c.pool, campaign.Scope{}, audience)
	if err != nil {
		return "", err
	}
	put, err := campaign.Put(ctx, c.pool, campaign.Scope{}, "to "+audience, content)
	if err != nil {
		return "", err
	}
	d, err := campaign.Deploy(ctx, c.pool, campaign.Scope{}, campaign.Request{
		Campaign: put.ID, Audience: a.ID, ID: request, Channel: campaign.Email, Provider: "mail", Purpose: "newsletter", From: "Shop <shop@example.com>",
	})
	return d.Run, err
}

// work has workers expand and roll up until stop, which says how they ended.
func (c *launcher) work(ctx context.Context, n int) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	ended := make([]error, n)
	for i := range n {
		w, err := campaign.NewWorker(ctx, c.workers, campaign.WorkerOptions{Worker: fmt.Sprint("worker ", i)})
		if err != nil {
			cancel()
			return nil, err
		}
		working.Go(func() { ended[i] = w.Run(ctx) })
	}
	return func() error {
		cancel()
		working.Wait()
		return errors.Join(ended...)
	}, nil
}

// reserveAll expands a run, and records how long that takes.
func (c *launcher) reserveAll(ctx context.Context, run string) error {
	if err := c.exec(ctx, `checkpoint`); err != nil {
		return err
	}
	_, before, err := c.processorTime(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	stop, err := c.work(ctx, expanders)
	if err != nil {
		return err
	}
	err = c.until(ctx, `select not exists (select from deed.job_queue where run_id = $1::text::uuid and expanded_at is null and status <> 'dead')`, run)
	took := time.Since(began)
	_, after, failed := c.processorTime(ctx)
	if err := errors.Join(err, failed, stop()); err != nil {
		return err
	}
	var reserved int
	if err := c.owner.QueryRow(ctx, `select count(*) from deed.channel_outbox where run_id = $1::text::uuid and status = 'queued'`, run).Scan(&reserved); err != nil {
		return err
	}
	c.expect("deliveries that were reserved", reserved, c.opts.members)
	c.record("reserved", "deliveries/s", float64(reserved)/took.Seconds())
	c.record("to the last reservation", "s", took.Seconds())
	c.record("reserved: server's processor", "µs/delivery", float64((after-before).Microseconds())/float64(reserved))
	return nil
}

// until waits for a question about a run to be answered with yes.
func (e *env) until(ctx context.Context, question, run string) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		var yes bool
		if err := e.owner.QueryRow(ctx, question, run).Scan(&yes); err != nil {
			return fmt.Errorf("%s: %w", question, err)
		}
		if yes {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// behind measures how long a password reset takes from its commit to its call while the run is sent that
// was reserved before it, and what part of a core rolling up takes meanwhile.
func (c *launcher) behind(ctx context.Context, run string) error {
	watch := &resetWatch{noop: c.p.(*noop), seen: map[string]time.Time{}}
	l, err := ledgerOf(ctx, c.pool, delivery.ProviderOptions{Provider: watch, Concurrency: 256})
	if err != nil {
		return err
	}
	end, err := c.serve(ctx, l)
	if err != nil {
		return err
	}
	began, rolled, err := c.rolled(ctx)
	if err != nil {
		return errors.Join(err, end())
	}
	var took []float64
	for i := range resets {
		time.Sleep(c.opts.steady / resets)
		to := fmt.Sprintf("reset%d@example.com", i)
		payload := delivery.EmailPayload{From: "shop@example.com", Subject: "Your password", Text: "https://shop.example.com/reset"}.JSON()
		_, err := delivery.Reserve(ctx, c.pool, delivery.Delivery{Channel: delivery.Email, Provider: "mail", Recipient: to, Payload: payload, Key: delivery.NewKey("reset", to)})
		committed := time.Now()
		if err != nil {
			return errors.Join(err, end())
		}
		called, err := watch.await(ctx, to)
		if err != nil {
			return errors.Join(err, end())
		}
		took = append(took, max(0, called.Sub(committed).Seconds()))
	}
	ended, rolledThen, err := c.rolled(ctx)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	slices.Sort(took)
	c.record("a password reset behind it, p50", "ms", 1000*took[len(took)/2])
	c.record("a password reset behind it, max", "ms", 1000*took[len(took)-1])
	c.record("rolling up", "% of a core", 100*(rolledThen-rolled).Seconds()/ended.Sub(began).Seconds())
	return nil
}

// rolled is what processor time the sessions of those have taken that expand and roll up, with all else that they ask.
func (c *launcher) rolled(ctx context.Context) (at time.Time, took time.Duration, err error) {
	took, err = c.sessionsTime(ctx, workersName)
	return time.Now(), took, err
}

// serve has a ledger send, and a worker roll up, until end.
func (c *launcher) serve(ctx context.Context, l *delivery.Ledger) (end func() error, err error) {
	stop, err := c.work(ctx, 1)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() { result <- l.Run(running) }()
	return func() error {
		cancel()
		return errors.Join(<-result, stop())
	}, nil
}

// looks measures how long it takes to look at a run, as deed campaign watch does.
func (c *launcher) looks(ctx context.Context, run string) error {
	took := make([]float64, watches)
	for i := range took {
		began := time.Now()
		if _, err := campaign.Show(ctx, c.pool, run); err != nil {
			return err
		}
		took[i] = time.Since(began).Seconds()
	}
	slices.Sort(took)
	c.record("a look at it", "ms", 1000*took[watches/2])
	return nil
}

// send measures how fast a run of bodies of so many KB is made, from its last reservation to its end.
func (c *launcher) send(ctx context.Context, kb int) error {
	name := fmt.Sprintf("%d KB", kb)
	run, err := c.deploy(ctx, name, body(kb))
	if err != nil {
		return err
	}
	stop, err := c.work(ctx, expanders)
	if err != nil {
		return err
	}
	err = c.until(ctx, `select not exists (select from deed.job_queue where run_id = $1::text::uuid and expanded_at is null)`, run)
	if err := errors.Join(err, stop(), c.env.settle(ctx)); err != nil {
		return err
	}
	calls := &c.p.(*noop).calls
	own, server, err := c.processorTime(ctx)
	if err != nil {
		return err
	}
	before, began := calls.Load(), time.Now()
	end, err := c.serve(ctx, c.ledger)
	if err != nil {
		return err
	}
	err = c.until(ctx, `select finished_at is not null from deed.campaign_runs where id = $1::text::uuid`, run)
	took := time.Since(began)
	ownThen, serverThen, failed := c.processorTime(ctx)
	if err := errors.Join(err, failed, end()); err != nil {
		return err
	}
	p, err := campaign.Verify(ctx, c.pool, run, 1)
	if err != nil {
		return err
	}
	c.expect("findings of a run of "+name, len(p.Findings), 0)
	c.expect("calls for a run of "+name, int(calls.Load()-before), int(p.Members))
	c.record("sent, bodies of "+name, "deliveries/s", float64(p.Members)/took.Seconds())
	c.record("sent, bodies of "+name+": server's processor", "µs/delivery", float64((serverThen-server).Microseconds())/float64(p.Members))
	c.record("sent, bodies of "+name+": this program's", "µs/delivery", float64((ownThen-own).Microseconds())/float64(p.Members))
	return nil
}

// resetWatch is the provider that does nothing, and notes when it is called for a reset.
type resetWatch struct {
	*noop
	mu   sync.Mutex
	seen map[string]time.Time // guarded by mu
}

func (w *resetWatch) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	if to := r.Recipient(); strings.HasPrefix(to, "reset") {
		w.mu.Lock()
		w.seen[to] = time.Now()
		w.mu.Unlock()
	}
	return w.noop.Send(ctx, r)
}

// await returns when it was called for an address.
func (w *resetWatch) await(ctx context.Context, to string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		w.mu.Lock()
		at, ok := w.seen[to]
		w.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%s was not called: %w", to, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}
