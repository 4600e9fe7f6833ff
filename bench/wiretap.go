package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// wiretap stands between SMTP clients and a server, and counts whom the server has accepted a mail for, whatever the
// clients learn of it. It understands no TLS.
type wiretap struct {
	server   string
	listener net.Listener
	open     sync.WaitGroup

	mu       sync.Mutex
	accepted map[string]int // by recipient, guarded by mu
	n        int            // guarded by mu
	lastAt   time.Time      // guarded by mu
}

func newWiretap(ctx context.Context, server string) (*wiretap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wiretap{server: server, listener: l, accepted: map[string]int{}}
	ctx, cancel := context.WithCancel(ctx)
	w.open.Go(func() {
		defer cancel()
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.open.Go(func() { w.connect(ctx, client) })
		}
	})
	return w, nil
}

func (w *wiretap) address() string { return w.listener.Addr().String() }

func (w *wiretap) close() {
	_ = w.listener.Close()
	w.open.Wait()
}

// connect carries one connection. The server's answers come in the order of what they answer: one to begin with, one to
// each line but those of a mail, and one to its end.
func (w *wiretap) connect(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})()
	s := &overheard{asked: []string{""}}
	var answers sync.WaitGroup
	answers.Go(func() {
		defer client.Close()
		lines := bufio.NewReader(server)
		for {
			line, err := lines.ReadBytes('\n')
			if err == nil && len(line) > 3 && line[3] != '-' {
				w.note(s.answered(line))
			}
			if _, writing := client.Write(line); err != nil || writing != nil {
				return
			}
		}
	})
	// What a client has sent whole before it was killed the server may take.
	lines, out := bufio.NewReader(client), bufio.NewWriter(server)
	for {
		line, err := lines.ReadBytes('\n')
		s.heard(line)
		_, writing := out.Write(line)
		if lines.Buffered() == 0 && writing == nil {
			writing = out.Flush()
		}
		if err != nil || writing != nil {
			break
		}
	}
	if tcp, ok := server.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	answers.Wait()
}

// note counts recipients of a mail that is accepted.
func (w *wiretap) note(to []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range to {
		w.accepted[one]++
		w.n++
		w.lastAt = time.Now()
	}
}

func (w *wiretap) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

func (w *wiretap) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lastAt
}

func (w *wiretap) times(to string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accepted[to]
}

func (w *wiretap) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted, w.n = map[string]int{}, 0
}

// judge returns how many of the first n members have got nothing, and how many mails came to somebody who had one.
func (w *wiretap) judge(n int) (lost, twice int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		got := w.accepted[memberAddress(i)]
		if got == 0 {
			lost++
		}
		twice += max(0, got-1)
	}
	return lost, twice
}

// overheard is what one connection is at.
type overheard struct {
	mu    sync.Mutex
	asked []string // verbs that are not answered, guarded by mu
	to    []string // recipients of the mail that is being sent, guarded by mu
	data  bool     // its text is on its way, guarded by mu
}

// heard is a line of the client's.
func (s *overheard) heard(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := bytes.TrimRight(line, "\r\n")
	if s.data {
		if string(text) == "." {
			s.data = false
			s.asked = append(s.asked, ".")
		}
		return
	}
	verb := bytes.ToUpper(text[:min(4, len(text))])
	if from, to := bytes.IndexByte(text, '<'), bytes.IndexByte(text, '>'); string(verb) == "RCPT" && from >= 0 && to > from {
		s.to = append(s.to, string(text[from+1:to]))
	}
	if v := string(verb); v == "MAIL" || v == "RSET" { // what is said behind it in the same breath is heard before its answer
		s.to = nil
	}
	if len(verb) > 0 {
		s.asked = append(s.asked, string(verb))
	}
}

// answered is the last line of an answer of the server's, and returns whom it has accepted a mail for by it.
func (s *overheard) answered(line []byte) (accepted []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.asked) == 0 {
		return nil
	}
	verb := s.asked[0]
	s.asked = s.asked[1:]
	switch {
	case verb == "DATA" && line[0] == '3':
		s.data = true
	case verb == "." && line[0] == '2':
		accepted, s.to = s.to, nil
	}
	return accepted
}
