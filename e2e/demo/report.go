package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
)

// arrivals are one subscription's deliveries, from its receiver's own record.
type arrivals struct {
	name string
	at   map[string][]time.Time
}

// verdict is what the records of one subscription say.
type verdict struct {
	delivered, lost, ghosts, repeats, unexplained int
	latencies, quiet                              []time.Duration
}

// report compares what the flights table says was committed with what the
// receivers recorded.
func (s *show) report(ctx context.Context) error {
	committed, err := s.flightsTable(ctx)
	if err != nil {
		return err
	}
	byHook, err := s.receivedByWebhook()
	if err != nil {
		return err
	}
	byHandler, err := s.receivedByHandler(ctx)
	if err != nil {
		return err
	}
	c, err := deed.New(ctx, s.pool, deed.Options{})
	if err != nil {
		return err
	}
	violations, err := c.Verify(ctx)
	if err != nil {
		return err
	}

	hook, handler := s.judge(committed, byHook), s.judge(committed, byHandler)
	rows := [][3]string{
		{"", "webhook", "handler"},
		{"committed (the flights table)", count(len(committed)), count(len(committed))},
		{"rolled back on purpose", count(int(s.rolledBack.Load())), count(int(s.rolledBack.Load()))},
		{"delivered", count(hook.delivered), count(handler.delivered)},
		{"lost", count(hook.lost), count(handler.lost)},
		{"never committed, yet delivered", count(hook.ghosts), count(handler.ghosts)},
		{"repeats", count(hook.repeats), count(handler.repeats)},
		{"  of these not explained by a kill", count(hook.unexplained), count(handler.unexplained)},
		{"commit to arrival, p50", percentile(hook.latencies, 50), percentile(handler.latencies, 50)},
		{"                   p95", percentile(hook.latencies, 95), percentile(handler.latencies, 95)},
		{"                   p99", percentile(hook.latencies, 99), percentile(handler.latencies, 99)},
		{"  away from the kills, p50", percentile(hook.quiet, 50), percentile(handler.quiet, 50)},
		{"                       p95", percentile(hook.quiet, 95), percentile(handler.quiet, 95)},
		{"                       p99", percentile(hook.quiet, 99), percentile(handler.quiet, 99)},
		{"messages per second (paced)", rate(hook.delivered, s.publishing), rate(handler.delivered, s.publishing)},
	}
	fmt.Println()
	for _, r := range rows {
		fmt.Printf("  %-36s %10s %10s\n", r[0], r[1], r[2])
	}
	fmt.Printf("\n  killed: a relay 3 times, PostgreSQL once; %d publisher transactions had to be run again\n", s.unsure)
	fmt.Printf("  deed verify: %d violations\n\n", len(violations))

	var problems []string
	check := func(n int, what string) {
		if n > 0 {
			problems = append(problems, fmt.Sprintf("%d %s", n, what))
		}
	}
	check(hook.lost+handler.lost, "deliveries were lost")
	check(hook.ghosts+handler.ghosts, "were delivered without a commit")
	check(hook.unexplained+handler.unexplained, "repeats have no kill to explain them")
	check(len(violations), "invariants are violated")
	if len(committed) != len(s.committed) {
		problems = append(problems, fmt.Sprintf("the flights table has %d rows and the publisher saw %d commits", len(committed), len(s.committed)))
	}
	if problems != nil {
		if s.sabotage {
			fmt.Println("  That is what --sabotage is for: it shows that this table can say so.")
		}
		return errors.New(strings.Join(problems, "; "))
	}
	fmt.Printf("  Nothing was lost, nothing was invented, %s\n", repeatsText(hook.repeats+handler.repeats))
	return nil
}

func repeatsText(n int) string {
	if n == 0 {
		return "and nothing was repeated."
	}
	return fmt.Sprintf("and each of the %d repeats followed a kill; they carry the id of the first.", n)
}

// explained is how long after a kill a repeat may come: the lease of what the
// dead relay held, and a while for its turn.
const explained = lease + 8*time.Second

func (s *show) judge(committed map[string]bool, a arrivals) verdict {
	var v verdict
	for id, times := range a.at {
		if !committed[id] {
			v.ghosts++
			continue
		}
		v.delivered++
		slices.SortFunc(times, time.Time.Compare)
		for _, again := range times[1:] {
			v.repeats++
			if !s.disturbed(again, explained) {
				v.unexplained++
			}
		}
		if at, ok := s.committed[id]; ok {
			took := max(times[0].Sub(at), 0)
			v.latencies = append(v.latencies, took)
			if !s.disturbed(times[0], 3*time.Second) {
				v.quiet = append(v.quiet, took)
			}
		}
	}
	for id := range committed {
		if len(a.at[id]) == 0 {
			v.lost++
		}
	}
	slices.Sort(v.latencies)
	slices.Sort(v.quiet)
	return v
}

// disturbed reports whether something was killed at most within before at.
func (s *show) disturbed(at time.Time, within time.Duration) bool {
	return slices.ContainsFunc(s.disturbance, func(d time.Time) bool {
		return !at.Before(d) && at.Sub(d) <= within
	})
}

func (s *show) flightsTable(ctx context.Context) (map[string]bool, error) {
	rows, err := s.pool.Query(ctx, `select id from flights`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	committed := make(map[string]bool, len(ids))
	for _, id := range ids {
		committed[id] = true
	}
	return committed, err
}

func (s *show) receivedByWebhook() (arrivals, error) {
	a := arrivals{name: "webhook", at: map[string][]time.Time{}}
	in, err := os.Open(s.receiverFile())
	if err != nil {
		return a, err
	}
	defer in.Close()
	scan := bufio.NewScanner(in)
	for scan.Scan() {
		var id string
		var nanos int64
		if _, err := fmt.Sscan(scan.Text(), &id, &nanos); err != nil {
			return a, fmt.Errorf("the receiver's file: %q: %w", scan.Text(), err)
		}
		a.at[id] = append(a.at[id], time.Unix(0, nanos))
	}
	return a, scan.Err()
}

func (s *show) receivedByHandler(ctx context.Context) (arrivals, error) {
	a := arrivals{name: "handler", at: map[string][]time.Time{}}
	rows, err := s.pool.Query(ctx, `select flight, arrived_at from seen_by_handler`)
	if err != nil {
		return a, err
	}
	var id string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		a.at[id] = append(a.at[id], at)
		return nil
	})
	return a, err
}

func count(n int) string { return fmt.Sprint(n) }

func rate(n int, d time.Duration) string { return fmt.Sprintf("%.0f", float64(n)/d.Seconds()) }

func percentile(sorted []time.Duration, p int) string {
	if len(sorted) == 0 {
		return "-"
	}
	d := sorted[min(len(sorted)*p/100, len(sorted)-1)]
	return d.Round(100 * time.Microsecond).String()
}
