package inbound_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/deedhq/deed/internal/pgtest"
)

// modelled is a message as it should be.
type modelled struct {
	status  string
	claim   int64 // the newest
	before  int64 // the one before
	taken   bool  // it has another claim now, whose number is still to be seen
	live    bool  // under a lease
	over    bool  // its lease ran out, and nobody has claimed it since
	lost    int   // how often that was so when it was claimed
	held    bool
	waiting bool // for its turn
	turn    int
}

// Whatever order requests, repeats, claims, outcomes, late outcomes and the ends of leases
// come in: a message is what the model says, one message of a sender at the most is run at a
// time, and what was executed never is anything else.
func TestModel_MessagesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		source := fmt.Sprintf("s%d", round)
		const messages, senders = 5, 2
		sender := func(i int) string { return fmt.Sprintf("ann%d", i%senders) }
		model := map[int]*modelled{}
		turns := 0
		open := func(m *modelled) bool { return m.status == "accepted" }
		// next gives the turn to the next of a sender, where nobody has it.
		next := func(of string) {
			var first *modelled
			for i, m := range model {
				if sender(i) != of || !open(m) {
					continue
				}
				if !m.waiting {
					return
				}
				if first == nil || m.turn < first.turn {
					first = m
				}
			}
			if first != nil {
				first.waiting = false
			}
		}
		busy := func(i int) bool {
			for k, m := range model {
				if k != i && sender(k) == sender(i) && open(m) && !m.waiting {
					return true
				}
			}
			return false
		}
		index := rapid.IntRange(0, messages-1)
		id := func(i int) string { return fmt.Sprint("m", i) }
		finish := func(i int, claim int64, status string) bool {
			return pgtest.One[bool](t, worker, `
				select count(*) = 1 from deed.finish_messages(array[(select id from deed.channel_messages where source = $1 and platform_message_id = $2)],
					array[$3::bigint], array[$4], array[null], array[null]::float8[], 1000, 'w')`, source, id(i), claim, status)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"request": func(rt *rapid.T) {
				i := index.Draw(rt, "message")
				did := pgtest.One[string](t, worker, `
					select did from deed.accept_messages($1, array[$2], array['telegram'], array[$3], array[''], array[''], array['{}'], '', 'link',
						'00000000-0000-0000-0000-000000000000', 'w')`, source, id(i), sender(i))
				m := model[i]
				want := "new"
				switch {
				case m == nil:
					turns++
					model[i] = &modelled{status: "accepted", turn: turns, waiting: busy(i)}
				case m.status == "accepted":
					want = "waits"
				case m.held:
					want = "held"
				case m.status == "dispatch_failed":
					want = "again"
					m.status, m.live, m.waiting, m.taken = "accepted", false, busy(i), true
				default:
					want = "repeat"
				}
				if did != want {
					rt.Fatalf("message %d: %s, want %s", i, did, want)
				}
			},
			"claim": func(rt *rapid.T) {
				// One that was lost twice is claimed alone.
				for pgtest.One[int](t, worker, `select count(*) from deed.claim_messages($1, 100, '1 hour', 1000, 'w')`, source) > 0 {
				}
				for again := true; again; {
					again = false
					for i, m := range model {
						if !open(m) || m.live || m.waiting {
							continue
						}
						again, m.taken = true, true
						if m.over {
							m.lost, m.over = m.lost+1, false
						}
						if m.live = m.lost < 10; !m.live {
							m.status, m.held = "dispatch_failed", true
							next(sender(i))
						}
					}
				}
			},
			"end": func(rt *rapid.T) {
				i := index.Draw(rt, "message")
				m := model[i]
				if m == nil {
					return
				}
				status := rapid.SampledFrom([]string{"executed", "denied_x", "dispatch_failed", "accepted"}).Draw(rt, "status")
				claim := m.claim
				if rapid.Bool().Draw(rt, "late") {
					claim = m.before
				}
				took := finish(i, claim, status)
				if should := open(m) && m.live && claim == m.claim; took != should {
					rt.Fatalf("message %d, %s under claim %d: recorded %t, want %t (%+v)", i, status, claim, took, should, m)
				}
				if took {
					m.status, m.live = status, false
					next(sender(i))
				}
			},
			"lease ends": func(rt *rapid.T) {
				i := index.Draw(rt, "message")
				if m := model[i]; m != nil && m.live {
					db.Exec(t, pgtest.Owner, `update deed.channel_messages set lease_until = clock_timestamp() - interval '1 second' where source = $1 and platform_message_id = $2`, source, id(i))
					m.live, m.over = false, true
				}
			},
			"": func(rt *rapid.T) {
				for i, m := range model {
					if m.taken {
						claim := pgtest.One[int64](t, owner, `select claim from deed.channel_messages where source = $1 and platform_message_id = $2`, source, id(i))
						if claim <= m.claim {
							rt.Fatalf("message %d has claim %d, after %d", i, claim, m.claim)
						}
						m.before, m.claim, m.taken = m.claim, claim, false
					}
					got := pgtest.One[string](t, owner, `
						select concat_ws(' ', status, claim, coalesce(lease_until > clock_timestamp() and lease_until < 'infinity', false), coalesce(lease_until = 'infinity', false))
						from deed.channel_messages where source = $1 and platform_message_id = $2`, source, id(i))
					b := func(v bool) string { return map[bool]string{true: "t", false: "f"}[v] }
					if want := fmt.Sprint(m.status, " ", m.claim, " ", b(m.live), " ", b(m.waiting)); got != want {
						rt.Fatalf("message %d is %s, want %s", i, got, want)
					}
				}
			},
		})
	})
	verified(t, db)
}
