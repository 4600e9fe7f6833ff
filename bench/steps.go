package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/engine/local"
	workflow "github.com/deedhq/deed/run"
)

const (
	stepCallers  = 64 // runs that are in flight at a time
	stepsARun    = 10
	stepsPace    = 50      // chains a second, where the time between two steps is taken
	mostSleepers = 100_000 // runs that sleep beside
)

// stepping measures runs on the embedded engine: as many as 64 callers have in flight, of functions with no, one and ten inner steps;
// runs of ten steps that wait, done by two engines; the time between the end of a step and the beginning of the next;
// and what runs that sleep cost those beside them.
func stepping(ctx context.Context, e *env) error {
	n := max(50, e.opts.messages/10)
	s := &stepper{env: e}
	var err error
	if s.starting, err = e.pool(ctx, 16); err != nil {
		return err
	}
	if s.working, err = e.pool(ctx, 16); err != nil {
		return err
	}
	var spent [stepsARun + 1]float64
	for _, steps := range []int{0, 1, stepsARun} {
		count := max(50, n/max(1, steps))
		took, processor, err := s.inFlight(ctx, fmt.Sprint("steps-", steps), count)
		if err != nil {
			return fmt.Errorf("%d inner steps: %w", steps, err)
		}
		spent[steps] = processor
		e.record(fmt.Sprintf("64 in flight, %d inner steps", steps), "runs/s", float64(count)/took.Seconds())
		e.record(fmt.Sprintf("processor, %d inner steps", steps), "µs/run", processor)
	}
	e.record("processor, an inner step", "µs", (spent[stepsARun]-spent[0])/stepsARun)
	if err := s.draining(ctx, max(20, n/10)); err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	if err := s.chains(ctx); err != nil {
		return fmt.Errorf("from step to step: %w", err)
	}
	return s.besideSleepers(ctx, n)
}

// stepper makes runs, and does them.
type stepper struct {
	*env
	starting, working *pgxpool.Pool
	made              int // requests so far, so that each is another
}

// function is one with so many inner steps, which do nothing.
func function(steps int) local.Handler {
	return local.Func(fmt.Sprint("steps-", steps), 1, func(ctx context.Context, _ map[string]any) (int, error) {
		for i := range steps {
			if _, err := workflow.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) { return i, nil }); err != nil {
				return 0, err
			}
		}
		return steps, nil
	})
}

// engine does runs until stop is called.
func (s *stepper) engine(ctx context.Context, handlers ...local.Handler) (e *local.Engine, stop func() error, err error) {
	for _, steps := range []int{0, 1, stepsARun} {
		handlers = append(handlers, function(steps))
	}
	// What an engine serves stands with its name, so each has one.
	s.made++
	e, err = local.New(ctx, s.working, local.Options{Handlers: handlers, Concurrency: stepCallers, Worker: fmt.Sprint("bench-", s.made)})
	if err != nil {
		return nil, nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(running) }()
	return e, func() error {
		cancel()
		return <-ended
	}, nil
}

