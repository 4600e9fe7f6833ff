package deed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// line is what a worker has told of an attempt, or the test of a process, in the
// order in which it happened: the oracle of a stream whose workers are killed
// and frozen.
type line struct {
	what    string // began, failed, delivered; froze, thawed, killed, server, "given-up"
	pid     int
	seq     int64
	attempt int
	id, key string
}

func parseLines(text string) ([]line, error) {
	var list []line
	for s := range strings.Lines(text) {
		if !strings.HasSuffix(s, "\n") {
			break // it is being written just now
		}
		var l line
		if _, err := fmt.Sscan(s, &l.what, &l.pid, &l.seq, &l.attempt, &l.id, &l.key); err != nil {
			return nil, fmt.Errorf("the oracle has the line %q: %w", s, err)
		}
		list = append(list, l)
	}
	return list, nil
}

// owed is a message that was committed. Those of one group, of which one
// transaction is, or publishers who waited for each other, go by number.
type owed struct {
	seq   int64
	id    string
	group string
}

// judgment is what the lines come to.
type judgment struct {
	problems []string

	attempts, failures, unrecorded, held, repeats int
	strays                                        int // calls of a worker that had been frozen, and had lost its lease meanwhile
}

func (j *judgment) problem(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// judge is strictOrder for workers that die. An attempt whose outcome was not
// recorded has not been: its message comes again with the same attempt's
// number, perhaps after what stood before it on its page. While a message of a
// key has failed, and that is recorded, no other of the key is begun until it
// is delivered or given up (O13). A worker that was frozen beyond its
// lease makes at most the calls, so many at a time, that it was making when it froze (O14).
func judge(lines []line, committed []owed, calls int) *judgment {
	j := &judgment{}
	begun, first, ends, delivered := map[string][]int{}, map[string]int{}, map[string]int{}, map[string]bool{}
	last := map[int]int{} // by process: its last line
	for i, l := range lines {
		switch l.what {
		case "began":
			begun[l.id] = append(begun[l.id], i)
			if _, ok := first[l.id]; !ok {
				first[l.id] = i
			}
			last[l.pid] = i
		case "delivered", "given-up":
			if _, ok := ends[l.id]; !ok {
				ends[l.id] = i
			}
			delivered[l.id] = delivered[l.id] || l.what == "delivered"
			last[l.pid] = i
		case "failed":
			last[l.pid] = i
		}
	}
	// recorded: by the next attempt's number.
	recorded := func(i int) bool {
		at, _ := slices.BinarySearch(begun[lines[i].id], i)
		if at < len(begun[lines[i].id]) {
			return lines[begun[lines[i].id][at]].attempt != lines[i].attempt
		}
		return !delivered[lines[i].id]
	}

	type frozen struct{ from, upto, open, strays int }
	freezes := map[int]*frozen{}        // by process: its last
	open := map[int]map[string]string{} // by process: the messages, and their keys, of calls under way
	owing := map[string]string{}        // by key: what failed
	settled := map[string]int{}         // the line that says it was delivered
	trouble := map[int]int{}            // by process: the last line that says it was frozen or killed
	server := -1                        // the last line that says the server was killed
	stray := func(l line) bool {
		f := freezes[l.pid]
		if f == nil || f.upto == 0 {
			return false
		}
		j.strays++
		if f.strays++; f.open+f.strays == calls+1 {
			j.problem("worker %d began %d calls, with %d under way, of what others had taken over while it was frozen", l.pid, f.strays, f.open)
		}
		return true
	}
	for i, l := range lines {
		switch l.what {
		case "began":
			j.attempts++
			if open[l.pid] == nil {
				open[l.pid] = map[string]string{}
			}
			for id, key := range open[l.pid] {
				if key == l.key {
					j.problem("line %d: key %s: worker %d began message %s while it had %s in hand", i+1, l.key, l.pid, l.id, id)
				}
			}
			open[l.pid][l.id] = l.key
			id, held := owing[l.key]
			past := held && id != l.id
			if past && !stray(l) {
				j.problem("line %d: key %s: message %s was attempted while %s had failed and was not settled", i+1, l.key, l.id, id)
			}
			if at, ok := settled[l.id]; ok {
				j.repeats++
				// What another, who is alive and well, delivered meanwhile is recorded.
				by, f := lines[at].pid, freezes[l.pid]
				if !past && by != l.pid && f != nil && f.upto > 0 && f.from < at && at < f.upto && last[by] > i && trouble[by] < at && server < at {
					stray(l)
				}
			}
		case "failed":
			delete(open[l.pid], l.id)
			j.failures++
			if !recorded(i) {
				j.unrecorded++
			} else if _, ok := owing[l.key]; !ok {
				owing[l.key] = l.id
				j.held++
			}
		case "delivered", "given-up":
			delete(open[l.pid], l.id)
			if l.what == "delivered" {
				settled[l.id] = i
			}
			if owing[l.key] == l.id {
				delete(owing, l.key)
			}
		case "froze":
			freezes[l.pid], trouble[l.pid] = &frozen{from: i}, i
		case "thawed":
			if f := freezes[l.pid]; f != nil {
				f.upto, f.open = i, len(open[l.pid])
			}
		case "killed":
			delete(open, l.pid)
			trouble[l.pid] = i
		case "server":
			server = i
		}
	}

	known := map[string]bool{}
	before := map[string]owed{} // by group
	slices.SortFunc(committed, func(a, b owed) int { return int(a.seq - b.seq) })
	for _, m := range committed {
		known[m.id] = true
		if _, ok := ends[m.id]; !ok {
			j.problem("message %s was lost", m.id)
			continue
		}
		at, tried := first[m.id]
		if b, ok := before[m.group]; ok && tried && at < ends[b.id] {
			j.problem("line %d: message %s was attempted before %s was settled, which goes before it", at+1, m.id, b.id)
		}
		before[m.group] = m
	}
	for id := range begun {
		if !known[id] {
			j.problem("message %s was attempted and never committed", id)
		}
	}
	return j
}

// The oracle of make torture sees what it is there for, and no more.
func TestWitness(t *testing.T) {
	t.Parallel()
	committed := []owed{{1, "a", "k"}, {2, "b", "k"}, {3, "c", "k"}}
	for _, tc := range []struct {
		name, lines, want string
	}{
		{"in order", "began 1 a 1; delivered 1 a 1; began 1 b 1; delivered 1 b 1; began 2 c 1; delivered 2 c 1", ""},
		{"retried", "began 1 a 1; failed 1 a 1; began 1 a 2; delivered 1 a 2; began 1 b 1; delivered 1 b 1; began 1 c 1; delivered 1 c 1", ""},
		{"past a failed one", "began 1 a 1; delivered 1 a 1; began 1 c 1; failed 1 c 1; began 1 b 1; delivered 1 b 1; began 1 c 2; delivered 1 c 2", "was attempted while c had failed"},
		{"past a failed one by another", "began 1 a 1; failed 1 a 1; began 2 b 1; delivered 2 b 1; began 2 c 1; delivered 2 c 1; began 1 a 2; delivered 1 a 2", "was attempted while a had failed"},
		{"past a dead one that is put back", "began 1 a 3; failed 1 a 3; began 1 b 1; delivered 1 b 1; began 1 c 1; delivered 1 c 1; began 1 a 1; delivered 1 a 1", "was attempted while a had failed"},
		{"after one that is given up", "began 1 a 3; failed 1 a 3; given-up 0 a 0; began 1 b 1; delivered 1 b 1; began 1 c 1; delivered 1 c 1", ""},
		{
			"a page that comes again",
			"began 1 a 1; delivered 1 a 1; began 1 b 1; failed 1 b 1; killed 1; began 2 a 1; delivered 2 a 1; began 2 b 1; delivered 2 b 1; began 2 c 1; delivered 2 c 1", "",
		},
		{"two at once", "began 1 a 1; began 1 b 1; delivered 1 b 1; delivered 1 a 1; began 1 c 1; delivered 1 c 1", "while it had a in hand"},
		{"out of order", "began 1 b 1; delivered 1 b 1; began 1 a 1; delivered 1 a 1; began 1 c 1; delivered 1 c 1", "before a was settled"},
		{"lost", "began 1 a 1; delivered 1 a 1; began 1 c 1; delivered 1 c 1", "b was lost"},
		{"taken back", "began 1 a 1; delivered 1 a 1; began 1 b 1; delivered 1 b 1; began 1 c 1; delivered 1 c 1; began 1 x 1; delivered 1 x 1", "never committed"},
		{
			"the call under way when it froze",
			"froze 1; began 2 a 1; delivered 2 a 1; began 2 b 1; failed 2 b 1; thawed 1; began 1 a 1; delivered 1 a 1; began 2 b 2; delivered 2 b 2; began 2 c 1; delivered 2 c 1", "",
		},
		{
			"more than the call under way",
			"began 1 a 1; froze 1; began 2 a 1; delivered 2 a 1; began 2 b 1; delivered 2 b 1; began 2 c 1; delivered 2 c 1; thawed 1; delivered 1 a 1; began 1 b 1; delivered 1 b 1; began 2 c 1; delivered 2 c 1",
			"while it was frozen",
		},
	} {
		var text strings.Builder
		for s := range strings.SplitSeq(tc.lines, "; ") {
			f := append(strings.Fields(s), "-", "0", "0")
			fmt.Fprintln(&text, f[0], f[1], 0, f[3], f[2], "k")
		}
		lines, err := parseLines(text.String())
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(judge(lines, slices.Clone(committed), 1).problems, "\n")
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}
