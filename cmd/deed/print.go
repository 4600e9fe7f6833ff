package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/deedhq/deed"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// table prints rows under a header, clipped to what a terminal holds.
func table(w io.Writer, header []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = clip(c, 60)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// clip makes text one printable line of at most n characters.
func clip(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	return string([]rune(text)[:n-1]) + "…"
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func seconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// isTerminal reports whether w is a terminal, for progress lines.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// content shows a payload: JSON as it is, text as it is, other bytes in base64.
func content(contentType string, payload []byte) (json.RawMessage, error) {
	if (contentType == "application/json" || strings.HasSuffix(contentType, "+json")) && json.Valid(payload) {
		return payload, nil
	}
	if utf8.Valid(payload) {
		return json.Marshal(string(payload))
	}
	return json.Marshal(base64.StdEncoding.EncodeToString(payload))
}

// shown is a logged message with its content, if that was asked for.
type shown struct {
	deed.Logged
	Payload json.RawMessage `json:"payload,omitempty"`
}

func show(l deed.Logged, payload bool) (shown, error) {
	s := shown{Logged: l}
	var err error
	if payload {
		s.Payload, err = content(l.ContentType, l.Payload)
	}
	return s, err
}

func messageRow(l deed.Logged, payload bool) []string {
	row := []string{fmt.Sprint(l.Seq), l.ID.String(), when(l.CreatedAt), l.Topic, l.Key, l.Type, fmt.Sprint(l.Size)}
	if payload {
		text, _ := content(l.ContentType, l.Payload)
		row = append(row, string(text))
	}
	return row
}

func messageHeader(payload bool) []string {
	header := []string{"SEQ", "ID", "PUBLISHED", "TOPIC", "KEY", "TYPE", "BYTES"}
	if payload {
		header = append(header, "PAYLOAD")
	}
	return header
}
