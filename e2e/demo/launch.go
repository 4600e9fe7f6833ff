package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/campaign"
)

// actTwo is the campaigns: everybody gets an e-mail, and each account posts, while a relay is killed.
type actTwo struct {
	*show
	airports []airport
	catchers *child
	relays   [2]*child
	env      []string
	runs     map[campaign.Channel]string
}

// channels are those of the campaigns, and the files in which the far ends write down whom they have reached.
var channels = []struct {
	channel  campaign.Channel
	provider string
	file     string
	content  campaign.Content
}{
	{campaign.Email, "mail", "mails.txt", campaign.Content{
		Subject: "{{ contact.name }}, the summer timetable is out", Text: "Dear {{ contact.name }} in {{ contact.city }},\n\nit is out.\n\nNo more of this: {{ unsubscribe_url }}\n",
	}},
	{campaign.Social, "instance", "posts.txt", campaign.Content{Post: "summer", Text: "{{ contact.name }}: our summer timetable is out."}},
}

// campaigns performs the second act, and judges it.
func (s *show) campaigns(ctx context.Context, airports []airport) error {
	a := &actTwo{show: s, airports: airports, runs: map[campaign.Channel]string{}}
	s.now(func() string { return fmt.Sprintf("%d e-mails and %d posts were accepted", a.reached(0), a.reached(1)) })
	fmt.Println()
	s.say("act two: campaigns to %d airports, an e-mail to each, and a post by each", len(airports))
	defer a.kill()
	err := a.start()
	if err == nil {
		err = a.deploy(ctx)
	}
	if err == nil {
		err = a.killOne(ctx)
	}
	if err == nil {
		err = a.await(ctx, "the campaigns to end", func() (bool, error) {
			var open int
			err := s.pool.QueryRow(ctx, `select count(*) from deed.campaign_runs where finished_at is null`).Scan(&open)
			return open == 0, err
		})
	}
	if err == nil {
		s.say("both have ended")
		err = a.stop()
	}
	if err != nil {
		return err
	}
	return a.judge(ctx)
}

func (a *actTwo) start() error {
	env := []string{"DEMO_AIRPORTS=" + a.list, "DEMO_MAILS=" + a.file(channels[0].file), "DEMO_POSTS=" + a.file(channels[1].file)}
	var err error
	if a.catchers, err = startChild("the far ends", "catchers", a.file("catchers.log"), env, a.fail); err != nil {
		return err
	}
	address, err := a.catchers.greeting()
	if err != nil {
		return err
	}
	a.env = []string{"DEMO_CATCHERS=" + address, "DEMO_DATABASE_URL=" + a.cluster.URL("postgres")}
	if a.sabotage {
		a.env = append(a.env, "DEMO_SABOTAGE=1")
	}
	for i := range a.relays {
		if err := a.startRelay(i); err != nil {
			return err
		}
	}
	return nil
}

func (a *actTwo) startRelay(i int) (err error) {
	if a.relays[i], err = startChild(fmt.Sprintf("relay %d", i+1), "launcher", a.file(fmt.Sprintf("launcher-%d.log", i+1)), a.env, a.fail); err == nil {
		_, err = a.relays[i].greeting()
	}
	return err
}

// deploy has both campaigns begin in one transaction: what is said, to whom, and the runs.
func (a *actTwo) deploy(ctx context.Context) error {
	for _, c := range channels {
		err := pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
			people, err := campaign.OpenAudience(ctx, tx, campaign.Scope{}, "airports by "+string(c.channel), c.channel)
			if err != nil {
				return err
			}
			var list []campaign.Member
			for _, one := range a.airports {
				list = append(list, one.member(c.channel))
			}
			if err := people.Add(ctx, tx, list...); err != nil {
				return err
			}
			if err := people.Finish(ctx, tx); err != nil {
				return err
			}
			put, err := campaign.Put(ctx, tx, campaign.Scope{}, "summer by "+string(c.channel), c.content)
			if err != nil {
				return err
			}
			request := campaign.Request{Campaign: put.ID, Audience: people.ID, ID: "demo", Channel: c.channel, Provider: c.provider, Purpose: "newsletter"}
			if c.channel == campaign.Email {
				request.From = "Timetables <news@airports.example.com>"
			}
			d, err := campaign.Deploy(ctx, tx, campaign.Scope{}, request)
			a.runs[c.channel] = d.Run
			return err
		})
		if err != nil {
			return fmt.Errorf("deploy by %s: %w", c.channel, err)
		}
	}
	a.say("deployed; relays %d and %d expand and send", a.relays[0].pid(), a.relays[1].pid())
	return nil
}

// killOne kills a relay when a quarter of the e-mails and posts is accepted.
func (a *actTwo) killOne(ctx context.Context) error {
	err := a.await(ctx, "the campaigns to get going", func() (bool, error) { return a.reached(0)+a.reached(1) >= len(a.airports)/2, nil })
	if err != nil {
		return err
	}
	pid, mails, posts := a.relays[0].pid(), a.reached(0), a.reached(1)
	a.relays[0].kill()
	a.say("SIGKILL to relay 1 (process %d) after %d e-mails and %d posts, and a new one", pid, mails, posts)
	return a.startRelay(0)
}

func (a *actTwo) await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*patience, errors.New("three minutes were not enough for "+what))
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// lines is whom a far end says it has reached, a line each.
func (a *actTwo) lines(i int) []string {
	text, _ := os.ReadFile(a.file(channels[i].file)) // before its first line there is none
	return strings.Fields(string(text))
}

func (a *actTwo) reached(i int) int { return len(a.lines(i)) }

// stop ends the relays as an operator would, and then the far ends.
func (a *actTwo) stop() error {
	return errors.Join(a.relays[0].stop(), a.relays[1].stop(), a.catchers.stop())
}

func (a *actTwo) kill() {
	for _, c := range []*child{a.relays[0], a.relays[1], a.catchers} {
		if c != nil {
			c.kill()
		}
	}
}

// judge holds what the far ends have written down against the list of airports, and asks deed for its proof.
func (a *actTwo) judge(ctx context.Context) error {
	var reached, missed, twice, strangers, found [2]int
	for i, c := range channels {
		times := map[string]int{}
		for _, to := range a.lines(i) {
			times[to]++
		}
		for _, one := range a.airports {
			n := times[one.member(c.channel).Address]
			delete(times, one.member(c.channel).Address)
			reached[i] += min(n, 1)
			missed[i] += 1 - min(n, 1)
			twice[i] += max(0, n-1)
		}
		strangers[i] = len(times)
		proof, err := campaign.Verify(ctx, a.pool, a.runs[c.channel], 3)
		if err != nil {
			return err
		}
		if found[i] = len(proof.Findings); !proof.Launched() && found[i] == 0 {
			found[i] = 1
		}
	}
	t := &table{colour: colourful()}
	t.head("WHOM THE CAMPAIGNS REACHED", "e-mail", "social")
	t.row("airports on the list", len(a.airports), len(a.airports))
	t.row("reached, by the far end's own file", reached[0], reached[1])
	t.must("reached by nothing", missed[0], missed[1])
	t.must("reached twice", twice[0], twice[1])
	t.must("reached, and not on the list", strangers[0], strangers[1])
	t.must("deed campaign verify: findings", found[0], found[1])
	fmt.Println()
	if t.failures != nil {
		t.paint(red, "  FAILED: "+strings.Join(t.failures, "; ")+"\n")
		return errVerdict
	}
	t.paint(green, "  Everybody was reached once: nobody twice, nobody missing, and the rows of the campaigns prove it.\n")
	return nil
}
