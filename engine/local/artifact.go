package local

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/runstep"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/run"
)

// maxArtifacts is how many a step may have, and maxReferences how many bytes of JSON their references have together: they stand in one event, of at most 64 KiB,
// beside its output.
const maxArtifacts, maxReferences = 50, 32 << 10

// artifacts are those of a step, or of an inner one. Its methods may be called by several goroutines at once.
type artifacts struct {
	e    *Engine
	it   *item
	name string // the step's

	mu   sync.Mutex
	list []run.Artifact // guarded by mu
	size int            // guarded by mu: of the list as JSON
}

// Put is [runstep.Artifacts]'s.
func (a *artifacts) Put(ctx context.Context, kind string, r io.Reader) (runstep.Artifact, error) {
	if a.e.opts.Artifacts == nil {
		return runstep.Artifact{}, &run.Failure{Category: "infrastructure", Code: "ARTIFACTS_NOT_CONFIGURED", Final: true, Err: errors.New("this engine keeps no artifacts: local.Options.Artifacts")}
	}
	made := run.Artifact{Kind: kind}
	day := "kept"
	keep, named := a.e.opts.ArtifactRetention[kind]
	if !named {
		keep = a.e.opts.ArtifactRetention[""]
	}
	if keep > 0 {
		at := time.Now().Add(keep).UTC().Truncate(time.Second)
		made.ExpiresAt, day = &at, at.Format("until-20060102")
	}
	hash, size := sha256.New(), &counter{}
	uri, err := a.e.opts.Artifacts.Put(ctx, fmt.Sprintf("%s/%s/%s/%s/%s", day, a.it.tenant, a.it.run, a.part(), rand.Text()), io.TeeReader(r, io.MultiWriter(hash, size)))
	if err != nil {
		return runstep.Artifact{}, fmt.Errorf("put artifact of kind %s: %w", kind, err)
	}
	crash.Point("artifact put")
	made.URI, made.SHA256, made.SizeBytes = uri, hex.EncodeToString(hash.Sum(nil)), size.n
	return runstep.Artifact(made), a.Attach(runstep.Artifact(made))
}

// part is the step's name as a part of a path, or a hash in its place where file systems have no room for it: 200 letters may be 2,400 bytes.
func (a *artifacts) part() string {
	part := url.PathEscape(a.name)
	if len(part) > 200 {
		sum := sha256.Sum256([]byte(a.name))
		part = hex.EncodeToString(sum[:])
	}
	return part
}

// Attach is [runstep.Artifacts]'s.
func (a *artifacts) Attach(made runstep.Artifact) error {
	if g := a.it.guard; g.inText(made.URI) || g.inText(made.Kind) || g.inText(made.SHA256) {
		return errLeak() // a URI may be signed
	}
	text, err := json.Marshal(run.Artifact(made))
	if err != nil {
		return fmt.Errorf("the reference of an artifact: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) == maxArtifacts || a.size+len(text) > maxReferences {
		return &run.Failure{Code: "TOO_MANY_ARTIFACTS", Final: true, Err: fmt.Errorf("a step has at most %d artifacts, whose references have %d bytes together", maxArtifacts, maxReferences)}
	}
	a.list = append(a.list, run.Artifact(made))
	a.size += len(text)
	return nil
}

// into adds them to the data of an end.
func (a *artifacts) into(data map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) > 0 {
		data["artifacts"] = a.list
	}
}

// counter counts bytes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// expiring removes artifacts whose time is over, until ctx ends, from a store that can.
func (e *Engine) expiring(ctx context.Context) {
	store, ok := e.opts.Artifacts.(run.ArtifactExpirer)
	for ok {
		if err := store.Expire(ctx, time.Now()); err != nil && ctx.Err() == nil {
			e.opts.Logger.Warn("artifacts whose time is over were not removed", "error", err)
		}
		ok = work.Sleep(ctx, time.Hour)
	}
}
