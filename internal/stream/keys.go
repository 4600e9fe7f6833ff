package stream

import "sync"

// blockedKeys are the hashes of keys with messages aside, in a lane's slots:
// no other message of them may be delivered. The lane's reader loads them, pages
// add to them, and who has recorded that nothing of a key is aside any more takes
// it out. One too many costs a message a row; one too few costs the order.
//
// Two decide about a key at the same time, and neither waits for the other: a page,
// which puts a message aside and whose record comes much later, maybe never, and
// who records what became of those that were aside before. So a key is let go only
// if no page had anything of it aside unrecorded since before that record: else
// the last of those before could be finished, and the key be let go, and what comes
// next would overtake the page's. What the page has is a row by then, and lets the key
// go in its turn.
type blockedKeys struct {
	mu      sync.Mutex
	hashes  map[int64]struct{} // guarded by mu
	decided map[int64]int      // guarded by mu: messages that pages have put aside, and that are not recorded
	ending  map[int64]struct{} // guarded by mu: of hashes: outcomes are being recorded, and no page has decided since
	awaited map[int64]struct{} // guarded by mu: of decided: it could not be let go
}

func newBlockedKeys() *blockedKeys {
	b := &blockedKeys{}
	b.load(nil)
	return b
}

// load makes them those that the database has. All that the lane has delivered is
// recorded by then, or comes again, so none that a page has added is missing.
func (b *blockedKeys) load(hashes []int64) {
	loaded := make(map[int64]struct{}, len(hashes))
	for _, h := range hashes {
		loaded[h] = struct{}{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes = loaded
	b.decided, b.ending, b.awaited = map[int64]int{}, map[int64]struct{}{}, map[int64]struct{}{}
}

// add blocks a key, of which a page puts a message aside, before the row that blocks
// it is written with the page's record.
func (b *blockedKeys) add(hash int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decide(hash)
}

// join reports whether a key is blocked; a page then puts its message aside, behind
// the others.
func (b *blockedKeys) join(hash int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.hashes[hash]; !ok {
		return false
	}
	b.decide(hash)
	return true
}

// decide is what both have in common; b.mu is held.
func (b *blockedKeys) decide(hash int64) {
	b.hashes[hash] = struct{}{}
	b.decided[hash]++
	delete(b.ending, hash)
}

// recorded says that what pages had put aside, a message each, has its row, or comes
// again.
func (b *blockedKeys) recorded(hashes []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hashes {
		if b.decided[h]--; b.decided[h] <= 0 {
			delete(b.decided, h)
			delete(b.awaited, h)
		}
	}
}

// settle says that outcomes of messages of these keys are about to be recorded, after
// which those of them may be removed of which nothing is aside.
func (b *blockedKeys) settle(hashes []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hashes {
		if b.decided[h] > 0 {
			b.awaited[h] = struct{}{}
		} else if _, ok := b.hashes[h]; ok {
			b.ending[h] = struct{}{}
		}
	}
}

// remove lets keys go of which the record that was announced has left nothing aside,
// but for those of which pages have put more aside since.
func (b *blockedKeys) remove(hashes []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hashes {
		if _, ok := b.ending[h]; ok {
			delete(b.ending, h)
			delete(b.hashes, h)
		} else if b.decided[h] > 0 {
			b.awaited[h] = struct{}{}
		}
	}
}

// keepWaiting reports whether a key could not be let go because of what a page has not
// recorded.
func (b *blockedKeys) keepWaiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.awaited) > 0
}

func (b *blockedKeys) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hashes) == 0
}
