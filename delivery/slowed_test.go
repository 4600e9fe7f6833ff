package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/provider/resend"
	"github.com/deedhq/deed/provider/telegram"
)

// neighbourhood is two processes that serve a bot and an account of mail of their own.
type neighbourhood struct {
	db   *pgtest.DB
	bot  *chats
	mail *catcher.Resend
}

func neighbours(t *testing.T) neighbourhood {
	t.Helper()
	n := neighbourhood{
		db:   pgtest.New(t),
		bot:  &chats{fake: &catcher.Telegram{Mailbox: &catcher.Mailbox{}}, hold: make(chan struct{})},
		mail: &catcher.Resend{Mailbox: &catcher.Mailbox{}},
	}
	chat, post := httptest.NewServer(n.bot), httptest.NewServer(n.mail)
	t.Cleanup(chat.Close)
	t.Cleanup(post.Close)
	for range 2 {
		bot, err := telegram.New(telegram.Options{Token: "1:token", Endpoint: chat.URL})
		if err != nil {
			t.Fatal(err)
		}
		mail, err := resend.New(resend.Options{APIKey: "re_x", Endpoint: post.URL})
		if err != nil {
			t.Fatal(err)
		}
		opts := patient(mail)
		opts.PollInterval = 100 * time.Millisecond // a tenth of the default: eight loops that claim all the time are work of the test's own
		opts.Providers = map[string]delivery.ProviderOptions{
			"bot": {Provider: bot, Rate: 500, Timeout: 10 * time.Minute}, "mail": {Provider: mail},
		}
		registered(t, n.db, opts)
		run(t, n.db, opts)
	}
	t.Cleanup(func() { close(n.bot.hold) }) // before those stop
	return n
}

func (n neighbourhood) say(to string, parts ...string) delivery.Delivery {
	return delivery.Delivery{
		Channel: delivery.Chat, Provider: "bot", Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`),
		Guarantee: delivery.AtLeastOnce, Key: delivery.NewKey(append(parts, to)...),
	}
}

func (n neighbourhood) write(parts ...string) delivery.Delivery {
	return delivery.Delivery{
		Channel: delivery.Email, Provider: "mail", Recipient: "a@example.org", Payload: delivery.EmailPayload{From: "a@example.com", Subject: "x", Text: "x"}.JSON(),
		Key: delivery.NewKey(parts...),
	}
}

// lastOf reserves others, and says how long the last of them took by the database's clock.
func lastOf(t *testing.T, db *pgtest.DB, name string, others []delivery.Delivery) time.Duration {
	t.Helper()
	var ids []string
	for _, made := range reserve(t, db, others...) {
		ids = append(ids, made.ID)
	}
	var seconds float64
	eventually(t, "the others of "+name, func() bool {
		sent := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where id = any($1::text[]::uuid[]) and status = 'sent'`, ids)
		if sent < len(ids) {
			return false
		}
		seconds = pgtest.One[float64](t, db.Pool(pgtest.Owner), `select extract(epoch from max(sent_at - created_at))::float8 from deed.channel_outbox where id = any($1::text[]::uuid[])`, ids)
		return true
	})
	return time.Duration(seconds * float64(time.Second))
}

// withinTwoSeconds has others sent beside a neighbour three times, each within two seconds. The same others are sent in turns
// without such a neighbour, before and after where they took long: a time that these take on a busy machine, too, says nothing
// about neighbours, and that turn is taken again. Each is told whose turn it is, so that it takes others each time.
func withinTwoSeconds(t *testing.T, beside, alone func(turn int) time.Duration) {
	t.Helper()
	var slow, well []time.Duration
	for turn, begun := 0, time.Now(); len(well) < 3; turn++ {
		if time.Since(begun) > 3*pgtest.Patience {
			t.Fatal("nothing is sent within two seconds here, neighbours or not")
		}
		without := alone(2 * turn)
		took := beside(turn)
		if took >= 2*time.Second {
			without = max(without, alone(2*turn+1))
		}
		t.Logf("turn %d: %s; without the neighbour %s", turn, took, without)
		switch {
		case took < 2*time.Second:
			well = append(well, took)
		case took > 2*without:
			slow = append(slow, took)
		}
		if len(slow) == 3 {
			t.Fatalf("the others took %s, where two seconds are allowed", slices.Min(slow))
		}
	}
}

