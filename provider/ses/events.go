package ses

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
)

// event is what SES says of an e-mail.
type event struct {
	Type string `json:"eventType"`
	Mail struct {
		ID   string              `json:"messageId"`
		Tags map[string][]string `json:"tags"`
	} `json:"mail"`
	Bounce struct {
		Type       string      `json:"bounceType"` // Permanent, Transient, Undetermined
		SubType    string      `json:"bounceSubType"`
		Recipients []recipient `json:"bouncedRecipients"`
		At         string      `json:"timestamp"`
	} `json:"bounce"`
	Complaint struct {
		Recipients []recipient `json:"complainedRecipients"`
		Feedback   string      `json:"complaintFeedbackType"`
		At         string      `json:"timestamp"`
	} `json:"complaint"`
	Delivery struct {
		Recipients []string `json:"recipients"` // of those who get a copy, too
		At         string   `json:"timestamp"`
	} `json:"delivery"`
	Reject struct {
		Reason string `json:"reason"`
	} `json:"reject"`
	Failure struct {
		Reason string `json:"errorMessage"`
	} `json:"failure"`
	Open struct {
		At string `json:"timestamp"`
	} `json:"open"`
	Click struct {
		At string `json:"timestamp"`
	} `json:"click"`
}

type recipient struct {
	Address string `json:"emailAddress"`
	Reason  string `json:"diagnosticCode"`
	Status  string `json:"status"` // 5.1.1; 5.7.x is about the sender
}

// read makes events of a notification's message, which is verified.
func read(n notification) delivery.Told {
	var e event
	if json.Unmarshal([]byte(n.Message), &e) != nil || e.Type == "" {
		return delivery.Told{Unreadable: 1}
	}
	v := delivery.StatusEvent{ID: n.MessageID, MessageID: e.Mail.ID}
	if list := e.Mail.Tags["deed_id"]; len(list) == 1 {
		v.Delivery = list[0]
	}
	one := func(said delivery.Said, at, reason string) delivery.Told {
		v.Said, v.At, v.Reason = said, timeOf(at), reason
		return delivery.Told{Events: []delivery.StatusEvent{v}}
	}
	switch e.Type {
	case "Send":
		return one(delivery.SaidAccepted, "", "")
	case "Delivery":
		var list []recipient
		for _, address := range e.Delivery.Recipients {
			list = append(list, recipient{Address: address})
		}
		if len(list) == 0 {
			return one(delivery.SaidDelivered, e.Delivery.At, "")
		}
		v.Said, v.At = delivery.SaidDelivered, timeOf(e.Delivery.At)
		return each(v, list)
	case "Open":
		return one(delivery.SaidOpened, e.Open.At, "")
	case "Click":
		return one(delivery.SaidClicked, e.Click.At, "")
	case "Reject":
		return one(delivery.SaidDropped, "", e.Reject.Reason)
	case "Rendering Failure":
		return one(delivery.SaidDropped, "", e.Failure.Reason)
	case "Bounce":
		v.Said, v.At, v.Code = delivery.SaidSoftBounced, timeOf(e.Bounce.At), e.Bounce.SubType
		if e.Bounce.Type == "Permanent" {
			v.Said = delivery.SaidBounced
		}
		return each(v, e.Bounce.Recipients)
	case "Complaint":
		if e.Complaint.Feedback == "not-spam" {
			break
		}
		v.Said, v.At, v.Code = delivery.SaidComplained, timeOf(e.Complaint.At), e.Complaint.Feedback
		return each(v, e.Complaint.Recipients)
	}
	return delivery.Told{Other: 1}
}

// each has an event for each address that v is about.
func each(v delivery.StatusEvent, list []recipient) (told delivery.Told) {
	id := v.ID
	for i, r := range list {
		one := v
		one.Address, one.Reason = r.Address, r.Reason
		if i > 0 {
			one.ID = fmt.Sprintf("%s:%d", id, i+1)
		}
		if v.Said == delivery.SaidBounced && strings.HasPrefix(r.Status, "5.7.") {
			one.Said = delivery.SaidDropped
		}
		told.Events = append(told.Events, one)
	}
	if len(list) == 0 {
		told.Unreadable = 1
	}
	return told
}

// timeOf reads a time as SES writes it; zero, which is now, where it does not.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}
