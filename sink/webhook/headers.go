package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
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
