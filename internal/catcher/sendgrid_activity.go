package catcher

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// sendGridMessage is an e-mail to one recipient, as the list of the activity has it.
type sendGridMessage struct {
	From   string `json:"from_email"`
	ID     string `json:"msg_id"`
	About  string `json:"subject"`
	To     string `json:"to_email"`
	Status string `json:"status"`
	Opens  int    `json:"opens_count"`
	Clicks int    `json:"clicks_count"`
	LastAt string `json:"last_event_time"`

	args map[string]string
}

// sendGridQuery is what is understood of the query language: one field, which is something.
var sendGridQuery = regexp.MustCompile(`^\(?(status|to_email|unique_args\['([^'"\\]+)'\])="([^"\\]*)"\)?$`)

// remember has an e-mail in the activity, once for each recipient.
func (s *SendGrid) remember(e sendGridEmail, id string, recipients []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, to := range recipients {
		s.activity = append(s.activity, sendGridMessage{
			From: e.From.Email, ID: fmt.Sprintf("%s.recvd-1-1-1.%d", id, n), About: e.Subject, To: to, Status: "processed",
			LastAt: time.Now().UTC().Format(time.RFC3339), args: e.CustomArgs,
		})
	}
}

// shows answers what is asked of the activity.
func (s *SendGrid) shows(w http.ResponseWriter, r *http.Request) {
	if s.NoActivity {
		sendGridRefuses(w, http.StatusUnauthorized, "", "authorization required")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, one := strings.CutPrefix(r.URL.Path, "/v3/messages/"); one {
		for _, m := range s.activity {
			if m.ID == id {
				args, _ := json.Marshal(m.args)
				answer(w, http.StatusOK, map[string]any{
					"from_email": m.From, "msg_id": m.ID, "subject": m.About, "to_email": m.To, "status": m.Status, "template_id": "", "asm_group_id": 0, "teammate": "",
					"api_key_id": "SG", "originating_ip": "192.0.2.1", "events": []any{map[string]any{"event_name": "processed", "processed": m.LastAt}}, "categories": []string{},
					"unique_args": string(args), "outbound_ip": "192.0.2.2", "outbound_ip_type": "dedicated",
				})
				return
			}
		}
		sendGridRefuses(w, http.StatusNotFound, "", "not found")
		return
	}
	asked := r.URL.Query()
	limit := 10
	if asked.Has("limit") {
		limit, _ = strconv.Atoi(asked.Get("limit"))
	}
	query := sendGridQuery.FindStringSubmatch(asked.Get("query"))
	for name := range asked {
		if name != "query" && name != "limit" {
			query = nil
		}
	}
	if query == nil || limit < 1 || limit > 1000 {
		sendGridRefuses(w, http.StatusBadRequest, "", "invalid syntax")
		return
	}
	found := []sendGridMessage{}
	for _, m := range s.activity {
		is := map[string]string{"status": m.Status, "to_email": m.To}[query[1]]
		if query[2] != "" {
			is = m.args[query[2]]
		}
		if is == query[3] && len(found) < limit {
			found = append(found, m)
		}
	}
	answer(w, http.StatusOK, map[string]any{"messages": found})
}
