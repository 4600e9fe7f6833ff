package delivery

import (
	"maps"
	"strings"
	"time"

	"github.com/deedhq/deed/contact"
)

// A link to leave by is good for so long: e-mails are kept, and so is what they promise.
const unsubscribeFor = 5 * 365 * 24 * time.Hour

// unsubscribe is the link, made at a time, by which the recipient of an e-mail leaves what it is for;
// "" where it has no purpose, or nobody has said where links lead.
func unsubscribe(links *contact.Links, w *row, at time.Time) string {
	if links == nil || w.purpose == "" || w.channel != Email {
		return ""
	}
	return links.Leave(contact.Leaving{
		Tenant: w.tenant, Channel: string(w.channel), Purpose: w.purpose, Delivery: w.id, Contact: w.contact,
	}, at.Add(unsubscribeFor))
}

// unsubscribeBy puts the pair of headers in that mail programs make a button of (RFC 8058),
// unless the payload has one of them.
func (e *EmailPayload) unsubscribeBy(link string) {
	for name := range e.Headers {
		if strings.EqualFold(name, "List-Unsubscribe") || strings.EqualFold(name, "List-Unsubscribe-Post") {
			return
		}
	}
	headers := map[string]string{"List-Unsubscribe": "<" + link + ">", "List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
	maps.Copy(headers, e.Headers)
	e.Headers = headers
}