// inFlight has count runs done of which 64 are in flight at a time, each asked for by a caller of its own through one Starter, and returns what each took of all processors, in µs.
func (s *stepper) inFlight(ctx context.Context, plan string, count int) (took time.Duration, processor float64, err error) {
	e, stop, err := s.engine(ctx)
	if err != nil {
		return 0, 0, err
	}
	s.made++
	round := s.made
	own, sessions, err := s.processorTime(ctx)
	if err != nil {
		return 0, 0, errors.Join(err, stop())
	}
	began := time.Now()
	places := make(chan struct{}, stepCallers)
	over, cancel := context.WithCancel(ctx)
	var watching, callers sync.WaitGroup
	// A caller goes on when an end is recorded, whichever: they are all alike.
	watching.Go(func() {
		seen := int64(0)
		for over.Err() == nil {
			for now := e.Stats().Completed; seen < now; seen++ {
				<-places
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	starter, err := workflow.NewStarter(s.starting, workflow.StarterOptions{Engine: e})
	if err != nil {
		cancel()
		watching.Wait()
		return 0, 0, errors.Join(err, stop())
	}
	watching.Go(func() { _ = starter.Run(over) }) // it has no other error than that it was run before
	var next atomic.Int64
	errs := make([]error, stepCallers)
	for c := range stepCallers {
		callers.Go(func() {
			for errs[c] == nil {
				i := next.Add(1)
				if i > int64(count) {
					return
				}
				places <- struct{}{}
				_, errs[c] = starter.Start(ctx, workflow.Request{Plan: plan, ID: fmt.Sprint(round, "-", i)})
			}
		})
	}
	callers.Wait()
	err = errors.Join(errs...)
	for err == nil && e.Stats().Completed < int64(count) {
		if took = time.Since(began); took > drainLimit {
			err = fmt.Errorf("%d of %d runs have ended after %s", e.Stats().Completed, count, drainLimit)
		}
		time.Sleep(200 * time.Microsecond)
	}
	took = time.Since(began)
	ownThen, sessionsThen, then := s.processorTime(ctx)
	cancel()
	watching.Wait()
	if err = errors.Join(err, then, stop()); err != nil {
		return 0, 0, err
	}
	s.expect("runs that have ended well, of "+plan, int(e.Stats().Completed), count)
	return took, float64((ownThen - own + sessionsThen - sessions).Microseconds()) / float64(count), nil
}

// chain is a plan of ten steps, each after the one before.
func (s *stepper) chain(ctx context.Context, name, handler string) error {
	text := ""
	for i := range stepsARun {
		after := ""
		if i > 0 {
			after = fmt.Sprintf(`"after":["s%d"],`, i-1)
		}
		text += fmt.Sprintf(`,"s%d":{%s"handler":%q,"kind":"go"}`, i, after, handler)
	}
	_, err := s.starting.Exec(ctx, `select deed.put_plan(convert_to($1, 'UTF8'))`, fmt.Sprintf(`{"plan":%q,"steps":{%s},"version":"1"}`, name, text[1:]))
	return err
}

// many starts count runs of a plan, in one transaction a thousand.
func (s *stepper) many(ctx context.Context, plan string, count int) error {
	s.made++
	for done := 0; done < count; done += 1000 {
		if _, err := s.starting.Exec(ctx, `select count(deed.start_run($1, '1', $2 || '-' || g)) from generate_series(1, $3::int) g`, plan, fmt.Sprint(s.made, "-", done), min(1000, count-done)); err != nil {
			return err
		}
	}
	return nil
}

// draining has runs of ten steps that wait be done by two engines.
func (s *stepper) draining(ctx context.Context, count int) error {
	if err := s.chain(ctx, "drained", "nothing"); err != nil {
		return err
	}
	if err := s.many(ctx, "drained", count); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	nothing := local.Step("nothing", func(context.Context, map[string]any) (map[string]any, error) { return nil, nil })
	began := time.Now()
	var engines []*local.Engine
	var stops []func() error
	var err error
	for range 2 {
		e, stop, bad := s.engine(ctx, nothing)
		if err = errors.Join(err, bad); bad == nil {
			engines, stops = append(engines, e), append(stops, stop)
		}
	}
	done := 0
	for err == nil && done < count*stepsARun {
		if done = 0; time.Since(began) > drainLimit {
			err = fmt.Errorf("not drained after %s", drainLimit)
		}
		for _, e := range engines {
			done += int(e.Stats().Completed)
		}
		time.Sleep(200 * time.Microsecond)
	}
	took := time.Since(began)
	for _, stop := range stops {
		err = errors.Join(err, stop())
	}
	if err == nil {
		s.record("draining runs of ten steps", "steps/s", float64(count*stepsARun)/took.Seconds())
		s.expect("steps that were drained", done, count*stepsARun)
	}
	return err
}

// chains takes the time from the return of a step's code to the call of the next one's, at a steady pace.
func (s *stepper) chains(ctx context.Context) error {
	if err := s.chain(ctx, "timed", "timed"); err != nil {
		return err
	}
	var mu sync.Mutex
	ended := map[int]time.Time{} // by run
	var waits []time.Duration
	timed := local.Step("timed", func(_ context.Context, in struct{ N int }) (map[string]any, error) {
		mu.Lock()
		defer mu.Unlock()
		if at, ok := ended[in.N]; ok {
			waits = append(waits, time.Since(at))
		}
		ended[in.N] = time.Now()
		return nil, nil
	})
	e, stop, err := s.engine(ctx, timed)
	if err != nil {
		return err
	}
	began := time.Now()
	count := max(5, int(stepsPace*s.opts.steady.Seconds()))
	for i := 0; i < count && err == nil; i++ {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / stepsPace)))
		_, err = workflow.Start(ctx, s.starting, workflow.Request{Plan: "timed", Version: "1", ID: fmt.Sprint(i), Input: map[string]int{"n": i}})
		e.Wake()
	}
	for err == nil && e.Stats().Completed < int64(count*stepsARun) {
		if time.Since(began) > drainLimit {
			err = fmt.Errorf("%d of %d steps after %s", e.Stats().Completed, count*stepsARun, drainLimit)
		}
		time.Sleep(time.Millisecond)
	}
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	slices.Sort(waits)
	s.expect("times from step to step", len(waits), count*(stepsARun-1))
	for _, q := range []struct {
		name string
		at   int
	}{{"p50", len(waits) / 2}, {"p99", len(waits) * 99 / 100}} {
		s.record("from a step's end to the next one's beginning, "+q.name, "ms", float64(waits[q.at].Microseconds())/1000)
	}
	return nil
}

// besideSleepers measures what runs take while many sleep, by what they take while none does.
func (s *stepper) besideSleepers(ctx context.Context, n int) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	_, before, err := s.inFlight(ctx, "steps-0", n)
	if err != nil {
		return err
	}
	sleepers := min(mostSleepers, s.opts.messages)
	if _, err := s.starting.Exec(ctx, `select deed.put_plan(convert_to('{"plan":"sleeper","steps":{"s":{"for":"24h0m0s","kind":"sleep"}},"version":"1"}', 'UTF8'))`); err != nil {
		return err
	}
	if err := s.many(ctx, "sleeper", sleepers); err != nil {
		return err
	}
	_, stop, err := s.engine(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	for awake := true; awake && err == nil; {
		if time.Since(began) > drainLimit {
			err = fmt.Errorf("not all are asleep after %s", drainLimit)
		} else if err = s.owner.QueryRow(ctx, `select exists (select from deed.run_steps where ready)`).Scan(&awake); err == nil {
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	asleep := 0
	if err := s.owner.QueryRow(ctx, `select count(*) from deed.run_steps where begun_at is not null and claim is null`).Scan(&asleep); err != nil {
		return err
	}
	s.expect("runs asleep", asleep, sleepers)
	if err := s.settle(ctx); err != nil {
		return err
	}
	_, beside, err := s.inFlight(ctx, "steps-0", n)
	if err == nil {
		s.record("a run beside sleeping ones, by one alone", "times", beside/before)
	}
	return err
}
