package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	mailer "github.com/deedhq/deed/provider/smtp"
)

// mailConns is how many connections to the SMTP server there are, of deed and of the bare client.
const mailConns = 32

// doubtsApart is how often the person looks who decides, so that it takes nothing from what is measured.
const doubtsApart = 500 * time.Millisecond

// bareSMTP is a client that has the mails at hand, and no database.
type bareSMTP struct{ bare }

func (bareSMTP) name() string { return "bare SMTP" }

// mails is how many mails a run has.
func mails(o options) int { return 2 * smtpShare(o.messages) }

// mailing measures how fast a campaign goes to an SMTP server, from its deployment to the last mail, by a relay's
// process; and then what is lost and what comes twice if that is killed in the middle and another one takes its place. Whom the server has accepted
// is counted on the way there. Beside it a bare client sends the same to the same server.
func mailing(ctx context.Context, e *env) error {
	address := e.opts.smtp
	if address == "" {
		stop, own, err := serveSMTP(ctx)
		if err != nil {
			return err
		}
		defer stop()
		address = own
	}
	w, err := newWiretap(ctx, address)
	if err != nil {
		return err
	}
	defer w.close()
	n := mails(e.opts)
	if _, bare := e.peer.(bareSMTP); bare {
		began := time.Now()
		if err := sendBare(w.address(), n); err != nil {
			return err
		}
		e.record("mails", "a second", float64(n)/time.Since(began).Seconds())
		lost, twice := w.judge(n)
		e.expect("mails that were lost", lost, 0)
		e.expect("mails that came twice", twice, 0)
		return nil
	}
	return e.mailRuns(ctx, w, n)
}

