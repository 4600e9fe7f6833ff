package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/deedhq/deed/admin"
)

// report compares what the flights table says was committed with what the far
// ends recorded, prints it all, and fails if anything is wrong.
func (s *show) report(ctx context.Context, p *publisher) error {
	committed, err := s.flightsTable(ctx)
	if err != nil {
		return err
	}
	hookSeen, err := s.receivedByWebhook()
	if err != nil {
		return err
	}
	handlerSeen, err := s.receivedByHandler(ctx)
	if err != nil {
		return err
	}
	c, err := admin.New(ctx, s.pool, admin.Options{})
	if err != nil {
		return err
	}
	violations, err := c.Verify(ctx)
	if err != nil {
		return err
	}
	if s.keep {
		if err := s.export(ctx); err != nil {
			return err
		}
	}
	f := facts{committed: committed, commits: p.committed, bodies: map[string]string{}, events: s.events}
	for _, fl := range p.flights {
		f.bodies[fl.ID] = fingerprint(fl.line)
	}
	taken, err := s.takenOver()
	if err != nil {
		return err
	}
	hook, handler := f.judge(hookSeen, taken["webhook"]), f.judge(handlerSeen, taken["handler"])
	// Each answered commit is in the table, each roll-back is not.
	vanished, undead := 0, 0
	for id := range p.committed {
		if !committed[id] {
			vanished++
		}
	}
	for id := range p.rolledBack {
		if committed[id] {
			undead++
		}
	}

	t := &table{colour: colourful()}
	s.printEvents(t, hook, handler)
	t.head("WHAT ARRIVED", "webhook", "handler")
	t.row("committed (rows of the flights table)", len(committed), len(committed))
	t.row("rolled back on purpose", len(p.rolledBack), len(p.rolledBack))
	t.row("delivered (flights in the far end's own record)", hook.delivered, handler.delivered)
	t.must("lost", hook.lost, handler.lost)
	t.must("never committed, yet delivered", hook.ghosts, handler.ghosts)
	t.must("delivered with another body than published", hook.altered, handler.altered)
	t.row("repeats", hook.repeats, handler.repeats)
	t.row("  of a lease that ran out though nobody was killed", hook.lapsed, handler.lapsed)
	t.must("  explained by neither", hook.unexplained, handler.unexplained)
	t.must("  under another message id", hook.reissued, handler.reissued)
	t.printf("  %-56s%10.0f%10.0f\n", "messages per second (published at a set pace)", hook.perSecond(), handler.perSecond())
	t.row("  in the busiest second", hook.busiest, handler.busiest)

	t.printf("\n")
	t.bold("  %-26s%10s%10s%10s%10s%10s\n", "COMMIT TO ARRIVAL", "messages", "p50", "p95", "p99", "max")
	t.latencies("webhook, all", hook.all)
	t.latencies("handler, all", handler.all)
	t.latencies("webhook, no kill near", hook.quiet)
	t.latencies("handler, no kill near", handler.quiet)

	t.printf("\n")
	t.bold("  %-56s\n", "THE PUBLISHER, AND DEED")
	t.one("attempts that the outage cut short or kept out", p.interrupts)
	t.one("  of these, commits whose answer was lost", p.unanswered)
	t.one("  of these, found to have committed", p.foundThere)
	t.mustOne("commits answered, yet not in the flights table", vanished)
	t.mustOne("rolled back, yet in the flights table", undead)
	t.mustOne("deed verify: violations", len(violations))
	for _, v := range violations {
		t.printf("    %s %s %d: %s\n", v.Invariant, v.Subscription, v.Seq, v.Detail)
	}
	if len(s.events) != len(script) {
		t.failures = append(t.failures, "not everything was killed that should have been")
	}
	if len(committed)+len(p.rolledBack) != len(p.flights) {
		t.failures = append(t.failures, "committed and rolled back do not add up to the flights")
	}
	return s.conclude(t, hook.repeats+handler.repeats)
}

// printEvents lists what was killed and which repeats that explains.
func (s *show) printEvents(t *table, hook, handler verdict) {
	t.head("WHAT WAS KILLED, AND THE REPEATS THAT EXPLAINS", "webhook", "handler")
	for i, e := range s.events {
		what := fmt.Sprintf("%5.1fs  %s, back in %.2fs", e.at.Sub(s.begun).Seconds(), e.what, e.back.Sub(e.at).Seconds())
		t.row(what, hook.byEvent[i], handler.byEvent[i])
	}
	t.printf("  It explains a repeat of what the killed relay (the server's death: either relay) had delivered at most %s before,\n"+
		"  if it came at most %s after the return: the lease is %s.\n", lease, settled, lease)
}

func (s *show) conclude(t *table, repeats int) error {
	fmt.Println()
	if t.failures == nil {
		t.paint(green, "  Nothing was lost, nothing was invented, ")
		if repeats == 0 {
			t.paint(green, "and nothing came twice.\n")
		} else {
			t.paint(green, fmt.Sprintf("and each of the %d repeats follows from a kill, or a lease that ran out, and carries the id of the first.\n", repeats))
		}
	} else {
		t.paint(red, "  FAILED: "+strings.Join(t.failures, "; ")+"\n")
	}
	if s.sabotage && t.failures != nil {
		fmt.Println("  That is what --sabotage is for: relays that acknowledge before they deliver lose messages, and this table says so.")
	}
	if s.keep {
		fmt.Printf("\n  Count again:  cut -d, -f1 flights.csv | sort > a; cut -d' ' -f1 %s | sort -u > b; diff a b\n", receivedFile)
	}
	if t.failures != nil {
		return errVerdict
	}
	return nil
}

func (v verdict) perSecond() float64 {
	if took := v.last.Sub(v.first).Seconds(); took > 0 {
		return float64(v.delivered) / took
	}
	return 0
}

// table prints rows and notes which of them fail.
type table struct {
	colour   bool
	failures []string
}

const (
	red   = "31"
	green = "32"
	bold  = "1"
)

// colourful reports whether a person looks on.
func colourful() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (t *table) paint(colour, text string) {
	if t.colour {
		text = "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	fmt.Print(text)
}

func (t *table) printf(format string, args ...any) { fmt.Printf(format, args...) }

func (t *table) bold(format string, args ...any) { t.paint(bold, fmt.Sprintf(format, args...)) }

func (t *table) head(what, first, second string) {
	fmt.Println()
	t.bold("  %-56s%10s%10s\n", what, first, second)
}

func (t *table) row(what string, first, second int) {
	t.printf("  %-56s%10d%10d\n", what, first, second)
}

func (t *table) one(what string, n int) { t.printf("  %-56s%10d\n", what, n) }

// must is a row that has to be zero.
func (t *table) must(what string, first, second int) {
	t.paint(t.verdict(what, first+second), fmt.Sprintf("  %-56s%10d%10d\n", what, first, second))
}

func (t *table) mustOne(what string, n int) {
	t.paint(t.verdict(what, n), fmt.Sprintf("  %-56s%10d\n", what, n))
}

func (t *table) verdict(what string, n int) (colour string) {
	if n == 0 {
		return green
	}
	t.failures = append(t.failures, fmt.Sprintf("%d %s", n, strings.TrimSpace(what)))
	return red
}

func (t *table) latencies(what string, sorted []time.Duration) {
	t.printf("  %-26s%10d", what, len(sorted))
	for _, p := range []int{50, 95, 99, 100} {
		t.printf("%8.1fms", percentile(sorted, p).Seconds()*1000)
	}
	t.printf("\n")
}
