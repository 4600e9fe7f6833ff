package bluesky

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/adapter"
)

// Payload is what a delivery says.
type Payload struct {
	Text   string   `json:"text"`             // up to 300 characters and 3000 bytes
	Langs  []string `json:"langs,omitempty"`  // up to three, such as en or pt-BR
	Facets []Facet  `json:"facets,omitempty"` // links, tags and mentions in the text, which are none without
	Link   *Link    `json:"link,omitempty"`   // what is shown below the text
}

// Facet makes a part of the text a link, a tag or a mention: exactly one.
type Facet struct {
	Start int    `json:"start"`         // its first byte
	End   int    `json:"end"`           // the byte behind it
	URI   string `json:"uri,omitempty"` // of a link
	Tag   string `json:"tag,omitempty"` // without its #
	DID   string `json:"did,omitempty"` // of whom it mentions, who is told of it
}

// Link is a page that a post is about.
type Link struct {
	URI         string `json:"uri"`
	Title       string `json:"title"`
	Description string `json:"description"`
}

// record is a post, as app.bsky.feed.post has it.
type record struct {
	Type      string   `json:"$type"`
	Text      string   `json:"text"`
	CreatedAt string   `json:"createdAt"`
	Langs     []string `json:"langs,omitempty"`
	Facets    []facet  `json:"facets,omitempty"`
	Embed     *embed   `json:"embed,omitempty"`
}

type facet struct {
	Index    slice     `json:"index"`
	Features []feature `json:"features"`
}

type slice struct {
	Start int `json:"byteStart"`
	End   int `json:"byteEnd"`
}

type feature struct {
	Type string `json:"$type"`
	URI  string `json:"uri,omitempty"`
	Tag  string `json:"tag,omitempty"`
	DID  string `json:"did,omitempty"`
}

type embed struct {
	Type     string `json:"$type"`
	External Link   `json:"external"`
}

const mention = "app.bsky.richtext.facet#mention"

func readPayload(text json.RawMessage) (p Payload, err error) {
	if err := adapter.ReadPayload(text, &p, "what a post has", "text, langs, facets and link"); err != nil {
		return p, err
	}
	switch {
	case strings.TrimSpace(p.Text) == "":
		return p, errors.New("the payload has no text")
	case len(p.Langs) > 3:
		return p, errors.New("the payload has over three langs")
	case p.Link != nil && !isWeb(p.Link.URI):
		return p, errors.New("the payload's link has no http or https uri")
	}
	for i, f := range p.Facets {
		if err := f.check(p.Text); err != nil {
			return p, fmt.Errorf("the payload's facets[%d] %w", i, err)
		}
	}
	return p, nil
}

func isWeb(uri string) bool {
	return strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://")
}

func (f Facet) check(text string) error {
	switch {
	case f.Start < 0 || f.End <= f.Start || f.End > len(text):
		return errors.New("is not a part of the text: want start and end in bytes")
	case f.URI != "" && isWeb(f.URI) && f.Tag == "" && f.DID == "":
	case f.Tag != "" && f.URI == "" && f.DID == "":
	case f.DID != "" && strings.HasPrefix(f.DID, "did:") && isAccount(f.DID) && f.URI == "" && f.Tag == "":
	default:
		return errors.New("is not one of a uri of http or https, a tag and a did")
	}
	return nil
}

// record is the post that a payload makes.
func (p Payload) record(at time.Time) record {
	r := record{Type: collection, Text: p.Text, CreatedAt: at.UTC().Format("2006-01-02T15:04:05.000Z"), Langs: p.Langs}
	for _, f := range p.Facets {
		what := feature{Type: mention, URI: f.URI, Tag: f.Tag, DID: f.DID}
		if f.URI != "" {
			what.Type = "app.bsky.richtext.facet#link"
		} else if f.Tag != "" {
			what.Type = "app.bsky.richtext.facet#tag"
		}
		r.Facets = append(r.Facets, facet{Index: slice{f.Start, f.End}, Features: []feature{what}})
	}
	if p.Link != nil {
		r.Embed = &embed{Type: "app.bsky.embed.external", External: *p.Link}
	}
	return r
}

// mentionNobody leaves the mentions out, of which people are told.
func (r *record) mentionNobody() {
	var kept []facet
	for _, f := range r.Facets {
		if f.Features[0].Type != mention {
			kept = append(kept, f)
		}
	}
	r.Facets = kept
}