// mailRuns sends one run undisturbed, and one whose relay is killed.
func (e *env) mailRuns(ctx context.Context, w *wiretap, n int) error {
	pool, err := e.pool(ctx, 1)
	if err != nil {
		return err
	}
	c := &launcher{env: e, pool: pool}
	provider, err := mailer.New(mailer.Options{Address: w.address(), Security: mailer.Plain})
	if err != nil {
		return err
	}
	defer provider.Close()
	l, err := ledgerOf(ctx, pool, delivery.ProviderOptions{Provider: provider})
	if err != nil {
		return err
	}
	if err := l.Register(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := c.mailOnce(ctx, "mails", w, n, false); err != nil {
		return err
	}
	e.record("mails", "a second", float64(n)/w.last().Sub(began).Seconds())
	lost, twice := w.judge(n)
	e.expect("mails that were lost", lost, 0)
	e.expect("mails that came twice", twice, 0)
	w.forget()
	if err := c.mailOnce(ctx, "mails again", w, n, true); err != nil {
		return err
	}
	lost, twice = w.judge(n)
	e.record("lost, the relay killed", "mails", float64(lost))
	e.record("twice, the relay killed", "mails", float64(twice))
	e.expect("mails that were lost, the relay killed", lost, 0)
	e.expect("mails that came twice, the relay killed", twice, 0)
	return nil
}

// mailOnce deploys a run to the audience and has a process carry it out; kill, that is killed when half of it is accepted. What is
// in doubt then a person decides by what the server has accepted.
func (c *launcher) mailOnce(ctx context.Context, request string, w *wiretap, n int, kill bool) error {
	run, err := c.deployAs(ctx, request, "mails", body(1))
	if err != nil {
		return err
	}
	var relays []*child
	defer func() {
		for _, r := range relays {
			r.kill()
		}
	}()
	start := func() error {
		r, err := startChild(ctx, c.url(), mailerEnv+"="+w.address())
		if err == nil {
			relays = append(relays, r)
		}
		return err
	}
	if err := start(); err != nil {
		return err
	}
	doubts, looked := 0, time.Now()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		if kill && len(relays) == 1 && w.count() >= n/2 {
			relays[0].kill()
			if err := start(); err != nil {
				return err
			}
		}
		var ended bool
		var err error
		decided := 0
		if time.Since(looked) > doubtsApart {
			decided, err = c.decide(ctx, run, w)
			looked = time.Now()
		}
		if err == nil {
			err = c.owner.QueryRow(ctx, `select finished_at is not null from deed.campaign_runs where id = $1::text::uuid`, run).Scan(&ended)
		}
		if err != nil {
			return fmt.Errorf("wait for a run's end: %w", err)
		}
		doubts += decided
		if ended {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if kill {
		c.record("decided by a person", "mails", float64(doubts))
	} else {
		c.expect("mails in doubt", doubts, 0)
		if err := c.recordTimes(ctx, relays[0], n); err != nil {
			return err
		}
	}
	p, err := campaign.Verify(ctx, c.pool, run, 1)
	c.expect("findings of "+request, len(p.Findings), 0)
	return err
}

// recordTimes records what processor time n mails have taken: of the sessions, with the expansion, and of the relay's process.
func (c *launcher) recordTimes(ctx context.Context, relay *child, n int) error {
	_, server, err := c.processorTime(ctx)
	if err != nil || server == 0 {
		return err // it is not known here
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", relay.cmd.Process.Pid))
	c.record("mails: server's processor", "µs/mail", float64(server.Microseconds())/float64(n))
	c.record("mails: relay's processor", "µs/mail", float64(ticks(string(stat)).Microseconds())/float64(n))
	return err
}

// decide settles what is held, as a person does who can see what the server has accepted: SMTP has no key, so of
// a call that was cut off nothing else can be known.
func (c *launcher) decide(ctx context.Context, run string, w *wiretap) (n int, err error) {
	rows, err := c.owner.Query(ctx, `
		select id::text, recipient from deed.channel_outbox where status = 'sending' and provider = 'mail' and held_at is not null and run_id = $1::text::uuid`, run)
	if err != nil {
		return 0, err
	}
	held := map[string]string{}
	for rows.Next() {
		var id, to string
		if err := rows.Scan(&id, &to); err != nil {
			return 0, err
		}
		held[id] = to
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for id, to := range held {
		decision := "send_again"
		if w.times(to) > 0 {
			decision = "sent"
		}
		if _, err := c.owner.Exec(ctx, `select deed.settle_delivery($1::text::uuid, $2, 'looked', 'bench')`, id, decision); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// mailerEnv makes a child a relay of campaigns, which sends to the SMTP server that it names.
const mailerEnv = "DEED_BENCH_SMTP"

// mailAsChild is that relay. It ends with its input.
func mailAsChild(ctx context.Context, pool *pgxpool.Pool, address string, in io.Reader) error {
	ctx, stop := context.WithCancel(ctx)
	go func() { // ends with the process that has started this one
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	p, err := mailer.New(mailer.Options{Address: address, Security: mailer.Plain})
	if err != nil {
		return err
	}
	l, err := ledgerOf(ctx, pool, delivery.ProviderOptions{Provider: p, Concurrency: mailConns})
	if err != nil {
		return err
	}
	w, err := campaign.NewWorker(ctx, pool, campaign.WorkerOptions{PollInterval: 100 * time.Millisecond, Heartbeat: 10 * time.Second})
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	working.Go(func() { _ = w.Run(ctx) })
	defer working.Wait()
	return errors.Join(l.Run(ctx), p.Close())
}

// serveSMTP is a server of the program's own.
func serveSMTP(ctx context.Context) (stop func(), address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	serving, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	server := &catcher.SMTP{Mailbox: &catcher.Mailbox{}}
	go func() { done <- server.Serve(serving, l) }()
	return func() {
		cancel()
		<-done
	}, l.Addr().String(), nil
}

// sendBare sends n mails over as many connections as deed has.
func sendBare(address string, n int) error {
	var next atomic.Int64
	failed := make([]error, mailConns)
	var all sync.WaitGroup
	text := strings.Repeat(strings.Repeat("0123456789", 6)+"123\r\n", 16)
	for i := range mailConns {
		all.Go(func() {
			failed[i] = func() error {
				c, err := smtp.Dial(address)
				if err != nil {
					return err
				}
				defer c.Close()
				for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
					if err := errors.Join(c.Mail("shop@example.com"), c.Rcpt(memberAddress(k))); err != nil {
						return err
					}
					data, err := c.Data()
					if err != nil {
						return err
					}
					_, err = fmt.Fprintf(data, "From: Shop <shop@example.com>\r\nTo: %s\r\nSubject: spring is here\r\n\r\n%s", memberAddress(k), text)
					if err := errors.Join(err, data.Close()); err != nil {
						return err
					}
				}
				return c.Quit()
			}()
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
