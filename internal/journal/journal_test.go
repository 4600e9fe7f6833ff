package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func open(t *testing.T, path string, limit int64) (*Journal, Kept) {
	t.Helper()
	j, kept, err := Open(path, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, kept
}

func texts(entries [][]byte) string { return string(bytes.Join(entries, []byte(","))) }

// reopened is what is in the file once its process has ended.
func reopened(t *testing.T, j *Journal) Kept {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, kept := open(t, j.path, j.limit)
	return kept
}

func check(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// What was appended is there for who opens it next, and nothing of what was replaced is.
func TestJournal_KeepsWhatItWasTold(t *testing.T) {
	t.Parallel()
	j, kept := open(t, filepath.Join(t.TempDir(), "j"), 1<<20)
	if len(kept.Entries) != 0 || kept.Torn || kept.Broken != 0 {
		t.Errorf("a new one has %+v", kept)
	}
	check(t, "append", j.Append([]byte("a"), []byte("b b")))
	check(t, "append", j.Append([]byte("c")))
	kept = reopened(t, j)
	if got := texts(kept.Entries); got != "a,b b,c" || kept.Torn || kept.Broken != 0 {
		t.Errorf("it has %s, %+v", got, kept)
	}
}

func TestJournal_Replace(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "j"), 1<<20)
	check(t, "append", j.Append([]byte("a"), []byte("b")))
	check(t, "replace", j.Replace([]byte("b")))
	check(t, "append", j.Append([]byte("c")))
	kept := reopened(t, j)
	if got := texts(kept.Entries); got != "b,c" {
		t.Errorf("it has %s", got)
	}
	j, _, err := Open(j.path, 1<<20)
	if !errors.Is(err, ErrInUse) || j != nil {
		t.Errorf("a second process gets %v", err)
	}
}

func TestJournal_ReplacedByNothing(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "j"), 1<<20)
	check(t, "append", j.Append([]byte("a")))
	check(t, "replace", j.Replace())
	check(t, "replace again", j.Replace())
	check(t, "append", j.Append([]byte("d")))
	kept := reopened(t, j)
	if got := texts(kept.Entries); got != "d" {
		t.Errorf("it has %s", got)
	}
}

// A process that is killed at any byte of a write loses that entry, and no other one.
func TestJournal_TornAtEveryByte(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path, 1<<20)
	check(t, "append", j.Append([]byte("first"), []byte("second")))
	check(t, "close", j.Close())
	whole, err := os.ReadFile(path)
	check(t, "read", err)
	for n := range whole {
		check(t, "write", os.WriteFile(path, whole[:n], 0o600))
		j, kept := open(t, path, 1<<20)
		want := strings.Join([]string{"first", "second"}[:max(0, bytes.Count(whole[:n], []byte("\n"))-1)], ",")
		torn := n > 0 && whole[n-1] != '\n'
		if got := texts(kept.Entries); got != want || kept.Torn != torn || kept.Broken != 0 {
			t.Fatalf("cut after %d bytes it has %q (torn: %t, broken: %d)", n, got, kept.Torn, kept.Broken)
		}
		check(t, "append", j.Append([]byte("next")))
		check(t, "close", j.Close())
		j, kept = open(t, path, 1<<20)
		if got := texts(kept.Entries); !strings.HasSuffix(got, "next") || kept.Torn || kept.Broken != 0 {
			t.Fatalf("cut after %d bytes, appended to, it has %q (torn: %t, broken: %d)", n, got, kept.Torn, kept.Broken)
		}
		check(t, "close", j.Close())
	}
}

