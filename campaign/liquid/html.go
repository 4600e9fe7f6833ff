package liquid

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// place is where in a text an output stands, and so how it is written.
type place int

const (
	placePlain place = iota // no HTML: as it is
	placeText               // between tags
	placeAttr               // in an attribute's quotes
	placeURL                // at the beginning of a link, where a scheme would stand
	placeCSS                // in a style attribute
)

type htmlMode int

const (
	inText      htmlMode = iota
	inLess               // after <, which ends a piece
	inLessSpace          // after < and spaces, which whitespace control may take away
	inTagName
	inTag  // between attributes
	tagGap // the same, where branches met: a space has to follow, or the tag's end
	inAttrName
	afterAttrName
	beforeValue
	inQuotes
	inBare     // an attribute's value without quotes
	inElement  // title, textarea: only text, up to the end tag
	inCode     // script, style and others: no text at all, up to the end tag
	inComment  // <!-- … -->
	inMarkup   // <! … > and <? … >
	afterSlash // </
)

// urlMode is how far a link is known.
type urlMode int

const (
	urlStart   urlMode = iota // nothing yet
	urlPrefix                 // some letters, which may become a scheme
	urlFixed                  // the scheme and what follows it are the template's
	urlGiven                  // it began with data
	urlUnknown                // a scheme that is no link, such as javascript:
)

// htmlState is where in a page a template is. It follows HTML's rules for tokens as far
// as they decide where text ends and code begins.
type htmlState struct {
	mode  htmlMode
	elem  string
	attr  string
	quote byte
	url   urlMode
	start string // of a link, up to its scheme
}

var (
	codeElements = set("script", "style", "xmp", "iframe", "noembed", "noframes", "plaintext")
	textElements = set("title", "textarea")
	urlAttrs     = set("href", "src", "action", "formaction", "background", "cite", "poster", "data", "longdesc",
		"manifest", "ping", "icon", "srcset", "xlink:href", "usemap", "codebase", "archive", "profile", "dynsrc", "lowsrc")
	linkSchemes = set("http", "https", "mailto", "tel", "sms", "cid")
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}

// text goes on through a piece of the template's own text.
func (h *htmlState) text(s string) error {
	for i := 0; i < len(s); {
		n, err := h.step(s[i:])
		if err != nil {
			return err
		}
		i += n
	}
	return nil
}

// step reads what s begins with, and says how many bytes that was; after 0 the mode is
// another one.
func (h *htmlState) step(s string) (int, error) {
	c := s[0]
	switch h.mode {
	case inText:
		if c == '<' {
			return h.less(s), nil
		}
	case inLess:
		if h.mode = inText; isSpace(c) {
			h.mode = inLessSpace
			return 1, nil
		}
		return h.less("<"+s) - 1, nil
	case inLessSpace:
		if !isSpace(c) {
			h.mode = inText
			return 0, nil
		}
	case afterSlash, inTagName:
		h.tagName(c)
	case tagGap:
		if h.mode = inTag; !isSpace(c) && c != '/' && c != '>' {
			return 0, fmt.Errorf("%c after a block within a tag: put a space between them", c)
		}
		h.attribute(c)
	case inTag, inAttrName, afterAttrName, beforeValue:
		h.attribute(c)
	case inQuotes:
		return 1, h.value(c)
	case inBare:
		if isSpace(c) {
			h.mode = inTag
		} else if c == '>' {
			h.closeTag()
		}
	case inElement, inCode:
		return h.raw(s)
	case inComment:
		if strings.HasPrefix(s, "-->") {
			h.mode = inText
			return 3, nil
		}
		if strings.HasPrefix(s, "--!>") {
			return 0, errors.New("--!> ends a comment for some: write -->")
		}
	case inMarkup:
		if c == '>' {
			h.mode = inText
		}
	}
	return 1, nil
}

// less reads what < begins. What a comment of Outlook's hides from others, [if …], is
// read as HTML, as Outlook does.
func (h *htmlState) less(s string) int {
	switch {
	case strings.HasPrefix(s, "<!-->"):
		return 5
	case strings.HasPrefix(s, "<!--->"):
		return 6
	case strings.HasPrefix(s, "<!--[if"):
		h.mode = inMarkup
		return 7
	case strings.HasPrefix(s, "<!--"):
		h.mode = inComment
		return 4
	case strings.HasPrefix(s, "<!"), strings.HasPrefix(s, "<?"):
		h.mode = inMarkup
		return 2
	case strings.HasPrefix(s, "</"):
		h.mode, h.elem = afterSlash, "/"
		return 2
	case len(s) == 1:
		h.mode = inLess
		return 1
	case isSpace(s[1]):
		h.mode = inLessSpace
		return 2
	case isAlpha(s[1]):
		h.mode, h.elem = inTagName, ""
		return 1
	}
	return 1
}