// Beside each of a chat at its limit whose answers are lost half the time, chats that hang
// for as long as the test lasts, and an account whose quota has ended, all others are sent
// within two seconds of being reserved.
func TestNeighbours_OthersWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	// In each turn they are others, so that none waits for its own limit, of one call a second.
	chats := func(n neighbourhood, turn int) (others []delivery.Delivery) {
		for i := range 20 {
			others = append(others, n.say(fmt.Sprint(10_000+20*turn+i)))
		}
		return others
	}
	all := func(n neighbourhood, turn int) []delivery.Delivery {
		return append(chats(n, turn), n.write("turn", fmt.Sprint(turn)))
	}
	for name, c := range map[string]struct {
		neighbour func(n neighbourhood) []delivery.Delivery
		// begun says that the neighbour has begun to do what it does, and still does it.
		begun  func(n neighbourhood) bool
		others func(n neighbourhood, turn int) []delivery.Delivery
	}{
		"a limit, with half of the answers lost": {
			neighbour: func(n neighbourhood) (list []delivery.Delivery) {
				for i := range 600 { // one a second, for longer than the turns may take
					list = append(list, n.say("1", fmt.Sprint(i)))
				}
				return list
			},
			begun:  func(n neighbourhood) bool { _, lost := n.bot.all(); return lost > 0 },
			others: all,
		},
		"chats that hang": {
			neighbour: func(n neighbourhood) (list []delivery.Delivery) {
				for i := range 200 {
					list = append(list, n.say(fmt.Sprint(200+i%20), fmt.Sprint(i)))
				}
				return list
			},
			begun:  func(n neighbourhood) bool { calls, _ := n.bot.all(); return len(calls) > 0 },
			others: all,
		},
		"a quota that has ended": {
			neighbour: func(n neighbourhood) (list []delivery.Delivery) {
				n.mail.Faults.Set(func(int) catcher.Fault { return catcher.OverQuota })
				for i := range 200 {
					list = append(list, n.write(fmt.Sprint(i)))
				}
				return list
			},
			begun:  func(n neighbourhood) bool { return n.mail.Faults.Count() > 0 },
			others: chats,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			beside, alone := neighbours(t), neighbours(t)
			reserve(t, beside.db, c.neighbour(beside)...)
			eventually(t, "the neighbour", func() bool { return c.begun(beside) })
			withinTwoSeconds(t, func(turn int) time.Duration {
				return lastOf(t, beside.db, "the neighbour", c.others(beside, turn))
			}, func(turn int) time.Duration {
				return lastOf(t, alone.db, "no neighbour", c.others(alone, turn))
			})
			if pgtest.One[int](t, beside.db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status in ('queued', 'sending')`) < 100 {
				t.Error("the neighbour had ended before the others did")
			}
		})
	}
}

// Beside twenty domains that hang, or twenty hosts, for as long as the test lasts, twenty others are written to within two
// seconds: whether the twenty were never called, have all answered until then, or one of them had all places when it began to.
func TestNeighbours_TwentyThatHangDelayOthersByLessThanTwoSeconds(t *testing.T) {
	t.Parallel()
	mail := func(domain string, n int) delivery.Delivery { return email(fmt.Sprintf("%d@%s", n, domain)) }
	post := func(host string, n int) delivery.Delivery {
		d := email(fmt.Sprintf("https://%s/%d", host, n))
		d.Channel = delivery.Webhook
		return d
	}
	bad := func(i int) string { return fmt.Sprintf("%d.hangs.example", i) }
	for lanes, to := range map[delivery.LaneKind]func(where string, n int) delivery.Delivery{delivery.LanePerDomain: mail, delivery.LanePerHost: post} {
		for name, before := range map[string]func(h *hanging){
			"never called":   func(*hanging) {},
			"they answered":  func(h *hanging) { h.answerOnce(20, to, bad) },
			"one had places": func(h *hanging) { h.answerOnce(20, to, bad); h.takesAll(to, bad) },
		} {
			t.Run(string(lanes)+"/"+name, func(t *testing.T) {
				t.Parallel()
				h := newHanging(t, lanes)
				alone := h.serve()
				h.beside = h.serve()
				t.Cleanup(func() { close(h.hold) }) // before those stop
				before(h)
				h.hangs.Store(true)
				called := len(h.fake.all())
				var list []delivery.Delivery
				for i := range 200 {
					list = append(list, to(bad(i%20), 1000+i))
				}
				reserve(t, h.beside, list...)
				eventually(t, "all twenty to hang", func() bool {
					seen := map[string]bool{}
					for _, c := range h.fake.all()[called:] {
						seen[regexp.MustCompile(`[0-9]+\.hangs`).FindString(c.recipient)] = true
					}
					return len(seen) == 20 || name == "one had places" && len(seen) == 19
				})
				others := func(turn int) (list []delivery.Delivery) {
					for i := range 20 {
						list = append(list, to(fmt.Sprintf("%d-%d.example", turn, i), i))
					}
					return list
				}
				withinTwoSeconds(t, func(turn int) time.Duration {
					return lastOf(t, h.beside, "the neighbour", others(turn))
				}, func(turn int) time.Duration {
					return lastOf(t, alone, "no neighbour", others(turn))
				})
				if pgtest.One[int](t, h.beside.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status in ('queued', 'sending')`) < len(list) {
					t.Error("not all of those that hang still do")
				}
			})
		}
	}
}

