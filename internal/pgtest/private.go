package pgtest

import (
	"cmp"
	"context"
	"maps"
	"testing"

	"github.com/deedhq/deed/internal/pgembed"
)

// Cluster is a test's own server, which it may kill and restart.
type Cluster struct {
	*pgembed.Cluster
	server *server
}

// Private starts a server of the test's own, which is stopped and removed at
// its end. Unlike the suite's it keeps its promises: fsync is on unless opts
// say otherwise. What is killed is the server and not the machine, so it may be
// in memory as well.
func Private(t testing.TB, opts pgembed.Options) *Cluster {
	t.Helper()
	merged := settings()
	maps.Copy(merged, opts.Settings)
	opts.Settings = merged
	opts.TempDir = cmp.Or(opts.TempDir, memoryFolder())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgembed.Start(ctx, opts)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return &Cluster{Cluster: c, server: &server{url: c.URL}}
}

// DB returns a database with the schema, as [New] does, in the cluster. If the
// test ends with the server down, the server is started for deed.verify() to
// see what it has recovered.
func (c *Cluster) DB(t testing.TB) *DB {
	t.Helper()
	db := newDB(t, c.server, true)
	t.Cleanup(func() { // before the database's own
		if c.PID() != 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Restart(ctx); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return db
}