// Who only looks leaves what was not written whole for who opens it, and keeps the file from nobody.
func TestJournal_CheckLeavesWhatIsTorn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	check(t, "check of none", Check(path, 1<<20))
	for _, text := range []string{"deed jour", header + "0000"} {
		check(t, "write", os.WriteFile(path, []byte(text), 0o600))
		check(t, "check", Check(path, 1<<20))
		j, kept := open(t, path, 1<<20)
		if !kept.Torn {
			t.Errorf("%q is not torn any more", text)
		}
		if err := Check(path, 1<<20); !errors.Is(err, ErrInUse) {
			t.Errorf("while it is open: %v", err)
		}
		check(t, "close", j.Close())
	}
}

// A line that is not what was written is passed over, and those around it are not.
func TestJournal_ABrokenLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "j")
	j, _ := open(t, path, 1<<20)
	check(t, "append", j.Append([]byte("first"), []byte("second"), []byte("third")))
	check(t, "close", j.Close())
	whole, err := os.ReadFile(path)
	check(t, "read", err)
	for _, broken := range []string{"secont", "\n\nd", "\x00\x00\x00\x00\x00\x00"} {
		check(t, "write", os.WriteFile(path, bytes.Replace(whole, []byte("second"), []byte(broken), 1), 0o600))
		j, kept := open(t, path, 1<<20)
		if got := texts(kept.Entries); got != "first,third" || kept.Broken == 0 || kept.Torn {
			t.Errorf("with %q it has %q (torn: %t, broken: %d)", broken, got, kept.Torn, kept.Broken)
		}
		check(t, "close", j.Close())
	}
}

// Somebody else's file is left as it is; so is one that cannot be a file.
func TestJournal_NoJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"another's": "root:x:0:0\n", "too long": header + strings.Repeat("x", 200), "almost": "deed journal 2\n"} {
		path := filepath.Join(dir, name)
		check(t, "write", os.WriteFile(path, []byte(text), 0o600))
		if _, _, err := Open(path, 100); err == nil {
			t.Errorf("%s was opened", name)
		}
		if Check(path, 100) == nil {
			t.Errorf("%s is found to be one", name)
		}
		got, err := os.ReadFile(path)
		if check(t, "read", err); string(got) != text {
			t.Errorf("%s was changed to %q", name, got)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, "none", "j")} {
		if _, _, err := Open(path, 100); err == nil {
			t.Errorf("%s was opened", path)
		}
		if Check(path, 100) == nil {
			t.Errorf("%s is found to be one", path)
		}
	}
}

// Where it is full, or the disk is, nothing is kept that was not kept before, and it goes on when there is room.
func TestJournal_Full(t *testing.T) {
	t.Parallel()
	j, _ := open(t, filepath.Join(t.TempDir(), "j"), int64(len(header))+60)
	check(t, "append", j.Append([]byte("a")))
	if err := j.Append(bytes.Repeat([]byte("x"), 60)); !errors.Is(err, ErrFull) {
		t.Errorf("over the limit: %v", err)
	}
	if err := j.Replace(bytes.Repeat([]byte("x"), 60)); !errors.Is(err, ErrFull) {
		t.Errorf("replaced over the limit: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	file := j.file
	j.file = full
	if err := j.Append([]byte("lost")); err == nil {
		t.Error("a full disk has kept an entry")
	}
	check(t, "close", full.Close())
	j.file = file
	check(t, "append", j.Append([]byte("b")))
	kept := reopened(t, j)
	if got := texts(kept.Entries); got != "a,b" || kept.Torn || kept.Broken != 0 {
		t.Errorf("it has %s, %+v", got, kept)
	}
}

// A journal of the largest size opens.
func TestJournal_Large(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	j, _ := open(t, filepath.Join(t.TempDir(), "j"), limit)
	n := 0
	for {
		var list [][]byte
		for range 1000 {
			list = append(list, fmt.Append(nil, n, strings.Repeat("x", 100)))
		}
		if err := j.Append(list...); err != nil {
			break
		}
		n += len(list)
	}
	if kept := reopened(t, j); len(kept.Entries) != n || n < 5000 {
		t.Errorf("%d of %d", len(kept.Entries), n)
	}
}
