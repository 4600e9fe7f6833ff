package stream

import "testing"

// A key goes when nothing of it is aside any more. What a page has put aside and not
// recorded is not seen by who records what came before: it keeps its key, whenever
// it was put there, and whenever its own record comes, until that has gone, too.
func TestBlockedKeys_KeepWhatPagesHaveDecided(t *testing.T) {
	t.Parallel()
	const key = 7
	keys := []int64{key}
	steps := map[string]func(*blockedKeys){
		"settle":   func(b *blockedKeys) { b.settle(keys) },
		"join":     func(b *blockedKeys) { b.join(key) },
		"fail":     func(b *blockedKeys) { b.add(key) },
		"recorded": func(b *blockedKeys) { b.recorded(keys) },
		"remove":   func(b *blockedKeys) { b.remove(keys) },
		"load":     func(b *blockedKeys) { b.load(keys) },
	}
	for _, c := range []struct {
		do      []string
		blocked bool
	}{
		{[]string{"settle", "remove"}, false},
		{[]string{"settle", "settle", "remove"}, false}, // the first was not recorded
		{[]string{"join", "settle", "remove"}, true},
		{[]string{"settle", "join", "remove"}, true},
		{[]string{"settle", "fail", "remove"}, true},
		{[]string{"join", "settle", "recorded", "remove"}, true},
		{[]string{"settle", "join", "recorded", "remove"}, true},
		{[]string{"join", "join", "recorded", "settle", "remove"}, true},
		{[]string{"settle", "join", "recorded", "remove", "settle", "remove"}, false},
		{[]string{"join", "recorded", "settle", "remove"}, false},
		{[]string{"settle", "load", "remove"}, true}, // nobody knows whether it was read before or after
		{[]string{"settle", "load", "settle", "remove"}, false},
		{[]string{"remove"}, true}, // it was another lane's when that was announced
	} {
		b := newBlockedKeys()
		b.load(keys)
		for _, step := range c.do {
			steps[step](b)
		}
		if _, blocked := b.hashes[key]; blocked != c.blocked {
			t.Errorf("after %v it is blocked: %t", c.do, blocked)
		}
	}
}

// A page that takes long ends for a key that could not be let go because of it, and
// for no other.
func TestBlockedKeys_TellWhoKeepsThemWaiting(t *testing.T) {
	t.Parallel()
	b := newBlockedKeys()
	b.load([]int64{7, 8})
	for _, c := range []struct {
		what  string
		do    func()
		waits bool
	}{
		{"another key's outcome", func() { b.join(7); b.settle([]int64{8}) }, false},
		{"its own, while a page has more of it", func() { b.settle([]int64{7}) }, true},
		{"the page's record", func() { b.recorded([]int64{7}) }, false},
		{"a page's beside that of an outcome", func() { b.settle([]int64{7}); b.join(7); b.remove([]int64{7}) }, true},
	} {
		if c.do(); b.keepWaiting() != c.waits {
			t.Errorf("after %s: waits %t", c.what, !c.waits)
		}
	}
}
