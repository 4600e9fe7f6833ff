package file

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/document"
)

// differ are the keys that variants have of their own; all else they have in common.
var differ = []string{"subject", "text", "html", "script"}

var aPart = regexp.MustCompile(`^[0-9]{1,2}(\.[0-9]{1,2})?%$`)

// variants reads them, and their test. What one does not say the campaign says for all of them.
func (r *reader) variants(s *document.Section) {
	f := r.file
	s.Sections("variants", func(name string, sub *document.Section) {
		c := f.Content
		if c.Variant = name; name == "" || len([]rune(name)) > 100 {
			s.Problemf(sub.Line, "variants", "a variant's name has 1 to 100 characters")
		}
		for _, key := range channels[f.Request.Channel].keys {
			if slices.Contains(differ, key) {
				r.said(sub, key, &c)
			}
		}
		sub.Done()
		f.Variants = append(f.Variants, c)
	})
	slices.SortFunc(f.Variants, func(a, b campaign.Content) int { return cmp.Compare(a.Variant, b.Variant) })
	if n := len(f.Variants); s.Has("variants") && (n < 2 || n > 10) {
		s.Keyf("variants", "there are two to ten of them, such as {A: {subject: …}, B: {subject: …}}")
	}
	if t := s.Sub("test"); t != nil {
		if len(f.Variants) == 0 {
			s.Keyf("test", "a test is of variants: give these, too")
		}
		r.test(t)
	}
}

// test reads on whom variants are tested, and how that is decided.
func (r *reader) test(s *document.Section) {
	t := &campaign.Test{By: campaign.By(s.Choice("by", string(campaign.ByClicks), string(campaign.ByComplaints), string(campaign.ByPerson)))}
	t.Wait = s.Duration("wait", time.Minute, 30*24*time.Hour)
	part := s.Text("share")
	n, _ := strconv.ParseFloat(strings.TrimSuffix(part, "%"), 64)
	if t.Share = n / 100; s.Has("share") && (!aPart.MatchString(part) || n < 0.01) {
		s.Keyf("share", "%q is not such as 10%%: the part of the audience that takes part in the test, from 0.01%% to 99%%", part)
	}
	switch {
	case !s.Has("share") || !s.Has("by"):
		s.Problemf(s.Line, "test", "it is such as {share: 10%%, wait: 4h, by: clicks}")
	case (t.By == campaign.ByPerson) == s.Has("wait"):
		s.Problemf(s.Line, "test", "wait is how long clicks or complaints are waited for, and does not go with by: person")
	}
	s.Done()
	r.file.Request.Test = t
}

// Of is the campaign with the content of this variant alone: what those get who get that. A campaign
// without variants has the one of no name. Errors: [deed.Invalid].
func (f *File) Of(variant string) (*File, error) {
	if variant == "" && len(f.Variants) == 0 {
		return f, nil
	}
	var names []string
	for _, c := range f.Variants {
		if c.Variant == variant {
			one := *f
			one.Content, one.Variants = c, nil
			return &one, nil
		}
		names = append(names, c.Variant)
	}
	what := "the campaign has no variants"
	if names != nil {
		what = fmt.Sprintf("which of its variants? It has %s", strings.Join(names, ", "))
	}
	return nil, &deed.Error{Op: "read campaign", Code: deed.Invalid, Err: fmt.Errorf("%s: %s", f.Name, what)}
}

// each is the campaign by each of its variants.
func (f *File) each() []*File {
	if len(f.Variants) == 0 {
		return []*File{f}
	}
	var list []*File
	for _, c := range f.Variants {
		one := *f
		one.Content, one.Variants = c, nil
		list = append(list, &one)
	}
	return list
}
