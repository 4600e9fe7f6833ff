package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/deedhq/deed/internal/config"
)

var (
	makerOf   = regexp.MustCompile(`^deed: [^:]+: `)
	optionOf  = regexp.MustCompile(`\boptions? ([A-Z]\w*(?:\.[A-Z]\w*)*)`)
	humped    = regexp.MustCompile(`(^|[ (])([A-Z]\w*[a-z][A-Z]\w*)`)
	humpStart = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)
)

// ofFile says of a part of the file what the maker of a provider, a source or a sink says of its
// options: with the file's line, and with the names of keys for those of options.
func ofFile(file *config.Config, line int, path string, err error) error {
	var errs []error
	for text := range strings.Lines(makerOf.ReplaceAllString(err.Error(), "")) {
		text = optionOf.ReplaceAllStringFunc(strings.TrimSpace(text), func(s string) string {
			return keyOf(s[strings.IndexByte(s, ' ')+1:])
		})
		text = humped.ReplaceAllStringFunc(text, keyOf)
		errs = append(errs, fmt.Errorf("%s:%d: %s: %s", file.File, line, path, text))
	}
	return errors.Join(errs...)
}

// keyOf is an option's name as the file has it: EventTopic is event_topic.
func keyOf(option string) string {
	switch key := strings.ToLower(humpStart.ReplaceAllString(option, "${1}${3}_${2}${4}")); key {
	case "secrets", "app_secrets":
		return "secret"
	default:
		return key
	}
}
