package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// event is something that was killed.
type event struct {
	what  string
	relay string    // the process id of the relay, "" for the server
	at    time.Time // just before the kill
	back  time.Time // when its successor was ready
}

// script is what dies when, as parts of the time that publishing takes.
var script = []struct {
	when  float64
	relay int // -1 is the server
}{{0.25, 0}, {0.35, 1}, {0.60, -1}, {0.70, 0}}

// publishInTrouble publishes, and kills on the way. Both have ended when it
// returns.
func (s *show) publishInTrouble(ctx context.Context, p *publisher) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.say("publishing %d flights, 1 transaction in %d rolled back on purpose", len(p.flights), rollBackOne)
	s.now(func() string {
		return fmt.Sprintf("%d of %d flights are published", p.done(), len(p.flights))
	})
	trouble := make(chan error, 1)
	go func() {
		err := s.makeTrouble(ctx, p)
		if err != nil {
			cancel(err)
		}
		trouble <- err
	}()
	err := p.run(ctx)
	if err != nil {
		cancel(err)
	}
	if err := errors.Join(err, <-trouble); err != nil {
		return context.Cause(ctx)
	}
	s.now(func() string { return "still draining and counting" })
	s.say("published: %d commits, %d roll-backs", len(p.committed), len(p.rolledBack))
	return nil
}

func (s *show) makeTrouble(ctx context.Context, p *publisher) error {
	started := time.Now()
	for _, step := range script {
		due := started.Add(time.Duration(step.when * float64(s.pace)))
		if err := sleep(ctx, time.Until(due)); err != nil {
			return err
		}
		var e event
		var err error
		if step.relay < 0 {
			e, err = s.killServer(ctx, p)
		} else {
			e, err = s.killRelay(step.relay, p)
		}
		if err != nil {
			return err
		}
		s.events = append(s.events, e)
	}
	return nil
}

func (s *show) killRelay(i int, p *publisher) (event, error) {
	victim := s.relays[i]
	e := event{what: fmt.Sprintf("SIGKILL to relay %d (process %d)", i+1, victim.pid()), relay: fmt.Sprint(victim.pid()), at: time.Now()}
	done := p.done()
	victim.kill()
	s.say("%s after %d of %d flights, and a new one", e.what, done, len(p.flights))
	successor, err := s.startRelay(i)
	if err != nil {
		return e, err
	}
	_, err = successor.greeting()
	e.back = time.Now()
	return e, err
}

func (s *show) killServer(ctx context.Context, p *publisher) (event, error) {
	e := event{what: "SIGKILL to all of PostgreSQL", at: time.Now()}
	done := p.done()
	s.cluster.Kill()
	s.say("%s after %d of %d flights, and recovery", e.what, done, len(p.flights))
	err := s.cluster.Restart(ctx)
	e.back = time.Now()
	return e, err
}
