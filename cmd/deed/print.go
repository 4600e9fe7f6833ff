package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/page"
)

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printList prints a list: JSON that has it under its name, or a table.
func printList[T any](cmd *cobra.Command, asJSON bool, name string, list []T, header []string, row func(T) []string) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), map[string]any{name: orEmpty(list)})
	}
	rows := make([][]string, len(list))
	for i, v := range list {
		rows[i] = row(v)
	}
	return printRows(cmd, header, rows)
}

// printPage prints a page of a list as printList does, and for people on standard
// error whether there is more, and how to go on; JSON says so in next and looked_to.
func printPage[T any](cmd *cobra.Command, asJSON bool, name string, page page.Of[T], header []string, row func(T) []string) error {
	if asJSON {
		return printPageJSON(cmd, name, page.Items, page.Next, page.LookedTo)
	}
	if err := printList(cmd, false, name, page.Items, header, row); err != nil {
		return err
	}
	tellMore(cmd, page.Next, page.LookedTo)
	return nil
}

func printPageJSON[T any](cmd *cobra.Command, name string, list []T, next string, lookedTo *time.Time) error {
	out := map[string]any{name: orEmpty(list)}
	if next != "" {
		out["next"] = next
	}
	if lookedTo != nil {
		out["looked_to"] = lookedTo
	}
	return printJSON(cmd.OutOrStdout(), out)
}

// tellMore says how a list goes on, unless it is whole.
func tellMore(cmd *cobra.Command, next string, lookedTo *time.Time) {
	switch {
	case lookedTo != nil:
		fmt.Fprintf(cmd.ErrOrStderr(), "looked back to %s; further back: --cursor %s\n", when(*lookedTo), next)
	case next != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "there may be more: --cursor %s\n", next)
	}
}

// pageFlags are those of a list that comes in pages, by default of so many.
func pageFlags(cmd *cobra.Command, cursor *string, limit *int, many int) {
	cmd.Flags().StringVar(cursor, "cursor", "", "go on where a page before ended, as it said")
	cmd.Flags().IntVar(limit, "limit", many, "how many at the most")
}

// orEmpty is a list that in JSON is none, and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// clip makes text one printable line that takes at most n places; 0 is no limit.
func clip(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	if n < 1 || cells(text) <= n {
		return text
	}
	taken := 1 // by the mark of the cut
	for at, r := range text {
		if taken += cells(string(r)); taken > n {
			return text[:at] + "…"
		}
	}
	return text
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// many is a number of things: 1 message, 2 messages.
func many[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func seconds(s admin.Seconds) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s).Round(time.Second).String()
}

// content shows a payload: JSON as it is, text as a JSON string, other bytes as
// a JSON string of their base64.
func content(contentType string, payload []byte) (shown json.RawMessage, encoding string, err error) {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.TrimSpace(media)
	switch {
	case (media == "application/json" || strings.HasSuffix(media, "+json")) && json.Valid(payload):
		return payload, "", nil
	case utf8.Valid(payload):
		shown, err = json.Marshal(string(payload))
		return shown, "", err
	}
	shown, err = json.Marshal(base64.StdEncoding.EncodeToString(payload))
	return shown, "base64", err
}

// contentLine is a payload on one line, for people.
func contentLine(contentType string, payload []byte) string {
	text, encoding, err := content(contentType, payload)
	if err != nil {
		return err.Error()
	}
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		return string(text)
	}
	if encoding != "" {
		return encoding + ":" + line.String()
	}
	return line.String()
}

// shown is a logged message with its content, if that was asked for.
type shown struct {
	admin.MessageRecord
	Payload  json.RawMessage `json:"payload,omitempty"`
	Encoding string          `json:"payload_encoding,omitempty"` // base64, unless the payload stands as it is
}

func show(l admin.MessageRecord, payload bool) (shown, error) {
	s := shown{MessageRecord: l}
	var err error
	if payload {
		s.Payload, s.Encoding, err = content(l.ContentType, l.Payload)
	}
	return s, err
}

func messageRow(l admin.MessageRecord, payload bool) []string {
	row := []string{fmt.Sprint(l.Seq), l.ID.String(), when(l.CreatedAt), l.Topic, l.Key, l.Type, fmt.Sprint(l.Size)}
	if payload {
		row = append(row, contentLine(l.ContentType, l.Payload))
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
