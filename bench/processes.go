package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// processPeer is a stream of eight lanes that so many processes drain.
type processPeer struct {
	streamPeer
	processes int
}

const processLanes = 8

func (p processPeer) name() string {
	if p.processes == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", p.processes)
}

func (processPeer) template() string { return "lanes" }

func (p processPeer) install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := p.migrate(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, `select deed.declare_topic('bench', 'stream', $1)`, processLanes); err != nil {
		return err
	}
	return p.subscribe(ctx, pool)
}

// drainByProcesses measures a drain by processes of their own, from when their
// sinks begin until the database has everything finished. They start on an empty
// log and have shared out the lanes when it is published; their sinks wait
// meanwhile.
func drainByProcesses(ctx context.Context, e *env) error {
	p := e.peer.(processPeer)
	n := e.opts.messages
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	children := make([]*child, p.processes)
	for i := range children {
		var err error
		if children[i], err = startChild(ctx, e.url()); err != nil {
			return err
		}
		defer children[i].kill()
	}
	if err := e.lanesShared(ctx, p.processes, processLanes); err != nil {
		return err
	}
	if _, err := e.fill(ctx, n); err != nil {
		return err
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // until each has asked for news: up to 450 ms when idle
	started := time.Now()
	for _, c := range children {
		if err := c.say("go"); err != nil {
			return err
		}
	}
	if err := e.totalReaches(ctx, n); err != nil {
		return err
	}
	e.record("drained", "messages/s", float64(n)/time.Since(started).Seconds())
	var all tally
	for _, c := range children {
		t, err := c.end()
		if err != nil {
			return err
		}
		if t.Calls == 0 {
			e.expect("messages of one of the processes", 0, n/p.processes)
		}
		all.add(t)
	}
	e.expect("messages of all processes", int(all.Calls), n)
	e.expect("their numbers' sum", int(all.Sum), n*(n-1)/2)
	e.expect("their numbers' squares' sum", int(all.Squares), squares(n))
	return e.expectStored(ctx, 0, n)
}

// squares is the sum of the squares of all numbers below n, which may overflow as
// the processes' does.
func squares(n int) (sum int) {
	for i := range n {
		sum += i * i
	}
	return sum
}

// lanesShared waits until each of so many workers holds as many of all lanes.
func (e *env) lanesShared(ctx context.Context, workers, lanes int) error {
	for {
		var shared bool
		err := e.owner.QueryRow(ctx, `
			select count(*) = $1 and min(n) = max(n) and sum(n) = $2
			from (select count(*) as n from deed.lanes where worker is not null group by worker) w`, workers, lanes).Scan(&shared)
		if err != nil {
			return fmt.Errorf("wait for %d workers to share %d lanes: %w", workers, lanes, err)
		}
		if shared {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// totalReaches waits until the lanes have finished n messages.
func (e *env) totalReaches(ctx context.Context, n int) error {
	for {
		var total int
		err := e.owner.QueryRow(ctx, `
			select coalesce(sum(g.total), 0)
			from deed.lanes l
			cross join lateral (
			  select g.total from deed.progress g where g.subscription = l.subscription and g.lane = l.lane order by g.n desc limit 1
			) g`).Scan(&total)
		if err != nil {
			return fmt.Errorf("wait for the lanes: %d of %d: %w", total, n, err)
		}
		if total >= n {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// tally is what a process says of the numbers that its sink was given: sums that
// a number that is missing and one that is twice do not leave as they are.
type tally struct{ Calls, Sum, Squares int64 }

func (t *tally) add(u tally) {
	t.Calls += u.Calls
	t.Sum += u.Sum
	t.Squares += u.Squares
}

// child is a process that drains: this program once more.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// childEnv makes a process of this program a worker of the database that it
// names.
const childEnv = "DEED_BENCH_WORKER"

func startChild(ctx context.Context, url string, env ...string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program)}
	c.cmd.Env = append(append(os.Environ(), childEnv+"="+url), env...)
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker's process: %w", err)
	}
	return c, nil
}

func (c *child) say(word string) error {
	_, err := fmt.Fprintln(c.in, word)
	return err
}

// end stops the process and returns what it has counted.
func (c *child) end() (t tally, err error) {
	if err := c.in.Close(); err != nil {
		return t, err
	}
	if _, err := fmt.Fscan(c.out, &t.Calls, &t.Sum, &t.Squares); err != nil {
		return t, errors.Join(fmt.Errorf("read a worker's counts: %w", err), c.cmd.Wait())
	}
	return t, c.cmd.Wait()
}

func (c *child) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// workAsChild drains the stream until its input ends, and then says what came.
// Its sink waits for a first line.
func workAsChild(ctx context.Context, url string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the parent's business
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if address := os.Getenv(mailerEnv); address != "" {
		return mailAsChild(ctx, pool, address, in)
	}
	sink := &tallySink{gate: make(chan struct{})}
	w, err := startClient(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "bench", Name: "handler", Sink: sink, BatchSize: deedBatch},
	}})
	if err != nil {
		return err
	}
	open := sync.OnceFunc(func() { close(sink.gate) })
	for lines := bufio.NewScanner(in); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "go" {
			open()
		}
	}
	open()
	if err := w.stop(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, sink.calls.Load(), sink.sum.Load(), sink.squares.Load())
	return err
}

// tallySink counts, once its gate is open.
type tallySink struct {
	gate                chan struct{}
	calls, sum, squares atomic.Int64
}

func (*tallySink) BatchSize() int { return deedBatch }

func (s *tallySink) Deliver(ctx context.Context, msgs []deed.Message) []error {
	select {
	case <-s.gate:
	case <-ctx.Done():
		return fail(len(msgs), ctx.Err())
	}
	var t tally
	for i := range msgs {
		n, err := noteNumber(msgs[i].Payload)
		if err != nil {
			return fail(len(msgs), err)
		}
		t.add(tally{1, int64(n), int64(n) * int64(n)})
	}
	s.calls.Add(t.Calls)
	s.sum.Add(t.Sum)
	s.squares.Add(t.Squares)
	return nil
}