func (h *htmlState) tagName(c byte) {
	switch {
	case h.mode == afterSlash && c == '>':
		h.mode = inText
	case h.mode == afterSlash && !isAlpha(c):
		h.mode = inMarkup
	case isSpace(c) || c == '/':
		h.mode = inTag
	case c == '>':
		h.closeTag()
	default:
		h.mode = inTagName
		h.elem = longer(h.elem, c)
	}
}

func (h *htmlState) attribute(c byte) {
	switch {
	case c == '>':
		h.closeTag()
	case h.mode == beforeValue && (c == '"' || c == '\''):
		h.mode, h.quote, h.url, h.start = inQuotes, c, urlStart, ""
	case h.mode == beforeValue && !isSpace(c):
		h.mode = inBare
	case h.mode == beforeValue:
	case c == '/':
		h.mode, h.attr = inTag, ""
	case isSpace(c):
		if h.mode == inAttrName {
			h.mode = afterAttrName
		}
	case c == '=' && h.mode != inTag:
		h.mode = beforeValue
	case h.mode == inAttrName:
		h.attr = longer(h.attr, c)
	default:
		h.mode, h.attr = inAttrName, lower(c)
	}
}

func (h *htmlState) value(c byte) error {
	if c == h.quote {
		*h = htmlState{mode: inTag, elem: h.elem}
		return nil
	}
	if !urlAttrs[h.attr] || h.url == urlFixed || h.url == urlUnknown {
		return nil
	}
	switch {
	case c == '/' || c == '?' || c == '#':
		h.url, h.start = urlFixed, ""
	case c == '&' && h.url == urlPrefix, c == '&' && h.url == urlStart: // any character, of a scheme, too
		h.url, h.start = urlUnknown, ""
	case c == ':' && h.url == urlGiven:
		return fmt.Errorf("the scheme of the link in %s would come from data: write it into the template", h.attr)
	case c == ':' && linkSchemes[h.start]:
		h.url, h.start = urlFixed, ""
	case c == ':':
		h.url, h.start = urlUnknown, ""
	case h.url == urlStart && c <= ' ':
	case h.url != urlGiven:
		h.url = urlPrefix
		h.start = longer(h.start, c)
	}
	return nil
}

func (h *htmlState) closeTag() {
	elem := h.elem
	*h = htmlState{}
	switch {
	case codeElements[elem]:
		*h = htmlState{mode: inCode, elem: elem}
	case textElements[elem]:
		*h = htmlState{mode: inElement, elem: elem}
	}
}

// raw reads what is in an element that ends with its end tag only.
func (h *htmlState) raw(s string) (int, error) {
	end := len(h.elem) + 2
	if s[0] == '<' && len(s) > end && s[1] == '/' && strings.EqualFold(s[2:end], h.elem) && (isSpace(s[end]) || s[end] == '/' || s[end] == '>') {
		h.mode, h.elem = inTagName, "/"+h.elem
		return end, nil
	}
	if h.elem == "script" && strings.HasPrefix(s, "<!--") {
		return 0, fmt.Errorf("a comment in a script hides where the script ends: leave it out")
	}
	return 1, nil
}

// output is where a {{ }} stands. What comes from data is text or an attribute's value in
// quotes, and nothing else.
func (h *htmlState) output() (place, error) {
	switch h.mode {
	case inText, inElement:
		return placeText, nil
	case inQuotes:
		return h.outputInQuotes()
	case inBare, beforeValue:
		return 0, fmt.Errorf("{{ }} in an attribute without quotes: write %s=\"{{ … }}\"", h.attr)
	case inCode:
		return 0, fmt.Errorf("{{ }} in <%s>, where data would be code", h.elem)
	case inComment, inMarkup:
		return 0, fmt.Errorf("{{ }} in a comment: nobody reads it there")
	case inLess, inLessSpace:
		return 0, fmt.Errorf("{{ }} after <: write &lt;, if it is no tag")
	default:
		return 0, fmt.Errorf("{{ }} within a tag: data can be text, or an attribute's value in quotes")
	}
}