// hanging is two processes that serve a provider of which some destinations hang from a moment on.
type hanging struct {
	*testing.T
	fake   *fake
	beside *pgtest.DB
	hangs  atomic.Bool
	hold   chan struct{}
}

func newHanging(t *testing.T, lanes delivery.LaneKind) *hanging {
	h := &hanging{T: t, fake: newFake(), hold: make(chan struct{})}
	h.fake.caps.Lanes = lanes
	h.fake.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if h.hangs.Load() && strings.Contains(r.Recipient(), "hangs") {
			<-h.hold
		}
		return delivery.Accepted("m"), true
	}
	return h
}

// serve has two processes serve a database of their own.
func (h *hanging) serve() *pgtest.DB {
	db := pgtest.New(h.T)
	for range 2 {
		opts := fast(h.fake)
		opts.PollInterval = 100 * time.Millisecond
		opts.Providers["fake"] = delivery.ProviderOptions{Provider: h.fake, Timeout: 10 * time.Minute}
		registered(h.T, db, opts)
		run(h.T, db, opts)
	}
	return db
}

// answerOnce has n destinations answer, to each of the processes.
func (h *hanging) answerOnce(n int, to func(string, int) delivery.Delivery, bad func(int) string) {
	h.Helper()
	var list []delivery.Delivery
	for i := range 8 * n {
		list = append(list, to(bad(i%n), i))
	}
	reserve(h.T, h.beside, list...)
	eventually(h.T, "the destinations to answer", func() bool {
		return pgtest.One[int](h.T, h.beside.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == len(list)
	})
}

// takesAll has the first destination hang with as many calls as it gets.
func (h *hanging) takesAll(to func(string, int) delivery.Delivery, bad func(int) string) {
	h.Helper()
	h.hangs.Store(true)
	called := len(h.fake.all())
	var list []delivery.Delivery
	for i := range 64 {
		list = append(list, to(bad(0), 500+i))
	}
	reserve(h.T, h.beside, list...)
	eventually(h.T, "it to hang", func() bool { return len(h.fake.all()) >= called+4 })
}
