package campaign

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/deedhq/deed/delivery"
)

// Email is the report as an e-mail: tables, with the charts as PNG that mail programs show, and beside
// it the page of [Report.HTML]. Nothing in it is a script, or is loaded. at is when it is written; from is
// the sender, "" the provider's.
func (r Report) Email(from string, at time.Time) (e delivery.EmailPayload, err error) {
	var mail, page bytes.Buffer
	if err := r.page(&mail, at, true); err != nil {
		return e, err
	}
	if err := r.page(&page, at, false); err != nil {
		return e, err
	}
	e = delivery.EmailPayload{From: from, Subject: oneLine(fmt.Sprintf("%s: %s, %d of %d sent", r.Name, r.Status, r.Progress.Sent, r.Members)), HTML: mail.String()}
	show := func(name string, width, height int, bars []bar) error {
		picture, err := drawn(width, height, bars)
		e.Attachments = append(e.Attachments, delivery.Attachment{Name: name + ".png", Type: "image/png", Content: picture, Inline: true, ContentID: name})
		return err
	}
	if err := show("members", 2*736, 2*30, r.memberBars()); err != nil {
		return e, err
	}
	for _, b := range r.heardBars() {
		if err := show(b.Name, 2*250, 2*15, []bar{{Colour: "#eeeeee", Width: "1000"}, b}); err != nil {
			return e, err
		}
	}
	e.Attachments = append(e.Attachments, delivery.Attachment{Name: "report.html", Type: "text/html", Content: page.Bytes()})
	return e, e.Check()
}

// oneLine is a text as a subject may be: a campaign's name may be anything.
func oneLine(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || c == '\u2028' || c == '\u2029' {
			return ' '
		}
		return c
	}, text)
}

// drawn is a chart whose bars are of 1,000 units, the later ones above the earlier ones, as PNG.
func drawn(width, height int, bars []bar) ([]byte, error) {
	picture := image.NewRGBA(image.Rect(0, 0, width, height))
	for _, b := range bars {
		x, _ := strconv.ParseFloat(b.X, 64) // "": at the beginning
		w, err := strconv.ParseFloat(b.Width, 64)
		if err != nil {
			return nil, err
		}
		var c color.RGBA
		if _, err := fmt.Sscanf(b.Colour, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
			return nil, err
		}
		c.A = 255
		at := func(units float64) int { return int(units*float64(width)/1000 + 0.5) }
		draw.Draw(picture, image.Rect(at(x), 0, at(x+w), height), image.NewUniform(c), image.Point{}, draw.Src)
	}
	var out bytes.Buffer
	err := png.Encode(&out, picture)
	return out.Bytes(), err
}
