package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/runstep"
)

// ArtifactStore keeps the bytes of artifacts; the log of a run has references alone (R10).
type ArtifactStore interface {
	// Put keeps what r has under a name of parts with / between them, and returns where. It is there whole, or not at all. The name begins
	// with until-YYYYMMDD/, the day in UTC after which it is needed no more, or with kept/; the tenant's id is next.
	Put(ctx context.Context, name string, r io.Reader) (uri string, err error)
	// Open reads what Put has kept. Errors: [fs.ErrNotExist].
	Open(ctx context.Context, uri string) (io.ReadCloser, error)
	// Remove removes it; that it is not there is no error.
	Remove(ctx context.Context, uri string) error
}

// ArtifactExpirer is an [ArtifactStore] that removes by itself what is needed no more. Where a store is none, rules of its own have to, such
// as those of a bucket about names that begin with until-.
type ArtifactExpirer interface {
	// Expire removes what was put under names whose day is before now's, in UTC. Every engine calls it when it starts, and every hour, and
	// waits for it when it stops: it returns soon once ctx has ended.
	Expire(ctx context.Context, now time.Time) error
}

// artifactKind is what kinds are called.
var artifactKind = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$`) })

// artifactSchemes are those of references.
var artifactSchemes = []string{"file", "s3", "gs", "azure", "https"}

// Put keeps what r has in the engine's [ArtifactStore], and makes it an artifact of the step, or inner step, whose code has ctx: the
// reference is in the run's log if the step ends well. A step that is begun again puts it again, and what was put in vain goes when it
// expires. Errors: a [*Failure], TOO_MANY_ARTIFACTS, for more than 50 of a step, or whose references have over 32 KiB together.
func Put(ctx context.Context, kind string, r io.Reader) (Artifact, error) {
	const op = "put artifact"
	s, _ := runstep.From(ctx)
	if s.Artifacts == nil {
		return Artifact{}, invalidf(op, "%w", errNoCode)
	} else if !artifactKind().MatchString(kind) {
		return Artifact{}, invalidf(op, "kind %q: want 1 to 100 of A-Z a-z 0-9 _ . -", kind)
	}
	a, err := s.Artifacts.Put(ctx, kind, r)
	return Artifact(a), err
}

// Attach makes a an artifact of the step, or inner step, whose code has ctx: what it has put elsewhere itself, at a URI of file, s3, gs, azure
// or https. Nothing removes that. Errors: [deed.Invalid]; else as [Put] has it.
func Attach(ctx context.Context, a Artifact) error {
	const op = "attach artifact"
	s, _ := runstep.From(ctx)
	u, err := url.Parse(a.URI)
	switch {
	case s.Artifacts == nil:
		return invalidf(op, "%w", errNoCode)
	case !artifactKind().MatchString(a.Kind):
		return invalidf(op, "kind %q: want 1 to 100 of A-Z a-z 0-9 _ . -", a.Kind)
	case err != nil || !slices.Contains(artifactSchemes, u.Scheme) || u.User != nil || len(a.URI) > 2000:
		return invalidf(op, "its URI is none of %s, or has a user in it, or over 2000 characters", strings.Join(artifactSchemes, ", "))
	case a.SHA256 != "" && !isSHA256.MatchString(a.SHA256), a.SizeBytes < 0:
		return invalidf(op, "its SHA-256 is no 64 hexadecimal digits, or its size is below 0")
	}
	return s.Artifacts.Attach(runstep.Artifact(a))
}

var isSHA256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Files is an [ArtifactStore] and an [ArtifactExpirer] in a directory, which the processes that need it share. Its URIs are of file.
type Files struct{ dir string }

var _ ArtifactExpirer = (*Files)(nil)

// NewFiles returns one, and makes the directory.
func NewFiles(dir string) (*Files, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o750)
	}
	if err != nil {
		return nil, fmt.Errorf("deed: artifacts: %w", err)
	}
	return &Files{dir}, nil
}

// Put implements [ArtifactStore].
func (f *Files) Put(_ context.Context, name string, r io.Reader) (uri string, err error) {
	if !fs.ValidPath(name) || name == "." {
		return "", invalidf("put artifact", "name %q is no path within the directory", name)
	}
	path := filepath.Join(f.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".put-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name()) // it has the other name by then
	_, err = io.Copy(temp, r)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return "", err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String(), nil
}

// path is where uri's bytes are, which is in the directory.
func (f *Files) path(op, uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" {
		return "", invalidf(op, "the URI is none of file:///…")
	}
	within, err := filepath.Rel(f.dir, filepath.FromSlash(u.Path))
	if err != nil || !filepath.IsLocal(within) || within == "." {
		return "", invalidf(op, "the URI is of another directory")
	}
	return filepath.Join(f.dir, within), nil
}

// Open implements [ArtifactStore].
func (f *Files) Open(_ context.Context, uri string) (io.ReadCloser, error) {
	path, err := f.path("open artifact", uri)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Remove implements [ArtifactStore].
func (f *Files) Remove(_ context.Context, uri string) error {
	path, err := f.path("remove artifact", uri)
	if err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Expire implements [ArtifactExpirer].
func (f *Files) Expire(ctx context.Context, now time.Time) error {
	list, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range list {
		day, ok := strings.CutPrefix(e.Name(), "until-")
		at, err := time.Parse("20060102", day)
		if ok && err == nil && at.AddDate(0, 0, 1).Before(now.UTC()) {
			errs = append(errs, remove(ctx, f.dir, e, 2))
		}
	}
	return errors.Join(errs...)
}

// remove removes e, which is in dir, with all that is in it: so many levels down one by one, and nothing more once ctx has ended. Of a day that is each run of each
// tenant.
func remove(ctx context.Context, dir string, e fs.DirEntry, levels int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(dir, e.Name())
	if !e.IsDir() || levels == 0 {
		return os.RemoveAll(path)
	}
	list, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // another process may remove it, too
		return err
	}
	var errs []error
	for _, within := range list {
		errs = append(errs, remove(ctx, path, within, levels-1))
		if ctx.Err() != nil {
			break
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return os.RemoveAll(path)
}
