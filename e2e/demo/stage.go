package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/schema"
)

// show is the demo in progress.
type show struct {
	options
	begun   time.Time
	cluster *pgembed.Cluster
	pool    *pgxpool.Pool
	env     []string
	logs    *os.File
	relays  [2]*exec.Cmd

	rolledBack  atomic.Int64
	publishing  time.Duration
	mu          sync.Mutex
	committed   map[string]time.Time // guarded by mu: when each flight's commit returned
	unsure      int                  // guarded by mu: commits whose answer was lost
	disturbance []time.Time          // guarded by mu: when something was killed
}

func (s *show) say(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (s *show) disturb(format string, args ...any) {
	s.mu.Lock()
	s.disturbance = append(s.disturbance, time.Now())
	s.mu.Unlock()
	s.say(format, args...)
}

// stage runs the whole demo and judges it.
func stage(ctx context.Context, o options) (err error) {
	s := &show{options: o, begun: time.Now(), committed: map[string]time.Time{}}
	flights, err := readFlights(o.input, o.flights)
	if err != nil {
		return err
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "deed-demo-"); err != nil {
			return err
		}
		if !s.keep {
			defer os.RemoveAll(s.dir)
		}
	} else if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	// The server may run as another user, who must get through to its folder.
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	if s.keep {
		defer fmt.Println("the files are in", s.dir)
	}
	if s.logs, err = os.Create(filepath.Join(s.dir, "relays.log")); err != nil {
		return err
	}
	defer s.logs.Close()

	s.say("making a private PostgreSQL (fsync on)")
	if s.cluster, err = pgembed.Start(ctx, pgembed.Options{Dir: filepath.Join(s.dir, "postgres"), Settings: map[string]string{"max_connections": "100"}}); err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		err = errors.Join(err, s.cluster.Stop(stop))
	}()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.pool.Close()
	stopParts, err := s.startParts(ctx)
	defer stopParts()
	if err != nil {
		return err
	}
	s.say("two relays drain to two subscriptions: a webhook receiver and a Go handler")
	if s.sabotage {
		s.say("SABOTAGE: the relays acknowledge half a second before they deliver")
	}

	trouble := make(chan error, 1)
	go func() { trouble <- s.makeTrouble(ctx) }()
	if err := s.publishAll(ctx, flights); err != nil {
		return errors.Join(err, <-trouble)
	}
	s.say("published: %d committed, %d rolled back on purpose", len(s.committed), s.rolledBack.Load())
	if err := <-trouble; err != nil {
		return err
	}
	if err := s.awaitDrained(ctx); err != nil {
		return err
	}
	stopParts()
	return s.report(ctx)
}

func readFlights(path string, most int) ([][]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var lines [][]byte
	for scan := bufio.NewScanner(in); len(lines) < most && scan.Scan(); {
		var f flight
		if err := json.Unmarshal(scan.Bytes(), &f); err != nil || f.ID == "" {
			return nil, fmt.Errorf("%s:%d: not a JSON object with an id", path, len(lines)+1)
		}
		lines = append(lines, bytes.Clone(scan.Bytes()))
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s: no flights in it", path)
	}
	return lines, nil
}

