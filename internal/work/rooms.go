package work

import (
	"context"
	"sync"
)

// Rooms bounds how many are at something at once: of one key, and of all. Who waits for a
// place of its key has none of all's, so that of a key whose every one takes long, such as
// for what somebody has locked, no more are in anybody's way than may be.
type Rooms struct {
	all  chan struct{}
	each int

	mu   sync.Mutex
	keys map[string]*room // guarded by mu: those of which any is in, or waits
}

type room struct {
	places chan struct{}
	n      int // guarded by the mutex of its Rooms: how many are in, or wait
}

// NewRooms has places for all, and of them no more than each for one key.
func NewRooms(all, each int) *Rooms {
	return &Rooms{all: make(chan struct{}, all), each: each, keys: map[string]*room{}}
}

// Enter waits for a place, until ctx ends: then it returns its error. Those of one key are
// let in as they came. leave is called once.
func (r *Rooms) Enter(ctx context.Context, key string) (leave func(), err error) {
	of := r.of(key)
	if err := enter(ctx, of.places); err != nil {
		r.drop(key, of)
		return nil, err
	}
	if err := enter(ctx, r.all); err != nil {
		<-of.places
		r.drop(key, of)
		return nil, err
	}
	return func() {
		<-r.all
		<-of.places
		r.drop(key, of)
	}, nil
}

func enter(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Rooms) of(key string) *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.keys[key]
	if of == nil {
		of = &room{places: make(chan struct{}, r.each)}
		r.keys[key] = of
	}
	of.n++
	return of
}

// drop forgets a key of which none is left.
func (r *Rooms) drop(key string, of *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of.n--; of.n == 0 {
		delete(r.keys, key)
	}
}
