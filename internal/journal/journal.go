// Package journal keeps small entries in a file of this machine, each flushed before it counts as kept, for what a database
// that is away cannot be told. What it keeps may be told again: nothing in it says what was told already.
package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/deedhq/deed/internal/crash"
)

// ErrFull is that entries do not fit into the file.
var ErrFull = errors.New("the journal is full")

// ErrInUse is that another process has the file.
var ErrInUse = errors.New("another process has the journal")

// header is the first line of a journal; a file that begins otherwise is somebody's else, and is left as it is.
const header = "deed journal 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Journal is such a file, of this process alone. Its methods may be called by several goroutines at once.
type Journal struct {
	path  string
	limit int64
	lock  *os.File

	mu   sync.Mutex
	file *os.File // guarded by mu, as is size: how much of it counts
	size int64
}

// Kept is what a journal had when it was opened.
type Kept struct {
	Entries [][]byte
	Torn    bool // the last one was not written whole
	Broken  int  // so many lines are not what was written, and are passed over
}

// Open makes the file at path if it is not there, and returns what is in it. It has at most limit bytes.
func Open(path string, limit int64) (*Journal, Kept, error) {
	j, err := take(path, limit)
	if err != nil {
		return nil, Kept{}, err
	}
	kept, err := j.open()
	if err != nil {
		return nil, Kept{}, errors.Join(err, j.Close())
	}
	return j, kept, nil
}

// Check reports why [Open] would fail, and leaves what is in the file, the last line that was not written whole, too, for who opens it.
func Check(path string, limit int64) error {
	j, err := take(path, limit)
	if err != nil {
		return err
	}
	_, err = j.text()
	return errors.Join(err, j.Close())
}

// take has the file at path be this process's.
func take(path string, limit int64) (*Journal, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Journal{path: path, limit: limit, lock: lock}, nil
}

// text opens the file, and returns all of it, if it is a journal's or the beginning of one's.
func (j *Journal) text() (text []byte, err error) {
	if j.file, err = os.OpenFile(j.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	info, err := j.file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > j.limit {
		return nil, fmt.Errorf("%s is no journal: it is no file, or has over %d bytes", j.path, j.limit)
	}
	text = make([]byte, info.Size())
	if _, err := j.file.ReadAt(text, 0); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, []byte(header)) && !bytes.HasPrefix([]byte(header), text) {
		return nil, fmt.Errorf("%s is no journal: it begins with something else", j.path)
	}
	return text, nil
}

func (j *Journal) open() (kept Kept, err error) {
	if err := os.Remove(j.path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return kept, err
	}
	text, err := j.text()
	if err != nil {
		return kept, err
	}
	if len(text) >= len(header) {
		kept, j.size = read(text)
	} else { // its first line was not written whole
		kept.Torn = len(text) > 0
		if _, err := j.file.WriteAt([]byte(header), 0); err != nil {
			return kept, err
		}
		j.size = int64(len(header))
	}
	return kept, errors.Join(j.file.Truncate(j.size), j.file.Sync(), syncFolder(j.path))
}

// read takes a journal's text apart; size is how much of it is whole lines.
func read(text []byte) (kept Kept, size int64) {
	whole := bytes.LastIndexByte(text, '\n') + 1
	kept.Torn = whole < len(text)
	for line := range bytes.Lines(text[len(header):whole]) {
		sum, entry, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		want, err := strconv.ParseUint(string(sum), 16, 32)
		if !ok || err != nil || uint32(want) != crc32.Checksum(entry, castagnoli) {
			kept.Broken++
			continue
		}
		kept.Entries = append(kept.Entries, entry)
	}
	return kept, int64(whole)
}

// lines are entries as they stand in the file. None has a line feed in it.
func lines(entries [][]byte) []byte {
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%08x %s\n", crc32.Checksum(e, castagnoli), e)
	}
	return b.Bytes()
}

// Append keeps entries, all of them or none. Errors: [ErrFull], and those of the file system, after which the file is as it was.
func (j *Journal) Append(entries ...[]byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := lines(entries)
	if j.size+int64(len(text)) > j.limit {
		return ErrFull
	}
	crash.Point("journal appending")
	_, err := j.file.WriteAt(text, j.size)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// Where that fails as well, the next one writes over it.
		return errors.Join(err, j.file.Truncate(j.size))
	}
	j.size += int64(len(text))
	crash.Point("journal appended")
	return nil
}

// Size is how many bytes the file has.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size
}

// Replace keeps entries in place of all that was kept.
func (j *Journal) Replace(entries ...[]byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	crash.Point("journal replacing")
	if len(entries) == 0 {
		if j.size == int64(len(header)) {
			return nil
		}
		if err := j.file.Truncate(int64(len(header))); err != nil {
			return err
		}
		j.size = int64(len(header))
		return j.file.Sync()
	}
	text := append([]byte(header), lines(entries)...)
	if int64(len(text)) > j.limit {
		return ErrFull
	}
	file, err := os.OpenFile(j.path+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Sync()); err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	old := j.file
	j.file, j.size = file, int64(len(text))
	crash.Point("journal replaced")
	return errors.Join(syncFolder(j.path), old.Close())
}

// Close lets another process have it.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.file != nil {
		err = j.file.Close()
	}
	return errors.Join(err, unlock(j.lock))
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
