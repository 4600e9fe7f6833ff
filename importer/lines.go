package importer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// lines cuts a file into lines, in memory that most bounds.
type lines struct {
	r     *bufio.Reader
	most  int
	back  []byte // read before, and to be read again
	line  int    // the number of the line that is read next or in part
	begun bool
}

func newLines(r io.Reader, most int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), most: most, line: 1}
}

// chunk returns a part of a line, valid until the next call; ends is true if
// it is the last part, with the line end if there is one.
func (l *lines) chunk() (b []byte, ends bool, err error) {
	if !l.begun {
		l.begun = true
		if mark, _ := l.r.Peek(3); string(mark) == "\ufeff" {
			l.r.Discard(len(mark))
		}
	}
	if n := bytes.IndexByte(l.back, '\n') + 1; n > 0 {
		b, l.back = l.back[:n], l.back[n:]
	} else if len(l.back) > 0 {
		b, l.back = l.back, nil
		if _, err = l.r.Peek(1); err == nil {
			return b, false, nil // the rest of its line is still to be read
		}
	} else {
		b, err = l.r.ReadSlice('\n')
	}
	switch {
	case err == bufio.ErrBufferFull:
		return b, false, nil
	case err == io.EOF && len(b) > 0:
		// The end comes again at the next call.
	case err != nil:
		return nil, true, err
	}
	l.line++
	return b, true, nil
}

// unread gives back what was read since a line began, for chunk to return again.
func (l *lines) unread(b []byte, line int) {
	l.line = line
	l.back = append(bytes.Clone(b), l.back...)
}

// keep appends b to what is kept of a line, as long as the line without its
// end fits.
func (l *lines) keep(kept, b []byte, over bool) ([]byte, bool) {
	if over || len(kept)+len(trimEnd(b)) > l.most {
		return nil, true
	}
	return append(kept, b...), false
}

func (l *lines) overError(what string) error {
	return fmt.Errorf("%s is over the limit of %d bytes", what, l.most)
}

func trimEnd(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
}
