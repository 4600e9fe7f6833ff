package local_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/run"
)

// The log has references to what steps put, theirs and their inner steps', and the bytes are elsewhere and go when their time is over.
func TestContract_R10_ArtifactsAreReferences(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	files, err := run.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var tries atomic.Int32
	const canary = "canary-of-bytes"
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a, retry: {attempts: 2, backoff: 1ms}}}}`)
	serve(t, db, local.Options{Artifacts: files, ArtifactRetention: map[string]time.Duration{"": time.Hour, "kept": 0}, Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
			if _, err := run.Put(ctx, "report", strings.NewReader(canary)); err != nil {
				return nil, err
			}
			if tries.Add(1) == 1 {
				return nil, fail("AGAIN") // what it has put is no artifact of the run's
			}
			if err := run.Attach(ctx, run.Artifact{URI: "s3://bucket/x", Kind: "table"}); err != nil {
				return nil, err
			}
			if _, err := run.Step(ctx, "i", func(ctx context.Context) (nothing, error) {
				_, err := run.Put(ctx, "page", strings.NewReader("inner"))
				return nil, err
			}); err != nil {
				return nil, err
			}
			if a, err := run.Put(ctx, "kept", strings.NewReader("")); err != nil || a.ExpiresAt != nil {
				t.Errorf("of a kind that is kept: %+v, %v", a, err)
			}
			return nil, run.Tx(ctx, "tx", func(ctx context.Context, _ pgx.Tx) error {
				_, err := run.Put(ctx, "page", strings.NewReader("tx"))
				return err
			})
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	shown, err := run.Show(t.Context(), db.Pool(pgtest.App), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	made := map[string][]run.Artifact{}
	for _, s := range shown.Snapshot.Steps {
		made[s.ID] = s.Artifacts
	}
	want(t, "artifacts of the step, of its inner step, of its transaction, of the run",
		[4]int{len(made["a"]), len(made["a/i"]), len(made["a/tx"]), len(shown.Snapshot.Artifacts)}, [4]int{3, 1, 1, 5})
	report := made["a"][0]
	sum := sha256.Sum256([]byte(canary))
	want(t, "its hash", report.SHA256, hex.EncodeToString(sum[:]))
	want(t, "its size", report.SizeBytes, int64(len(canary)))
	if report.ExpiresAt == nil || report.ExpiresAt.After(time.Now().Add(time.Hour)) || !strings.HasPrefix(report.URI, "file:///") {
		t.Errorf("the reference: %+v", report)
	}
	canaryIn(t, db, canary)
	r, err := files.Open(t.Context(), report.URI)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if want(t, "its bytes", string(text), canary); err != nil || r.Close() != nil {
		t.Error(err)
	}

	if err := files.Expire(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if r, err := files.Open(t.Context(), report.URI); err != nil {
		t.Errorf("it is gone before its time: %v", err)
	} else {
		r.Close()
	}
	if err := files.Expire(t.Context(), time.Now().AddDate(0, 0, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Open(t.Context(), report.URI); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its time: %v", err)
	}
}

// A step puts artifacts whatever it is called: a name of 72 letters may be over 255 bytes as a part of a path, which is more than file systems take.
func TestArtifacts_OfALongName(t *testing.T) {
	t.Parallel()
	files, err := run.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	serve(t, db, local.Options{Artifacts: files, Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
			return run.Step(ctx, run.Named("отчёт", strings.Repeat("ж", 60)), func(ctx context.Context) (nothing, error) {
				_, err := run.Put(ctx, "report", strings.NewReader("its bytes"))
				return nil, err
			})
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	want(t, "why it has failed", messageOf(t, db, id, "a"), "")
	shown, err := run.Show(t.Context(), db.Pool(pgtest.App), id, 0)
	if err != nil || len(shown.Snapshot.Artifacts) != 1 {
		t.Fatalf("%+v, %v", shown, err)
	}
	r, err := files.Open(t.Context(), shown.Snapshot.Artifacts[0].URI)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if want(t, "its bytes", string(text), "its bytes"); err != nil || r.Close() != nil {
		t.Error(err)
	}
}

// What a step may refer to fits in its end, which is stored beside its output: who attaches more is told so, and what was taken before is the step's.
func TestArtifacts_FitInTheEnd(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		uri  string
		most int
	}{"short ones": {"s3://bucket/", 50}, "long ones": {"s3://bucket/" + strings.Repeat("x", 1900), 16}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
			serve(t, db, local.Options{Handlers: []local.Handler{
				local.Step("a", func(ctx context.Context, _ nothing) (string, error) {
					for n := range c.most + 1 {
						err := run.Attach(ctx, run.Artifact{URI: c.uri + fmt.Sprint(n), Kind: "table", SHA256: strings.Repeat("0", 64), SizeBytes: 1})
						if f, ok := errors.AsType[*run.Failure](err); n < c.most && err != nil || n == c.most && (!ok || f.Code != "TOO_MANY_ARTIFACTS") {
							t.Errorf("artifact %d: %v", n, err)
						}
					}
					return strings.Repeat("x", 16_000), nil
				}),
			}})
			id := start(t, db, "r", nil)
			want(t, "the run", ended(t, db, id), "COMPLETED")
			want(t, "references", pgtest.One[int](t, db.Pool(pgtest.Owner), `select jsonb_array_length(event_data -> 'artifacts') from deed.run_log where event_type = 'StepCompleted'`), c.most)
		})
	}
}

// looks is a context that has ended after so many looks at it.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// Who stops an engine does not wait until all is removed whose time is over: what is left is removed the next time.
func TestFiles_ExpireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := run.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if _, err := files.Put(t.Context(), fmt.Sprintf("until-20200101/tenant/run%d/step/x", n), strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"until-20200101/file", "kept/tenant/run/step/x"} {
		if _, err := files.Put(t.Context(), name, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
	}
	left := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "until-20200101", "tenant", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for _, most := range []int{0, 10} {
		if err := files.Expire(&looks{t.Context(), most}, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("it has not ended early: %v", err)
		}
		if n := left(); n == 0 || (n == 20) != (most == 0) {
			t.Errorf("%d of 20 are left, where it ends at look %d", n, most)
		}
	}
	if err := files.Expire(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 || list[0].Name() != "kept" {
		t.Errorf("in the end: %v, %v", list, err)
	}
}

// bucket is a store of a program's own, which is asked to remove what is needed no more.
type bucket struct {
	*run.Files
	names   chan string
	expired chan time.Time
}

func (b *bucket) Put(ctx context.Context, name string, r io.Reader) (string, error) {
	b.names <- name
	return b.Files.Put(ctx, name, r)
}

func (b *bucket) Expire(_ context.Context, now time.Time) error {
	b.expired <- now
	return nil
}

// Retention by kind holds in a store of a program's own, too: a name says until when and whose it is, and an engine asks the store to
// remove what is over.
func TestContract_R10_AStoreOfOnesOwnExpires(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	files, err := run.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := &bucket{files, make(chan string, 1), make(chan time.Time, 1)}
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	serve(t, db, local.Options{Artifacts: store, ArtifactRetention: map[string]time.Duration{"report": 48 * time.Hour}, Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
			_, err := run.Put(ctx, "report", strings.NewReader("x"))
			return nil, err
		}),
	}})
	before := time.Now().UTC().AddDate(0, 0, 2).Format("20060102")
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "COMPLETED")
	name := <-store.names
	if after := time.Now().UTC().AddDate(0, 0, 2).Format("20060102"); !strings.HasPrefix(name, "until-"+before+"/") && !strings.HasPrefix(name, "until-"+after+"/") {
		t.Errorf("put as %s: want until-%s/", name, before)
	}
	if whose := pgtest.One[string](t, db.Pool(pgtest.Owner), `select tenant_id::text from deed.runs`); !strings.Contains(name, "/"+whose+"/"+id+"/a/") {
		t.Errorf("put as %s: want /%s/%s/a/ in it", name, whose, id)
	}
	if at := <-store.expired; time.Since(at) > time.Minute {
		t.Errorf("asked to remove what was over at %s", at)
	}
}

// What is no reference, or no place of the store's, is refused; and without a store a step that puts something fails.
func TestArtifacts_Refused(t *testing.T) {
	t.Parallel()
	files, err := run.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, uri := range []string{"file:///etc/passwd", "s3://bucket/x", "file://host/x", "../x", "file:///"} {
		if _, err := files.Open(t.Context(), uri); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("open %s: %v", uri, err)
		}
	}
	for _, name := range []string{"../x", "/x", ".", "a//b"} {
		if _, err := files.Put(t.Context(), name, strings.NewReader("")); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("put %s: %v", name, err)
		}
	}
	if _, err := run.Put(t.Context(), "report", strings.NewReader("")); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("outside of a step: %v", err)
	}

	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}, b: {kind: go, handler: b}}}`)
	serve(t, db, local.Options{Handlers: []local.Handler{
		local.Step("a", func(ctx context.Context, _ nothing) (nothing, error) {
			_, err := run.Put(ctx, "report", strings.NewReader("x"))
			return nil, err
		}),
		local.Step("b", func(ctx context.Context, _ nothing) (nothing, error) {
			for _, a := range []run.Artifact{{URI: "ftp://x/y", Kind: "k"}, {URI: "s3://x", Kind: "a b"}, {URI: "https://user:pw@x/", Kind: "k"}, {URI: "s3://x", Kind: "k", SHA256: "x"}} {
				if err := run.Attach(ctx, a); deed.CodeOf(err) != deed.Invalid {
					t.Errorf("%+v: %v", a, err)
				}
			}
			return nil, nil
		}),
	}})
	id := start(t, db, "r", nil)
	want(t, "the run", ended(t, db, id), "FAILED")
	want(t, "why", errorOf(t, db, id, "a"), "ARTIFACTS_NOT_CONFIGURED")
}
