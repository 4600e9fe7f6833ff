package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/deedhq/deed/contact"
)

// writeErasures adds a line each to the file, and has the disk keep them. That the file is
// in its folder is kept each time: who made it may not have come so far.
func writeErasures(ctx context.Context, name string, list []contact.Erasure) error {
	var lines []byte
	for _, e := range list {
		line, err := json.Marshal(recordOf(e))
		if err != nil {
			return fmt.Errorf("erasures: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("erasures: %w", err)
	}
	alone, err := lockFile(ctx, f)
	if err == nil {
		err = addLines(f, lines, alone)
	}
	if alone {
		err = errors.Join(err, unlockFile(f))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = syncFolder(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("erasures: %w", err)
	}
	return nil
}

// addLines writes lines behind what the file has. What stands there without an end, of a
// process that was killed or by hand, gets one and is never taken away: it may be a whole
// record. What of these lines could not be written whole is taken away if nobody else
// writes here, so that a full disk does not fill the file with pieces.
func addLines(f *os.File, lines []byte, alone bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	before := info.Size()
	if before > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, before-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	n, err := f.Write(lines)
	if err == nil {
		err = f.Sync()
	}
	if err == nil || !alone {
		return err
	}
	// An older deed locks nothing: what it has added meanwhile stays.
	if info, statErr := f.Stat(); statErr != nil || info.Size() != before+int64(n) {
		return errors.Join(err, statErr)
	}
	return errors.Join(err, f.Truncate(before), f.Sync())
}

// syncFolder has the disk keep that a file is in a folder.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// A tornRecord is what is left of a record that was not written to its end. It did not
// count as recorded, so that the relay has written it again, if it could.
type tornRecord struct {
	line int
	text []byte
	lost bool // it says whose it is, and stands nowhere whole
}

var (
	recordBegins   = []byte(`{"n":"`) // and no text in one has this: its quotes are escaped
	recordNumbered = regexp.MustCompile(`^\{"n":"\d+"`)
)

// readErasures reads a record of erasures, and what is torn in it. What follows a torn one
// in its line, as older versions wrote it, is read.
func readErasures(in io.Reader) (list []erasureRecord, torn []tornRecord, err error) {
	r := bufio.NewReader(in)
	whole := [][]byte{}
	for n, ended := 1, false; !ended; n++ {
		line, err := r.ReadBytes('\n')
		if ended = err == io.EOF; err != nil && !ended {
			return nil, nil, err
		}
		rest := bytes.Trim(line, "\x00 \t\r\n") // zeros: a file system that lost its power
		for len(rest) > 0 {
			part := rest
			if at := bytes.Index(rest[1:], recordBegins); at >= 0 {
				part = rest[:1+at]
			}
			rest = rest[len(part):]
			e, err := readErasure(part)
			switch {
			case err == nil:
				e.line = n
				list, whole = append(list, e), append(whole, part)
			case errors.Is(err, io.ErrUnexpectedEOF) && (bytes.HasPrefix(part, recordBegins) || bytes.HasPrefix(recordBegins, part)):
				torn = append(torn, tornRecord{line: n, text: part})
			default:
				return nil, nil, fmt.Errorf("line %d is no record of an erasure", n)
			}
		}
	}
	for i := range torn {
		t := &torn[i]
		t.lost = recordNumbered.Match(t.text) && !anyBegins(whole, t.text)
	}
	return list, torn, nil
}

func readErasure(text []byte) (e erasureRecord, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&e); err != nil {
		return e, err
	}
	if _, err := d.Token(); err != io.EOF || e.Contact == "" || e.Tenant == "" {
		return e, errors.New("no record of an erasure")
	}
	if len(e.Names) == 0 {
		e.Names = []string{e.Contact}
	}
	return e, nil
}

func anyBegins(list [][]byte, with []byte) bool {
	for _, text := range list {
		if bytes.HasPrefix(text, with) {
			return true
		}
	}
	return false
}
