package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// host is a destination that the operator has named.
type host struct {
	name  string // in lower case, without a dot at its end
	below bool   // those below it, and not itself
	port  string // "": any
	clear bool   // http will do
}

// parseHost reads [http://](name|*.name)[:port].
func parseHost(entry string) (host, error) {
	text, clear := strings.CutPrefix(strings.ToLower(entry), "http://")
	text, below := strings.CutPrefix(text, "*.")
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.User != nil || strings.HasSuffix(text, ":") {
		return host{}, notAHost(entry)
	}
	h := host{name: hostName(u), below: below, port: u.Port(), clear: clear}
	if h.name == "" || (below && isAddress(h.name)) {
		return host{}, notAHost(entry)
	}
	return h, nil
}

func notAHost(entry string) error {
	return fmt.Errorf("option Hosts: %q is not as hooks.example.com, *.example.com, 10.1.2.3:8080, or http:// and one of these for what need not be encrypted", entry)
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// hostName is a URL's host as hosts are compared; "" if it is neither a plain
// name nor an address.
func hostName(u *url.URL) string {
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.String()
	}
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	}
	if strings.ContainsFunc(name, odd) {
		return ""
	}
	return name
}

func (h host) serves(u *url.URL) bool {
	if u.Scheme != "https" && !h.clear {
		return false
	}
	if port := map[string]string{"https": "443", "http": "80"}; h.port != "" && h.port != cmp.Or(u.Port(), port[u.Scheme]) {
		return false
	}
	name := hostName(u)
	if h.below {
		return strings.HasSuffix(name, "."+h.name)
	}
	return name == h.name
}

// errOtherHost names no host: the URL stands beside it.
var errOtherHost = errors.New("the URL's host is none of those that the provider's hosts lists; one without encryption is listed as http://NAME")

// check says whether the operator has named a URL's host.
func (p *Provider) check(u *url.URL) error {
	if len(p.hosts) == 0 || slices.ContainsFunc(p.hosts, func(h host) bool { return h.serves(u) }) {
		return nil
	}
	return errOtherHost
}
