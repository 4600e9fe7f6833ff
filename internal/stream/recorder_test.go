package stream

import "testing"

// Two pages in one row: it says where the second ends, and counts and spans both,
// also if one of them only went past windows.
func TestRecord_Merge(t *testing.T) {
	t.Parallel()
	first, second := position{passed: window{3, "3"}, reading: window{4, "4"}}, position{passed: window{4, "4"}, slot: slotLate}
	for name, c := range map[string]struct {
		one, two           record
		messages, min, max int64
	}{
		"both":       {record{position: first, messages: 2, min: 5, max: 9}, record{position: second, messages: 1, min: 3, max: 3}, 3, 3, 9},
		"the first":  {record{position: first, messages: 2, min: 5, max: 9}, record{position: second}, 2, 5, 9},
		"the second": {record{position: first}, record{position: second, messages: 1, min: 3, max: 3}, 1, 3, 3},
	} {
		c.one.keys, c.two.keys = []int64{7}, []int64{7}
		c.one.merge(c.two)
		if got := c.one; got.position != second || int64(got.messages) != c.messages || got.min != c.min || got.max != c.max || len(got.keys) != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The recorder is given what is settled from the beginning of a page on, and with it
// the keys on which the page has decided; what comes after the first that is not
// settled is read again.
func TestLane_HandsOverWhatIsSettled(t *testing.T) {
	t.Parallel()
	hash := int64(7)
	pageOf := func(end bool, settled ...bool) page {
		p := page{end: end}
		for i, s := range settled {
			e := &entry{place: 2, settled: s}
			e.Seq = int64(i + 1)
			e.aside = &aside{entry: e, hash: &hash}
			p.entries = append(p.entries, e)
		}
		return p
	}
	reading := position{passed: window{3, "3"}, reading: window{4, "4"}, slot: slotLate}
	for name, c := range map[string]struct {
		page page
		more bool
		want position
		none bool // nothing is handed over
	}{
		"all of it":                {pageOf(false, true, true), true, reading.at(2, 2), false},
		"up to a hole":             {pageOf(false, true, false, true), false, reading.at(2, 1), false},
		"nothing of it":            {pageOf(false, false, true), false, reading, true},
		"the window's end":         {pageOf(true, true), false, reading.end(), false},
		"the end of an empty one":  {pageOf(true), false, reading.end(), false},
		"a hole before the end":    {pageOf(true, true, false), false, reading.at(2, 1), false},
		"a hole, and only the end": {pageOf(true, false), false, reading, true},
	} {
		l := &lane{st: &stream{}, position: reading, keys: newBlockedKeys()}
		rec := &recorder{queue: make(chan record, 1)}
		for range c.page.entries {
			l.keys.add(hash)
		}
		if more := l.hand(rec, c.page); more != c.more || l.position != c.want {
			t.Errorf("%s: more %t, at %+v", name, more, l.position)
		}
		close(rec.queue)
		given, ok := <-rec.queue
		if ok == c.none || ok && (len(given.keys) != len(c.page.entries) || given.position != c.want) {
			t.Errorf("%s: handed over %+v, %t", name, given, ok)
		}
		l.keys.recorded(given.keys)
		if l.keys.settle([]int64{hash}); l.keys.keepWaiting() {
			t.Errorf("%s: the key waits for ever", name)
		}
	}
}
