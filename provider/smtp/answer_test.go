package smtp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
)

// Whatever a server says to the message, only a 4xx or 5xx means that it was
// not taken.
func TestSend_AnswerToTheMessage(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"250 queued": "accepted", "200 taken": "accepted", "252 taken": "accepted", "250-one\r\n250 two": "accepted",
		"451 later": "deferred", "421 closing": "deferred", "535 who": "outage", "554 no": "refused",
		"550 5.1.1 nobody": "bad address", "550 5.1.2": "bad address", "553 5.1.3 x": "bad address", "551 5.1.6 moved": "bad address", "556 5.1.10 null mx": "bad address",
		"550 5.1.7 your address": "refused", "550 5.1.8 your domain": "refused", "550 5.7.1 policy": "refused", "550 5.1.11 x": "refused", "550 x 5.1.1": "refused", "450 5.1.1 x": "deferred",
		"354 go on": "unknown", "100 hm": "unknown", "garbage": "unknown", "": "unknown", "2": "unknown", "250-cut": "unknown",
	} {
		p, err := New(Options{Address: answering(t, answer), Security: Plain})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		out := p.converse(ctx, envelope{From: "a@example.com", To: "b@example.com"}, []byte("Subject: x\r\n\r\ny\r\n"), "id")
		if out.String() != want {
			t.Errorf("%q is %s (%v), not %s", answer, out, out.Err(), want)
		}
		_ = p.Close()
		cancel()
	}
}

// An answer that has no end is read up to a bound, whatever it is to: before the message nothing was sent, after it
// nobody knows. Many answers, to what was said in one breath, may be longer than it together.
func TestSend_AnswersAreBounded(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{"": "outage", "EHLO": "outage", "MAIL": "deferred", "RCPT": "deferred", "DATA": "deferred", ".": "unknown"} {
		for _, piece := range []string{"x", "250-\r\n250-"} {
			out := boundedTo(t, step, "250-"+strings.Repeat(piece, 1<<20/len(piece)))
			if out.String() != want || !strings.Contains(out.Err().Error(), "the server's answer is over 64 KiB") {
				t.Errorf("to %q, of %q: it is %s (%.200v), not %s for its length", step, piece, out, out.Err(), want)
			}
		}
	}
	if out := boundedTo(t, "RCPT", "250 "+strings.Repeat("x", 2000)+"\r\n"); out.String() != "accepted" {
		t.Errorf("with long answers to many recipients it is %s: %v", out, out.Err())
	}
}

// boundedTo sends a message to many by a server that gives an answer, and goes, if it has no end, at a step.
func boundedTo(t *testing.T, step, answer string) delivery.Outcome {
	t.Helper()
	address := listen(t, func(c net.Conn) {
		in, inMessage := bufio.NewScanner(c), false
		for line, more := "", true; more; more = in.Scan() {
			if line = in.Text(); inMessage && line != "." {
				continue
			}
			reply := "250 ok\r\n"
			switch command := line[:min(4, len(line))]; {
			case command == step:
				reply = answer
			case line == "":
				reply = "220 hello\r\n"
			case command == "EHLO":
				reply = "250-here\r\n250 PIPELINING\r\n"
			case command == "DATA":
				reply = "354 go on\r\n"
			}
			inMessage = line == "DATA"
			if _, err := fmt.Fprint(c, reply); err != nil || !strings.HasSuffix(reply, "\r\n") {
				return
			}
		}
	})
	p, err := New(Options{Address: address, Security: Plain})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := envelope{From: "a@example.com", To: "b@example.com"}
	for i := range 50 {
		e.CC = append(e.CC, fmt.Sprintf("c%d@example.com", i))
	}
	return p.converse(ctx, e, []byte("Subject: x\r\n\r\ny\r\n"), "id")
}

// A 421 for what was said before over a connection, or for one recipient, is no
// outage of the server: who sends to addresses that it refuses stops nobody else.
func TestSend_ClosedForOneIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		closes func(command string, refused int) bool // whether the server says 421
		from   string
		want   []string // of three to a recipient that is refused, and one more
	}{
		"after refusals":        {func(command string, refused int) bool { return refused >= 2 && command != "RSET" }, "a@example.com", []string{"refused", "refused", "refused", "accepted"}},
		"at the RSET":           {func(_ string, refused int) bool { return refused >= 2 }, "a@example.com", []string{"refused", "refused", "refused", "accepted"}},
		"to refused recipients": {func(command string, _ int) bool { return command == "RCPT TO:<no@example.com>" }, "a@example.com", []string{"deferred", "deferred", "deferred", "accepted"}},
		"to other senders":      {func(command string, _ int) bool { return strings.HasPrefix(command, "MAIL FROM:<other@") }, "other@example.com", []string{"deferred", "deferred", "deferred", "deferred"}},
		"to everybody":          {func(command string, _ int) bool { return strings.HasPrefix(command, "MAIL") }, "a@example.com", []string{"outage", "outage", "outage", "outage"}},
		"at the greeting":       {func(command string, _ int) bool { return command == "" }, "a@example.com", []string{"outage", "outage", "outage", "outage"}},
	} {
		p, err := New(Options{Address: closing(t, c.closes), Security: Plain, From: "shop@example.com"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		for i, want := range c.want {
			to := "no@example.com"
			if i == 3 {
				to = "yes@example.com"
			}
			if out := p.converse(ctx, envelope{From: c.from, To: to}, []byte("Subject: x\r\n\r\ny\r\n"), "id"); out.String() != want {
				t.Errorf("%s: message %d is %s (%v), not %s", name, i+1, out, out.Err(), want)
			}
		}
		_ = p.Close()
		cancel()
	}
}

// listen serves connections until the test ends.
func listen(t *testing.T, serve func(c net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends with the listener
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return listener.Addr().String()
}

// closing is a server that refuses no@example.com and says 421 as it is told.
func closing(t *testing.T, closes func(command string, refused int) bool) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		if closes("", 0) {
			fmt.Fprint(c, "421 not now\r\n")
			return
		}
		fmt.Fprint(c, "220 hello\r\n")
		in, inMessage, refused := bufio.NewScanner(c), false, 0
		for in.Scan() {
			switch line := in.Text(); {
			case inMessage && line != ".":
			case inMessage:
				inMessage = false
				fmt.Fprint(c, "250 taken\r\n")
			case closes(line, refused):
				fmt.Fprint(c, "421 too many errors\r\n")
				return
			case strings.HasPrefix(line, "RCPT TO:<no@"):
				refused++
				fmt.Fprint(c, "550 nobody\r\n")
			case line == "DATA":
				inMessage = true
				fmt.Fprint(c, "354 go on\r\n")
			default:
				fmt.Fprint(c, "250 ok\r\n")
			}
		}
	})
}

// answering is a server that answers each message so, and closes.
func answering(t *testing.T, answer string) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		fmt.Fprint(c, "220 hello\r\n")
		in, inMessage := bufio.NewScanner(c), false
		for in.Scan() {
			switch line := in.Text(); {
			case inMessage && line == ".":
				if answer != "" {
					fmt.Fprint(c, answer+"\r\n")
				}
				return
			case inMessage:
			case strings.HasPrefix(line, "DATA"):
				inMessage = true
				fmt.Fprint(c, "354 go on\r\n")
			default:
				fmt.Fprint(c, "250 ok\r\n")
			}
		}
	})
}
