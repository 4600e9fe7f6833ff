package smtp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// Whatever a server says to the message, only a 4xx or 5xx means that it was
// not taken.
func TestSend_AnswerToTheMessage(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"250 queued": "accepted", "200 taken": "accepted", "252 taken": "accepted", "250-one\r\n250 two": "accepted",
		"451 later": "deferred", "421 closing": "outage", "535 who": "outage", "554 no": "refused",
		"354 go on": "unknown", "100 hm": "unknown", "garbage": "unknown", "": "unknown", "2": "unknown", "250-cut": "unknown",
	} {
		p, err := New(Options{Address: answering(t, answer), Security: Plain})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		c, err := p.connection(ctx)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := p.send(ctx, c, envelope{"a@example.com", "b@example.com"}, []byte("Subject: x\r\n\r\ny\r\n"), "id")
		if out.String() != want {
			t.Errorf("%q is %s (%v), not %s", answer, out, out.Err(), want)
		}
		c.close()
		cancel()
	}
}

// answering is a server that answers the first message so, and closes.
func answering(t *testing.T, answer string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
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
	}()
	return listener.Addr().String()
}