// prepare installs the schema and the demo's own tables.
func (s *show) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.cluster.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := schema.Up(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		create table if not exists flights (id text primary key, details jsonb not null);
		create table if not exists seen_by_handler (flight text not null, arrived_at timestamptz not null)`)
	if err != nil {
		return err
	}
	s.pool, err = pgxpool.New(ctx, s.cluster.URL("postgres"))
	return err
}

// startParts starts the receiver and the relays; the returned function stops
// them, once.
func (s *show) startParts(ctx context.Context) (stop func(), err error) {
	key := make([]byte, 24)
	rand.Read(key)
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return func() {}, err
	}
	address := probe.Addr().String()
	probe.Close()
	s.env = append(os.Environ(), "DEMO_DATABASE_URL="+s.cluster.URL("postgres"), "DEMO_ADDRESS="+address,
		"DEMO_SECRET=whsec_"+base64.StdEncoding.EncodeToString(key), "DEMO_FILE="+s.receiverFile())
	if s.sabotage {
		s.env = append(s.env, "DEMO_SABOTAGE=1")
	}
	far, err := s.start("receiver")
	if err != nil {
		return func() {}, err
	}
	stop = sync.OnceFunc(func() {
		for _, r := range s.relays {
			if r != nil {
				_ = r.Process.Signal(syscall.SIGTERM)
				_ = r.Wait()
			}
		}
		_ = far.Process.Signal(syscall.SIGTERM)
		_ = far.Wait()
	})
	for i := range s.relays {
		if s.relays[i], err = s.start("relay"); err != nil {
			return stop, err
		}
	}
	return stop, ctx.Err()
}

func (s *show) receiverFile() string { return filepath.Join(s.dir, "received-by-webhook") }

func (s *show) start(part string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, part)
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = io.Discard, s.logs
	return cmd, cmd.Start()
}

// makeTrouble kills a relay three times and the server once, spread over the
// publishing.
func (s *show) makeTrouble(ctx context.Context) error {
	step := s.pace / 5
	for n := range 4 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step):
		}
		if n == 2 {
			s.disturb("PostgreSQL is killed (SIGKILL to all its processes) and started again")
			s.cluster.Kill()
			if err := s.cluster.Restart(ctx); err != nil {
				return err
			}
			continue
		}
		i := n % 2
		s.disturb("relay %d is killed with SIGKILL; another takes its place", i+1)
		_ = s.relays[i].Process.Kill()
		_ = s.relays[i].Wait()
		var err error
		if s.relays[i], err = s.start("relay"); err != nil {
			return err
		}
	}
	return nil
}

// publishAll writes each flight and its message in one transaction, and rolls
// one in twenty back.
func (s *show) publishAll(ctx context.Context, flights [][]byte) error {
	started := time.Now()
	type job struct {
		n    int
		line []byte
	}
	jobs := make(chan job)
	var workers sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 8 {
		workers.Go(func() {
			for j := range jobs {
				if err := s.publishOne(ctx, j.line, j.n%20 == 19); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for n, line := range flights {
		due := started.Add(s.pace * time.Duration(n) / time.Duration(len(flights)))
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(due)):
			jobs <- job{n, line}
		}
	}
	close(jobs)
	workers.Wait()
	s.publishing = time.Since(started)
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

var errOnPurpose = errors.New("rolled back on purpose")

// publishOne tries until the flight is in or the transaction was rolled back as
// meant. A commit whose answer was lost is tried again: the primary key and the
// idempotency key make that harmless.
func (s *show) publishOne(ctx context.Context, line []byte, rollBack bool) error {
	var f flight
	if err := json.Unmarshal(line, &f); err != nil {
		return err
	}
	for ctx.Err() == nil {
		tctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := pgx.BeginFunc(tctx, s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(tctx, `insert into flights (id, details) values ($1, $2) on conflict do nothing`, f.ID, string(line)); err != nil {
				return err
			}
			_, err := deed.Publish(tctx, tx, deed.Message{Topic: topic, Key: f.ID, Type: "flight.departed", Payload: line, IdempotencyKey: f.ID})
			if err == nil && rollBack {
				return errOnPurpose
			}
			return err
		})
		cancel()
		switch {
		case errors.Is(err, errOnPurpose):
			s.rolledBack.Add(1)
			return nil
		case err == nil:
			s.mu.Lock()
			s.committed[f.ID] = time.Now()
			s.mu.Unlock()
			return nil
		case deed.CodeOf(err) != deed.Internal:
			return err
		}
		s.mu.Lock()
		s.unsure++
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// awaitDrained waits until both receivers' own records have stopped growing
// and deed says that nothing is unfinished.
func (s *show) awaitDrained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	c, err := deed.New(ctx, s.pool, deed.Options{})
	if err != nil {
		return err
	}
	for {
		topics, err := c.Status(ctx)
		if err == nil && len(topics) == 1 && topics[0].Pending == 0 {
			s.say("drained")
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not drained after a minute: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	select { // what a saboteur has acknowledged may still arrive
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return nil
}
