package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/schema"
)

// show is the demo in progress.
type show struct {
	options
	begun    time.Time
	cluster  *pgembed.Cluster
	pool     *pgxpool.Pool
	fail     context.CancelCauseFunc // ends the demo
	receiver *child
	relayEnv []string

	// While publishing goes on, these are the troublemaker's alone.
	relays [2]*child
	events []event

	mu    sync.Mutex    // guards what follows
	said  time.Time     // the last line
	state func() string // what is going on, for long silences
}

func (s *show) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = time.Now()
	fmt.Printf("%6.1fs  %s\n", time.Since(s.begun).Seconds(), fmt.Sprintf(format, args...))
}

// silence is how long a look at the demo may see nothing new.
const silence = 4 * time.Second

// beat says what is going on whenever nothing was said for long, until ctx ends.
func (s *show) beat(ctx context.Context) {
	for {
		s.mu.Lock()
		wait, state := silence-time.Since(s.said), s.state
		s.mu.Unlock()
		if wait <= 0 {
			s.say("%s", state())
			continue
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

// now sets what is going on.
func (s *show) now(state func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

func (s *show) file(name string) string { return filepath.Join(s.dir, name) }

func (s *show) relayLog(i int) string { return s.file(fmt.Sprintf("relay-%d.log", i+1)) }

// perform runs the whole demo and judges it.
func perform(ctx context.Context, o options, flights []flight, airports []airport) (err error) {
	s := &show{options: o, begun: time.Now(), said: time.Now(), state: func() string { return "still setting up" }}
	ctx, s.fail = context.WithCancelCause(ctx)
	var beating sync.WaitGroup
	defer beating.Wait()
	defer s.fail(nil)
	beating.Go(func() { s.beat(ctx) })
	tidy, err := s.makeFolder()
	if err != nil {
		return err
	}
	defer tidy()
	s.say("making a private PostgreSQL: durable, fsync on")
	// As root the server is another user, who may not get through to our folder
	// unless somebody chose it.
	where := pgembed.Options{TempDir: s.dir}
	if s.keep {
		where = pgembed.Options{Dir: s.file("postgres")}
	}
	if s.cluster, err = pgembed.Start(ctx, where); err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err = errors.Join(err, s.cluster.Stop(stop))
	}()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer s.pool.Close()
	defer s.killParts()
	if err := s.startParts(); err != nil {
		return err
	}

	p := newPublisher(s.pool, flights, s.pace)
	err = s.publishInTrouble(ctx, p)
	if err == nil {
		err = s.awaitDrained(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // what came of it matters less
	}
	if err != nil {
		return err
	}
	if err := s.stopParts(); err != nil {
		return err
	}
	err = s.report(ctx, p)
	if len(airports) == 0 || err != nil && !errors.Is(err, errVerdict) {
		return err
	}
	if second := s.campaigns(ctx, airports); second != nil {
		return second
	}
	return err
}

// makeFolder makes the folder of this run; tidy removes it, or says where it
// is.
func (s *show) makeFolder() (tidy func(), err error) {
	s.keep = s.keep || s.dir != ""
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "deed-demo-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	if s.dir, err = filepath.Abs(s.dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("the folder %s is not empty", s.dir)
	}
	if err != nil {
		return nil, err
	}
	if s.keep {
		return func() { fmt.Printf("\nThe files are in %s\n", s.dir) }, os.Chmod(s.dir, 0o755)
	}
	return func() { _ = os.RemoveAll(s.dir) }, os.Chmod(s.dir, 0o755)
}

// prepare installs the schema and the demo's own tables.
func (s *show) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.cluster.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := schema.Up(ctx, conn); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `
		create table public.flights (id text primary key, details jsonb not null);
		create table public.seen_by_handler (
			flight text not null, message uuid not null, arrived_at timestamptz not null, relay text not null, body text not null
		)`)
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(s.cluster.URL("postgres"))
	if err != nil {
		return err
	}
	cfg.MaxConns = publishers + 2
	s.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return err
}

// startParts starts the receiver and the relays, and returns when they work.
func (s *show) startParts() error {
	key := make([]byte, 24)
	rand.Read(key)
	secret := "DEMO_SECRET=whsec_" + base64.StdEncoding.EncodeToString(key)
	var err error
	env := []string{secret, "DEMO_FILE=" + s.file(receivedFile)}
	if s.receiver, err = startChild("the receiver", "receiver", s.file("receiver.log"), env, s.fail); err != nil {
		return err
	}
	address, err := s.receiver.greeting()
	if err != nil {
		return err
	}
	s.relayEnv = []string{secret, "DEMO_RECEIVER=" + address, "DEMO_DATABASE_URL=" + s.cluster.URL("postgres")}
	if s.sabotage {
		s.relayEnv = append(s.relayEnv, "DEMO_SABOTAGE=1")
	}
	for i := range s.relays {
		if _, err := s.startRelay(i); err != nil {
			return err
		}
	}
	for i, r := range s.relays {
		if _, err := r.greeting(); err != nil {
			return fmt.Errorf("relay %d: %w", i+1, err)
		}
	}
	s.say("relays %d and %d drain topic %q to a webhook receiver (process %d) and to a Go handler",
		s.relays[0].pid(), s.relays[1].pid(), topic, s.receiver.pid())
	if s.sabotage {
		s.say("SABOTAGE: the relays acknowledge %s before they deliver", hastyDelay)
	}
	return nil
}

func (s *show) startRelay(i int) (*child, error) {
	c, err := startChild(fmt.Sprintf("relay %d", i+1), "relay", s.relayLog(i), s.relayEnv, s.fail)
	if err != nil {
		return nil, err
	}
	s.relays[i] = c
	return c, nil
}

func (s *show) parts() []*child {
	var list []*child
	for _, c := range []*child{s.relays[0], s.relays[1], s.receiver} {
		if c != nil {
			list = append(list, c)
		}
	}
	return list
}

// stopParts stops the relays as an operator would, then the receiver.
func (s *show) stopParts() error {
	var errs []error
	for _, c := range s.parts() {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}

func (s *show) killParts() {
	for _, c := range s.parts() {
		c.kill()
	}
}

// awaitDrained waits until deed says that nothing is unfinished. Whether that
// is true, the report says.
func (s *show) awaitDrained(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*patience, errors.New("not drained after three minutes"))
	defer cancel()
	c, err := admin.New(ctx, s.pool, admin.Options{})
	if err != nil {
		return err
	}
	for said := time.Now(); ; {
		topics, err := c.Status(ctx)
		var left int64
		more := ""
		for _, t := range topics {
			left += t.Pending
			if t.AtLeast {
				more = " or more"
			}
		}
		if err == nil && len(topics) > 0 && left == 0 {
			s.say("drained")
			return nil
		}
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			s.say("%d%s deliveries to go", left, more)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