func (h *htmlState) outputInQuotes() (place, error) {
	switch {
	case strings.HasPrefix(h.attr, "on"), h.attr == "srcdoc":
		return 0, fmt.Errorf("{{ }} in the attribute %s, where data would be code", h.attr)
	case h.elem == "meta":
		return 0, fmt.Errorf("{{ }} in <meta>, which may send readers elsewhere")
	case h.attr == "style":
		return placeCSS, nil
	case !urlAttrs[h.attr], h.url == urlFixed:
		return placeAttr, nil
	}
	switch h.url {
	case urlStart:
		h.url = urlGiven
		return placeURL, nil
	case urlGiven:
		return 0, fmt.Errorf("{{ }} after {{ }} at the beginning of the link in %s: make one of them by capture first", h.attr)
	case urlUnknown:
		return 0, fmt.Errorf("{{ }} in a link of another kind than http, https, mailto, tel, sms and cid")
	}
	return 0, fmt.Errorf("{{ }} in the middle of the first part of the link in %s: write out the scheme, as in https://", h.attr)
}

// meet is where the branches of a block end, if that is the same place: also when they end
// with different attributes of one tag.
func meet(ends []htmlState) (htmlState, bool) {
	at, same := ends[0], true
	for _, h := range ends[1:] {
		same = same && h == at
	}
	if same {
		return at, true
	}
	for _, h := range ends {
		if !h.inTag() || h.elem != at.elem {
			return at, false
		}
	}
	return htmlState{mode: tagGap, elem: at.elem}, true
}

// inTag reports whether an attribute could follow, after a space.
func (h htmlState) inTag() bool {
	switch h.mode {
	case inTagName, inTag, tagGap, inAttrName, afterAttrName:
		return true
	}
	return false
}

// parted is what text ends with, if that is the beginning of what ends the element, or begins a comment.
func (h htmlState) parted(text string) string {
	i := strings.LastIndexByte(text, '<')
	if i < 0 {
		return ""
	}
	piece := text[i:]
	begins := func(whole string) bool {
		return len(piece) <= len(whole) && strings.EqualFold(piece, whole[:len(piece)])
	}
	switch {
	case h.mode != inElement && h.mode != inCode && h.mode != inMarkup:
	case h.mode != inMarkup && begins("</"+h.elem), (h.mode == inMarkup || h.elem == "script") && begins("<!--"):
		return piece
	}
	return ""
}

// endsComment finds what ends a comment, if what stands before it has the rest of -->.
var endsComment = regexp.MustCompile(`^-?!?>`)

// trims reports whether whitespace may be left out where the state is.
func (h htmlState) trims() bool {
	switch h.mode {
	case inText, inQuotes, inElement, inCode, inComment, inMarkup:
		return true
	}
	return false
}

// where says where the state is, for who reads that it should be elsewhere.
func (h htmlState) where() string {
	switch h.mode {
	case inText:
		return "in the text"
	case inElement, inCode:
		return "in <" + h.elem + ">"
	case inQuotes, inBare, beforeValue:
		return "in the attribute " + h.attr
	case inComment, inMarkup:
		return "in a comment"
	case inLess, inLessSpace:
		return "after <"
	}
	return "within a tag"
}

// linkAllowed reports whether a whole link, or its beginning, is one that does no more
// than lead somewhere. Browsers leave out control characters and spaces before schemes.
func linkAllowed(link string) bool {
	link = strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return -1
		}
		return r
	}, link)
	i := strings.IndexAny(link, ":/?#")
	return i < 0 || link[i] != ':' || linkSchemes[strings.ToLower(link[:i])]
}

// styleAllowed reports whether a text can be no more than a value in a style: a colour, a
// size, a word.
func styleAllowed(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("#%., _+-", r))
	})
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' }
func isAlpha(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func lower(c byte) string { return strings.ToLower(string(rune(c))) }

// mostName is how much is kept of a name, or of a link's beginning: none of those that
// matter is as long, and one of 256 KiB would be copied for each of its letters.
const mostName = 200

// longer is a name with another letter of it.
func longer(name string, c byte) string {
	if len(name) >= mostName {
		return name
	}
	return name + lower(c)
}
