package stream

import "sync"

// blockedKeys are the hashes of keys with messages aside, in a lane's slots:
// no other message of them may be delivered. The lane's reader loads them, pages
// add to them, and who has recorded that nothing of a key is aside any more takes
// it out. One too many costs a message a row; one too few costs the order.
type blockedKeys struct {
	mu     sync.Mutex
	hashes map[int64]struct{} // guarded by mu
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
}

// add is called under the stream's parking, before the row that blocks the key is
// written with the page's record.
func (b *blockedKeys) add(hash int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hashes[hash] = struct{}{}
}

// remove lets keys go that have no messages aside any more.
func (b *blockedKeys) remove(hashes []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range hashes {
		delete(b.hashes, h)
	}
}

func (b *blockedKeys) has(hash int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.hashes[hash]
	return ok
}

func (b *blockedKeys) none() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hashes) == 0
}
