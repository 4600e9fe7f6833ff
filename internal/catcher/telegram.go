package catcher

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf16"
)

// Telegram answers as api.telegram.org does, as far as the documentation of the Bot API
// says.
type Telegram struct {
	answers
	Mailbox *Mailbox
	Token   string // "": any

	sent atomic.Int64
}

type telegramMessage struct {
	ChatID              json.RawMessage `json:"chat_id"`
	Thread              int64           `json:"message_thread_id"`
	Text                string          `json:"text"`
	ParseMode           string          `json:"parse_mode"`
	DisableNotification bool            `json:"disable_notification"`
	ProtectContent      bool            `json:"protect_content"`
	LinkPreview         json.RawMessage `json:"link_preview_options"`
	ReplyParameters     json.RawMessage `json:"reply_parameters"`
	ReplyMarkup         json.RawMessage `json:"reply_markup"`
}

// ServeHTTP takes sendMessage and answers getMe, at /botTOKEN/METHOD.
func (s *Telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bot, method, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	token, named := strings.CutPrefix(bot, "bot")
	switch {
	case !ok || !named:
		telegramRefuses(w, http.StatusNotFound, "Not Found", 0)
	case s.Token != "" && token != s.Token:
		telegramRefuses(w, http.StatusUnauthorized, "Unauthorized", 0)
	case method == "getMe":
		answer(w, http.StatusOK, map[string]any{"ok": true, "result": map[string]any{"id": 1, "is_bot": true, "first_name": "dev", "username": "dev_bot"}})
	case method == "sendMessage" && r.Method == http.MethodPost:
		s.send(w, r)
	default:
		telegramRefuses(w, http.StatusNotFound, "Not Found", 0)
	}
}

func (s *Telegram) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	fault := s.Faults.next()
	if s.before(w, r, fault) {
		return
	}
	switch fault {
	case ForGood:
		telegramRefuses(w, http.StatusForbidden, "Forbidden: bot was blocked by the user", 0)
		return
	case ForNow:
		telegramRefuses(w, http.StatusTooManyRequests, "Too Many Requests", 0)
		return
	case ForNowAfter:
		telegramRefuses(w, http.StatusTooManyRequests, "Too Many Requests: retry after 1", 1)
		return
	case Unauthorized:
		telegramRefuses(w, http.StatusUnauthorized, "Unauthorized", 0)
		return
	}
	m, problem := checkTelegram(r, body)
	if problem != "" {
		telegramRefuses(w, http.StatusBadRequest, "Bad Request: "+problem, 0)
		return
	}
	chat := strings.Trim(string(m.ChatID), `"`)
	if m.Thread != 0 {
		chat += "/" + strconv.FormatInt(m.Thread, 10)
	}
	id := s.sent.Add(1)
	s.Mailbox.Add(Mail{ID: strconv.FormatInt(id, 10), Via: "telegram", To: []string{chat}, Text: m.Text, At: time.Now(), Raw: body})
	if !s.after(w, r, fault) {
		answer(w, http.StatusOK, map[string]any{"ok": true, "result": map[string]any{
			"message_id": id, "date": time.Now().Unix(), "chat": map[string]any{"id": m.ChatID}, "text": m.Text,
		}})
	}
}

// checkTelegram finds what the documentation says is refused.
func checkTelegram(r *http.Request, body []byte) (*telegramMessage, string) {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); media != "application/json" {
		return nil, "message text is empty" // a form that has none
	}
	var m telegramMessage
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, "can't parse JSON: " + err.Error()
	}
	switch n := len(utf16.Encode([]rune(m.Text))); {
	case !isChat(m.ChatID):
		return nil, "chat not found"
	case strings.TrimSpace(m.Text) == "":
		return nil, "message text is empty"
	case n > 4096 && m.ParseMode == "":
		return nil, "message is too long"
	case m.ParseMode == "HTML" && strings.Count(m.Text, "<") != strings.Count(m.Text, ">"):
		return nil, "can't parse entities: Unclosed start tag in " + m.Text
	case m.ParseMode != "" && m.ParseMode != "HTML" && m.ParseMode != "MarkdownV2" && m.ParseMode != "Markdown":
		return nil, "unsupported parse_mode"
	}
	return &m, ""
}

// isChat reports whether a chat_id is a number or a @name.
func isChat(id json.RawMessage) bool {
	var name string
	if json.Unmarshal(id, &name) == nil {
		return len(name) > 1 && name[0] == '@'
	}
	_, err := strconv.ParseInt(string(id), 10, 64)
	return err == nil
}

func telegramRefuses(w http.ResponseWriter, status int, description string, after int) {
	said := map[string]any{"ok": false, "error_code": status, "description": description}
	if after > 0 {
		said["parameters"] = map[string]int{"retry_after": after}
	}
	answer(w, status, said)
}
