package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/deedhq/deed/internal/header"
)

// staticHeaders checks the options' headers; values stay out of errors.
func staticHeaders(headers map[string]string) (http.Header, error) {
	var errs []error
	h := http.Header{}
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case !header.IsToken(name):
			errs = append(errs, fmt.Errorf("option Headers: %q is not a header name", name))
		case lower != "authorization" && lower != "cookie" && isReserved(lower):
			errs = append(errs, fmt.Errorf("option Headers: %q is set by deed or by HTTP itself", name))
		case header.Encode(value, false) != value:
			errs = append(errs, fmt.Errorf("option Headers: the value of %q is not visible ASCII", name))
		case h[http.CanonicalHeaderKey(name)] != nil:
			errs = append(errs, fmt.Errorf("option Headers: %q is given twice, in different case", name))
		default:
			h.Set(name, value)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return h, errors.Join(errs...)
}

// secrets returns what an error's text must not have of the headers and the URL, the longest first: an
// answer may repeat a credential without its scheme, or the URL, whose path and query can be one. Of a query's
// values the short ones are words, such as json, that any text may have.
func secrets(h http.Header, u *url.URL) []string {
	list := []string{u.RequestURI(), u.EscapedPath(), u.Path, u.RawQuery}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if _, value, _ := strings.Cut(pair, "="); len(value) >= 8 { // as it is written there
			list = append(list, value)
		}
	}
	for _, values := range u.Query() {
		for _, value := range values {
			if len(value) >= 8 {
				list = append(list, value)
			}
		}
	}
	for name, values := range h {
		list = append(list, values...)
		for _, value := range values {
			scheme, credential, _ := strings.Cut(value, " ")
			if name == "Authorization" || strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Basic") {
				list = append(list, credential)
			}
		}
	}
	if _, password, ok := (&http.Request{Header: h}).BasicAuth(); ok {
		list = append(list, password)
	}
	list = slices.DeleteFunc(list, func(value string) bool { return len(value) < shortestHidden })
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(list)
}

// reserved are the headers, beside deed-… and webhook-…, that no message may
// set: they belong to the connection, to the request's framing, to who we say
// we are, or make net/http repeat requests.
var reserved = map[string]bool{
	"connection": true, "keep-alive": true, "proxy-connection": true, "te": true, "trailer": true,
	"transfer-encoding": true, "upgrade": true, "http2-settings": true, "expect": true,
	"host": true, "content-length": true, "content-type": true, "accept-encoding": true,
	"authorization": true, "proxy-authorization": true, "proxy-authenticate": true,
	"www-authenticate": true, "cookie": true, "cookie2": true, "set-cookie": true, "user-agent": true,
	"idempotency-key": true, "x-idempotency-key": true,
}

func isReserved(lower string) bool {
	return reserved[lower] || strings.HasPrefix(lower, "deed-") || strings.HasPrefix(lower, "webhook-")
}

var userAgent = sync.OnceValue(func() string {
	const module = "github.com/deedhq/deed"
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Path == module {
			version = info.Main.Version
		}
		for _, dep := range info.Deps {
			if dep.Path == module {
				version = dep.Version
			}
		}
	}
	return "deed/" + cmp.Or(strings.Trim(version, "()"), "devel")
})
