package main

import (
	"context"
	"errors"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/deedhq/deed/contact"
)

// leavePage is where List-Unsubscribe leads. A mail program posts to it at the push of its own
// button (RFC 8058) and hears nothing but 200; whoever follows the link finds a page with a
// button, since programs that look at mails follow links, and that alone changes nothing.
type leavePage struct {
	links *contact.Links
	acts  *linked
}

var leaveHTML = template.Must(template.New("leave").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="robots" content="noindex"><title>{{.Title}}</title>
<style>body{font:1.1rem/1.5 system-ui,sans-serif;max-width:30rem;margin:15vh auto;padding:0 1rem}button{font:inherit;padding:.5rem 1.5rem}</style></head>
<body><h1>{{.Title}}</h1><p>{{.Text}}</p>{{if .Ask}}<form method="post"><input type="hidden" name="page" value="1"><button>Unsubscribe</button></form>{{end}}</body></html>
`))

const mostLeaveBody = 4 << 10 // of a form with one field

func (p *leavePage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer") // the link is in the address
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	answer := func(code int, text confirmText) {
		w.WriteHeader(code)
		_ = leaveHTML.Execute(w, text) // the reader may be gone
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		h.Set("Allow", "GET, HEAD, POST")
		answer(http.StatusMethodNotAllowed, confirmText{Title: "Not so", Text: "Open the link in a browser."})
		return
	}
	from, err := p.links.Left(r.PathValue("token"), time.Now())
	switch {
	case errors.Is(err, contact.ErrExpired):
		answer(http.StatusGone, confirmText{Title: "Too late", Text: "The time of this link is over. Use that of a newer e-mail."})
		return
	case err != nil:
		answer(http.StatusNotFound, confirmText{Title: "No such link", Text: "This link is not complete, or none of ours."})
		return
	case r.Method != http.MethodPost:
		answer(http.StatusOK, confirmText{Title: "Unsubscribe", Text: "Do you want no more e-mails of: " + from.Purpose + "?", Ask: true})
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(linkedTimeout)) // some writers have none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostLeaveBody))
	byPage := string(body) == "page=1"
	if err != nil || !byPage && !isOneClick(string(body)) {
		answer(http.StatusBadRequest, confirmText{Title: "Not so", Text: "Open the link in a browser."})
		return
	}
	p.leave(r.Context(), w, from, byPage, answer)
}

// isOneClick reports whether a form says what RFC 8058 wants, in whichever of the two forms it may.
func isOneClick(body string) bool {
	return body == "List-Unsubscribe=One-Click" || strings.Contains(body, `name="List-Unsubscribe"`) && strings.Contains(body, "One-Click")
}

func (p *leavePage) leave(ctx context.Context, w http.ResponseWriter, from contact.Leaving, byPage bool, answer func(int, confirmText)) {
	var left contact.Left
	err := p.acts.do(ctx, from.Tenant, func(ctx context.Context, tx contact.DB) (err error) {
		left, err = contact.Leave(ctx, tx, "link", from)
		return err
	})
	switch {
	case errors.Is(err, contact.ErrNotFound), errors.Is(err, contact.ErrConflict): // its tenant is gone
		answer(http.StatusNotFound, confirmText{Title: "No such link", Text: "This link is none of ours any more."})
	case err != nil:
		p.acts.failed(w, answer, err, "somebody could not unsubscribe", "delivery", from.Delivery)
	case !byPage:
		w.WriteHeader(http.StatusOK)
	case left == contact.LeftNobody:
		answer(http.StatusOK, confirmText{Title: "Done", Text: "Nothing is known of you here any more."})
	default:
		answer(http.StatusOK, confirmText{Title: "Done", Text: "You get no more e-mails of: " + from.Purpose + "."})
	}
}
